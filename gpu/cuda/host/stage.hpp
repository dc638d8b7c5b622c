#pragma once

#include <string>
#include <vector>

#include "gpu/cuda/collectives/device_group.hpp"
#include "gpu/cuda/host/memory.hpp"
#include "gpu/model/parameters.hpp"

namespace troupe::gpu::cuda {

template <class T>
using buffer = std::shared_ptr<T>;

/// What goes into a stage, on the GPU; of tokens also where each word occurs.
struct stage_input {
  buffer<std::uint32_t> tokens, occur, begins, places, targets;
  std::size_t words_that_occur = 0;
  buffer<float> activation;
};

/// What forward leaves for backward. The residual stream is in 32 bits, factors of products in 16.
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

/// Gradients are summed with other pipelines' in pieces, each as soon as backward has made it. The
/// start of a sum costs the same whatever its size, and a ring reaches its speed at some MiB: a
/// piece has so many at least, as PyTorch's buckets have. Each cuts backward's graph once more: a
/// stage has so many at most.
constexpr std::size_t min_piece_bytes = 25 << 20, max_pieces = 16;

/// A stage's weights, gradients and optimizer on a GPU, and the passes over them: the same
/// operations in the same order as cpu::stage_maths. Everything is asked for and nothing waited
/// for, if not said otherwise.
class stage {
 public:
  /// Weights have their initial values once `reset` is done.
  /// `fellows`: with whom it shares every sublayer; null: with nobody.
  stage(const stage_spec& s, std::shared_ptr<machine> m,
        std::shared_ptr<device_group> tensor_group = nullptr,
        std::size_t piece_bytes = min_piece_bytes);

  /// Blocks. Sets weights to their first values.
  void reset();

  struct result {
    buffer<float> activation;  // null if the stage predicts; from the pool for copies
    buffer<double> loss;       // null unless it does
  };
  /// kept: null if a later call will make everything again.
  result forward(const stage_input& in, stage_memory* kept);
  /// gradient: of the activation, from the pool for copies, is changed; null if the stage predicts.
  /// That of the input, or of the embeddings' sum, from the pool for copies.
  /// `with`: not null if no other comes before sum_gradients; own sums that are complete become
  /// those over all members meanwhile.
  buffer<float> backward(const stage_input& in, const stage_memory& kept, buffer<float> gradient,
                         device_group* with = nullptr);

  /// Own and tied sums, or weights, as they are now: in a buffer from the pool for copies.
  buffer<float> gradients();
  buffer<float> weights();
  /// Sums from elsewhere instead; null: those that are there.
  void replace_gradients(const float* own, const float* tied);
  /// The sums over all members instead, of the tied embedding too if this stage embeds. `tied`:
  /// another stage's part of that, added first, or null. Gives the tied sum if this stage has a
  /// part of it: in a buffer from the pool for copies.
  /// The sums are the same ones in the same order, wherever backward began with them.
  buffer<float> sum_gradients(device_group& with, const float* tied);
  /// What backward has begun is done with, before anything that comes now; the sums are of no use.
  void forget_sums();
  void clear_gradients();
  /// One step; clears the sums. The squared norm, once the GPU has come to it.
  buffer<double> update(double scale);

  const std::vector<parameter>& parameters() const { return parameters_; }
  std::size_t own() const { return own_; }
  std::size_t tied() const { return tied_; }
  /// Blocks. All values to host memory, own and then tied; and from there.
  struct host_values {
    std::vector<float> weights, first_moments, second_moments;
  };
  host_values read();
  void write(const host_values& v);

  std::uint64_t steps = 0;  // updates done
  bool alone = false;       // what fellows would add is left out
  /// For what copies touch; host memory.
  block_pool& copied() { return copied_; }
  block_pool& host() { return host_; }

 private:
  struct weight {
    float* wide;  // master, or its gradient's sum
    bf16* narrow;
  };
  struct linear {
    weight w, b;
  };
  weight find(float* values, const std::string& name) const;
  /// Of one of its own parameters, in all of them.
  std::size_t offset_of(const std::string& name) const {
    return static_cast<std::size_t>(find(weights_.get(), name).wide - weights_.get());
  }
  linear both(float* values, const std::string& name) const;
  float* bias_sum(const std::string& name) const;
  std::string head() const { return spec_.model.tied_head ? "wte.weight" : "lm_head.weight"; }
  /// The vocabulary, rounded up so that products with the head are quick.
  std::size_t head_width() const;
  void plan_runs();
  void plan_pieces(std::size_t piece_bytes);
  void sum_from(std::size_t first, device_group* with);

  norm_memory norm(const std::string& name, const float* in);
  void norm_backward(const std::string& name, const float* in, const norm_memory& m, bool adds);
  void attention_forward(const sublayer_names& names, sublayer_memory& m, float* out);
  void mlp_forward(const sublayer_names& names, sublayer_memory& m, float* out);
  template <class T>
  void sum_with_fellows(T* values, std::size_t count) {
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
  std::shared_ptr<device_group> tensor_group_;
  block_pool memory_, copied_, host_;
  std::vector<parameter> parameters_;
  std::vector<std::size_t> narrow_at_;  // of each parameter, in the copies of 16 bits
  std::size_t own_ = 0, tied_ = 0, tokens_, hidden_, own_hidden_, inner_, narrow_values_ = 0,
              run_count_ = 0;
  /// Own gradients, in the order in which backward makes them: each once all from `first` on is
  /// made.
  struct sum_piece {
    std::size_t first, values;
  };
  std::vector<sum_piece> pieces_;
  std::size_t begun_ = 0;  // so many are being summed already
  buffer<float> weights_, gradients_, first_moments_, second_moments_;
  buffer<float> tied_head_;  // the head's sum, if the embedding is here too
  buffer<bf16> narrow_;
  buffer<adamw_run> runs_;
  buffer<double> norms_;

  // What all sublayers use in turn.
  buffer<float> scratch_, dots_, losses_, gradient_;  // gradient_: of the residual stream, now
  buffer<bf16> rounded_, wide_, slim_;                // rounded_: gradient_
};

}  // namespace troupe::gpu::cuda
