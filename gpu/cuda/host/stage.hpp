#pragma once

#include <string>
#include <vector>

#include "gpu/cuda/collectives/device_communicator.hpp"
#include "gpu/cuda/runtime/memory.hpp"
#include "gpu/model/parameters.hpp"

namespace troupe::gpu::cuda {

template <class T>
using buffer = std::shared_ptr<T>;

/// Inputs of a stage on the GPU; for tokens also the positions of each word.
struct stage_input {
  buffer<std::uint32_t> tokens, occur, begins, places, targets;
  std::size_t words_that_occur = 0;
  buffer<float> activation;
};

/// Forward's results for backward. The residual stream is in 32 bits, factors of products in 16.
struct norm_memory {
  buffer<bf16> out;
  buffer<float> means, inverses;
};
struct sublayer_memory {
  buffer<float> in;
  norm_memory norm;
  buffer<bf16> qkv, attended;  // attention's
  buffer<float> log_sums;
  buffer<bf16> before, after;  // the MLP's, of gelu
};
struct stage_memory {
  std::vector<sublayer_memory> sublayers;
  buffer<float> last;  // the last one's output
  norm_memory final;
  buffer<bf16> logits;  // their gradient
};

/// Gradients are all-reduced with other pipelines in buckets, each as soon as backward has computed
/// it. An all-reduce has a constant start-up cost, and a ring reaches its bandwidth at some MiB:
/// this is the minimum bucket size, as in PyTorch. Each bucket splits backward's graph: this is the
/// maximum number.
constexpr std::size_t min_piece_bytes = 25 << 20, max_pieces = 16;

/// A stage's weights, gradients and optimizer on a GPU, and the passes over them: the same
/// operations in the same order as cpu::stage_maths. Asynchronous unless stated otherwise.
class stage {
 public:
  /// Weights have their initial values after `reset`.
  /// `tensor_group`: null: the stage is not shared.
  stage(const stage_spec& s, std::shared_ptr<machine> m,
        std::shared_ptr<device_communicator> tensor_group = nullptr,
        std::size_t piece_bytes = min_piece_bytes);

  /// Blocks. Sets weights to their initial values.
  void reset();

  struct result {
    buffer<float> activation;  // null in the last stage; from the pool for copies
    buffer<double> loss;       // null except in the last stage
  };
  /// kept: null if a later call will recompute.
  result forward(const stage_input& in, stage_memory* kept);
  /// gradient: of the activation, from the pool for copies, overwritten; null in the last stage.
  /// Returns that of the input, or of the embeddings' sum, from the pool for copies. `with`: not
  /// null in the last backward before sum_gradients; completed gradients are then all-reduced
  /// meanwhile.
  buffer<float> backward(const stage_input& in, const stage_memory& kept, buffer<float> gradient,
                         device_communicator* with = nullptr);

  /// Own and tied gradients, or weights, at present: in a buffer from the pool for copies.
  buffer<float> gradients();
  buffer<float> weights();
  /// Replaces the gradients by sums from the host; null: keeps them.
  void replace_gradients(const float* own, const float* tied);
  /// Replaces the gradients by the sums over all members, in the first stage the tied ones, too.
  /// `tied`: another stage's gradient of the tied embedding, added first, or null. Returns the tied
  /// sum if this stage has a part of it: in a buffer from the pool for copies. The result does not
  /// depend on what backward has already summed.
  buffer<float> sum_gradients(device_communicator& with, const float* tied);
  /// Ends all-reduces that backward has started; the gradients are invalid then.
  void forget_sums();
  void clear_gradients();
  /// An update; clears the gradients. The squared norm is available when the GPU has computed it.
  buffer<double> update(double scale);

  const std::vector<parameter>& parameters() const { return parameters_; }
  std::size_t own() const { return own_; }
  std::size_t tied() const { return tied_; }
  /// Blocks. Copies all values to host memory, own and then tied; and back.
  struct host_values {
    std::vector<float> weights, first_moments, second_moments;
  };
  host_values read();
  std::vector<float> read_weights();
  void write(const host_values& v);

  std::uint64_t steps = 0;  // number of updates
  bool alone = false;       // leaves out the tensor group's sums
  /// For what copies touch; host memory.
  block_pool& copied() { return copied_; }
  block_pool& host() { return host_; }

 private:
  struct weight {
    float* wide;  // master weights, or their accumulated gradient
    bf16* narrow;
  };
  struct linear {
    weight w, b;
  };
  weight find(float* values, const std::string& name) const;
  /// Offset of an own parameter in all of them.
  std::size_t offset_of(const std::string& name) const {
    return static_cast<std::size_t>(find(weights_.get(), name).wide - weights_.get());
  }
  linear both(float* values, const std::string& name) const;
  float* bias_sum(const std::string& name) const;
  std::string head() const { return spec_.model.tied_head ? "wte.weight" : "lm_head.weight"; }
  /// The vocabulary, padded for fast products with the head.
  std::size_t head_width() const;
  void plan_runs();
  void plan_pieces(std::size_t piece_bytes);
  void sum_from(std::size_t first, device_communicator* with);

  norm_memory norm(const std::string& name, const float* in);
  void norm_backward(const std::string& name, const float* in, const norm_memory& m, bool adds);
  void attention_forward(const sublayer_names& names, sublayer_memory& m, float* out);
  void mlp_forward(const sublayer_names& names, sublayer_memory& m, float* out);
  template <class T>
  void sum_over_tensor_group(T* values, std::size_t count) {
    if (tensor_group_ && !alone) tensor_group_->sum(values, count);
  }
  void come_back(const std::string& name, operand made, const float* in, float* out);
  void attention_backward(const sublayer_names& names, const sublayer_memory& m);
  void mlp_backward(const sublayer_names& names, const sublayer_memory& m);
  void linear_backward(const std::string& name, const bf16* gradient, const bf16* in,
                       std::size_t wide_in, std::size_t wide_out, bf16* gradient_in,
                       const bf16* slope_at = nullptr);
  buffer<double> predict(const stage_input& in, stage_memory& m);
  void predict_backward(const stage_memory& m);
  attention_shape attention() const;
  void move(void* to, const void* from, std::size_t bytes, bool in);

  stage_spec spec_;
  std::shared_ptr<machine> machine_;
  std::shared_ptr<device_communicator> tensor_group_;
  block_pool memory_, copied_, host_;
  std::vector<parameter> parameters_;
  std::vector<std::size_t> narrow_at_;  // of each parameter, in the 16-bit copies
  std::size_t own_ = 0, tied_ = 0, tokens_, hidden_, own_hidden_, inner_, narrow_values_ = 0,
              run_count_ = 0;
  /// Buckets of own gradients in the order in which backward computes them: a bucket is complete
  /// once all gradients from `first` on are.
  struct sum_piece {
    std::size_t first, values;
  };
  std::vector<sum_piece> pieces_;
  std::size_t begun_ = 0;  // buckets whose all-reduce has started
  buffer<float> weights_, gradients_, first_moments_, second_moments_;
  buffer<float> tied_head_;  // the head's gradient, if the embedding is here too
  std::size_t gradient_values_ = 0, tied_head_values_ = 0;  // with the padding of the head's rows
  buffer<bf16> narrow_;
  buffer<adamw_run> runs_;
  buffer<double> norms_;

  // Scratch memory shared by all sublayers.
  buffer<float> scratch_, dots_, losses_, gradient_;  // gradient_: of the residual stream, now
  buffer<bf16> rounded_, wide_, slim_;                // rounded_: gradient_
};

}  // namespace troupe::gpu::cuda
