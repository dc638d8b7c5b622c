#pragma once

#include <functional>
#include <vector>

#include "gpu/cuda/runtime/machine.hpp"

namespace troupe::gpu::cuda {

/// A recorded call of a machine.
struct call {
  const char* name;
  std::size_t rows = 0, columns = 0, inner = 0;  // of a product; of others rows x columns values
  /// Minimum memory traffic, each value counted once, and the operations of a product or attention:
  /// two per multiply-add, without those that the causal mask excludes.
  double bytes = 0, flops = 0;
  /// Its arguments change in every step: it cannot be reused.
  bool changes = false;
  /// All of them; equal calls do the same in the same memory.
  std::vector<std::uint64_t> arguments{};
};

/// A decorator of a machine. Kernels and products are passed to `perform`; everything else is
/// forwarded.
class kernel_interceptor : public machine {
 public:
  explicit kernel_interceptor(std::shared_ptr<machine> behind) : behind_{std::move(behind)} {}

  std::string name() const override { return behind_->name(); }
  machine_facts facts() override { return behind_->facts(); }
  void enter() override { behind_->enter(); }
  memory_state memory() override { return behind_->memory(); }
  void* take(std::size_t bytes) override { return behind_->take(bytes); }
  void give(void* memory) noexcept override { behind_->give(memory); }
  void* take_host(std::size_t bytes) override { return behind_->take_host(bytes); }
  void give_host(void* memory) noexcept override { behind_->give_host(memory); }
  void let_go(void* memory, std::size_t bytes) noexcept override { behind_->let_go(memory, bytes); }
  void copy_in(void* to, const void* from, std::size_t bytes) override {
    behind_->copy_in(to, from, bytes);
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    behind_->copy_out(to, from, bytes);
  }
  void* record_event() override { return behind_->record_event(); }
  void wait(void* event) override { behind_->wait(event); }
  bool reached(void* event) override { return behind_->reached(event); }
  const collectives* sums_with_others(std::string& why) override {
    return behind_->sums_with_others(why);
  }
  void* stream() override { return behind_->stream(); }
  void* side_stream() override { return behind_->side_stream(); }
  void join_beside() override { behind_->join_beside(); }
  bool begin_graph() override { return behind_->begin_graph(); }
  void* end_graph() override { return behind_->end_graph(); }
  void run_graph(void* graph) override { behind_->run_graph(graph); }
  void drop_graph(void* graph) noexcept override { behind_->drop_graph(graph); }
  void* timing_event() override { return behind_->timing_event(); }
  double seconds(void* from, void* to) override { return behind_->seconds(from, to); }
  void forget(void* timing_event) noexcept override { behind_->forget(timing_event); }

  void copy(void* to, const void* from, std::size_t bytes) override;
  void zero(void* to, std::size_t bytes) override;
  void multiply(const product& p) override;
  void embed(const std::uint32_t* tokens, std::size_t count, std::size_t sequence, std::size_t n,
             const float* words, const float* positions, float* out) override;
  void embed_positions_backward(std::size_t rows, std::size_t sequence, std::size_t n,
                                const float* gradient, float* positions) override;
  void embed_words_backward(const std::uint32_t* occur, const std::uint32_t* begins,
                            const std::uint32_t* places, std::size_t words_that_occur,
                            std::size_t n, const float* gradient, float* words) override;
  void narrow(const float* in, std::size_t count, bf16* out) override;
  void add(float* to, const float* what, std::size_t count) override;
  void layer_norm(const float* in, const float* weight, const float* bias, std::size_t rows,
                  std::size_t n, bf16* out, float* means, float* inverses) override;
  void layer_norm_backward(const bf16* gradient_out, const float* in, const float* weight,
                           const float* means, const float* inverses, std::size_t rows,
                           std::size_t n, bool adds, float* gradient, bf16* narrowed,
                           float* weight_sum, float* bias_sum, float* scratch) override;
  void sum_rows(const float* in, std::size_t rows, std::size_t n, float* sums,
                float* scratch) override;
  void sum_rows(const bf16* in, std::size_t rows, std::size_t n, float* sums,
                float* scratch) override;
  void attention(attention_shape shape, std::size_t rows, const bf16* qkv, bf16* out,
                 float* log_sums) override;
  void attention_backward(attention_shape shape, std::size_t rows, const bf16* qkv, const bf16* out,
                          const bf16* gradient_out, const float* log_sums, float* dots,
                          bf16* gradient_qkv) override;
  void cross_entropy(bf16* logits, const std::uint32_t* targets, std::size_t rows, std::size_t n,
                     std::size_t width, float* losses, double* loss) override;
  void adamw(const adamw_run* runs, std::size_t count, float* values, float* first_moments,
             float* second_moments, float* gradients, bf16* narrowed, adamw_numbers how,
             double* norms, double* norm) override;
  void narrow_weights(const adamw_run* runs, std::size_t count, const float* values,
                      bf16* narrowed) override;

 protected:
  /// how(m): makes the call on m.
  virtual void perform(call what, std::function<void(machine&)> how) = 0;

  machine& behind() { return *behind_; }

 private:
  /// Performs a call that has only these arguments, which it also records in `what`.
  template <class... P, class... A>
  void pass_on(void (machine::*kernel)(P...), call what, A... arguments);

  std::shared_ptr<machine> behind_;
};

}  // namespace troupe::gpu::cuda
