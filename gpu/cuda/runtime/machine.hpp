#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "gpu/cuda/collectives/collectives.hpp"
#include "gpu/cuda/kernels/attention.hpp"
#include "gpu/cuda/kernels/training.hpp"

// What a stage asks of a GPU: memory, copies, products of matrices and the project's own kernels.
// The real one is in a shared object that is loaded when it is asked for (plugin.cu); the tests
// have one that runs the same kernels without a GPU.

namespace troupe::gpu::cuda {

/// A matrix row by row, `stride` values from one to the next; turned: the transpose of what lies
/// there.
struct operand {
  const bf16* at = nullptr;
  std::size_t rows = 0, columns = 0, stride = 0;
  bool turned = false;

  operand() = default;
  operand(const bf16* first, std::size_t r, std::size_t c, std::size_t s)
      : at{first}, rows{r}, columns{c}, stride{s} {}
  operand(const bf16* first, std::size_t r, std::size_t c) : operand{first, r, c, c} {}
  operand transposed() const {
    operand o{at, columns, rows, stride};
    o.turned = !turned;
    return o;
  }
};

/// a b, summed in 32 bits, to exactly one of `wide` and `narrow`.
struct product {
  operand a, b;
  float* wide = nullptr;
  bf16* narrow = nullptr;
  std::size_t stride = 0;             // of the result
  const float* plus = nullptr;        // wide: added; may be `wide` itself
  const float* bias = nullptr;        // wide: added to each row
  const bf16* narrow_bias = nullptr;  // narrow: the same
  bf16* before = nullptr;  // narrow, with narrow_bias: gelu is applied, and its input is here
  const bf16* slope_at = nullptr;  // narrow: times gelu' of this
};

/// What a profile says of a GPU; 0 and empty: not known.
struct machine_facts {
  std::string driver, runtime, libraries;  // versions
  double core_mhz = 0, core_max_mhz = 0, memory_mhz = 0, memory_max_mhz = 0;
  int devices = 1;  // of this machine
};

/// What a machine throws when the GPU can do nothing more for this process, whatever it is asked:
/// its memory had an error, or a kernel wrote where it must not. Other GPUs are not concerned.
struct gpu_lost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What is done is done in order on the GPU, after the call has returned. Throws
/// std::runtime_error with a sentence if the GPU refuses, gpu_lost if it always will.
class machine {
 public:
  virtual ~machine() = default;

  virtual std::string name() const = 0;
  /// As it is now.
  virtual machine_facts facts() { return {}; }
  /// Each thread calls it before anything else.
  virtual void enter() = 0;

  /// The GPU's memory, whoever uses it; 0: not known.
  struct memory_state {
    std::size_t free_bytes = 0, total_bytes = 0;
  };
  virtual memory_state memory() { return {}; }
  virtual void* take(std::size_t bytes) = 0;
  virtual void give(void* memory) noexcept = 0;
  /// Memory of the host that the GPU copies from and to.
  virtual void* take_host(std::size_t bytes) = 0;
  virtual void give_host(void* memory) noexcept = 0;
  /// Memory that copies touch is not needed until it is taken again: for machines that check that.
  virtual void let_go(void* /*memory*/, std::size_t /*bytes*/) noexcept {}

  /// From and to host memory beside the kernels: what comes in is there for the kernels that are
  /// asked for later, what goes out is as the kernels before left it.
  virtual void copy_in(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_out(void* to, const void* from, std::size_t bytes) = 0;
  /// A point in the order of kernels and copies; wait: until it is reached, on any thread, once.
  virtual void* record_event() = 0;
  virtual void wait(void* event) = 0;
  /// Does not wait; before wait.
  virtual bool reached(void* event) = 0;

  /// How it sums with other GPUs; null and a sentence if it cannot. They stay.
  virtual const collectives* sums_with_others(std::string& why) = 0;
  /// The order of kernels, as `collectives` are told it.
  virtual void* stream() = 0;
  /// An order of its own beside the kernels, as `collectives` are told it: what is asked for there
  /// finds what the kernels asked for so far have left, and no mark waits for it.
  virtual void* side_stream() = 0;
  /// Kernels and marks that are asked for from here on come after all that was asked for beside.
  virtual void join_beside() = 0;

  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void zero(void* to, std::size_t bytes) = 0;

  /// What belongs together: a machine may keep the kernels of a pass, and do them all at once when
  /// it ends. Nothing is copied from or to the host in between. drop: it failed half-way.
  virtual void begin_pass() {}
  virtual void end_pass() {}
  virtual void drop_pass() noexcept {}

  /// Kernels that are asked for from here to end_graph are not done, but kept; false: it cannot.
  virtual bool begin_graph() { return false; }
  /// They, to be done again and again in the same memory; null: they could not be kept.
  virtual void* end_graph() { return nullptr; }
  virtual void run_graph(void* /*graph*/) {}
  virtual void drop_graph(void* /*graph*/) noexcept {}

  /// A point in the order of kernels whose time is known; null if it has no such clock.
  virtual void* timing_event() { return nullptr; }
  /// Between two of them: waits for the second. forget: each, once.
  virtual double seconds(void* /*from*/, void* /*to*/) { return 0; }
  virtual void forget(void* /*moment*/) noexcept {}

  virtual void multiply(const product& p) = 0;

  // The kernels; see elementwise.hpp, norm.hpp, training.hpp, attention.hpp.
  virtual void embed(const std::uint32_t* tokens, std::size_t count, std::size_t sequence,
                     std::size_t n, const float* words, const float* positions, float* out) = 0;
  virtual void embed_positions_backward(std::size_t rows, std::size_t sequence, std::size_t n,
                                        const float* gradient, float* positions) = 0;
  virtual void embed_words_backward(const std::uint32_t* occur, const std::uint32_t* begins,
                                    const std::uint32_t* places, std::size_t words_that_occur,
                                    std::size_t n, const float* gradient, float* words) = 0;
  virtual void narrow(const float* in, std::size_t count, bf16* out) = 0;
  virtual void add(float* to, const float* what, std::size_t count) = 0;
  virtual void layer_norm(const float* in, const float* weight, const float* bias, std::size_t rows,
                          std::size_t n, bf16* out, float* means, float* inverses) = 0;
  /// gradient: = or += (adds); narrow: the same, rounded. scratch: norm_scratch(rows, n) floats.
  virtual void layer_norm_backward(const bf16* gradient_out, const float* in, const float* weight,
                                   const float* means, const float* inverses, std::size_t rows,
                                   std::size_t n, bool adds, float* gradient, bf16* narrow,
                                   float* weight_sum, float* bias_sum, float* scratch) = 0;
  /// sums += the sum of all rows. scratch: as above.
  virtual void sum_rows(const float* in, std::size_t rows, std::size_t n, float* sums,
                        float* scratch) = 0;
  virtual void sum_rows(const bf16* in, std::size_t rows, std::size_t n, float* sums,
                        float* scratch) = 0;
  virtual void attention(attention_shape shape, std::size_t rows, const bf16* qkv, bf16* out,
                         float* log_sums) = 0;
  /// dots: as many floats as log_sums has, for its own use.
  virtual void attention_backward(attention_shape shape, std::size_t rows, const bf16* qkv,
                                  const bf16* out, const bf16* gradient_out, const float* log_sums,
                                  float* dots, bf16* gradient_qkv) = 0;
  /// loss: the mean over rows. losses: a float a row, for its own use.
  virtual void cross_entropy(bf16* logits, const std::uint32_t* targets, std::size_t rows,
                             std::size_t n, std::size_t width, float* losses, double* loss) = 0;
  /// norm: the sum of all runs'. norms: a double a run, for its own use.
  virtual void adamw(const adamw_run* runs, std::size_t count, float* values, float* first_moments,
                     float* second_moments, float* gradients, bf16* narrow, adamw_numbers how,
                     double* norms, double* norm) = 0;
  virtual void narrow_weights(const adamw_run* runs, std::size_t count, const float* values,
                              bf16* narrow) = 0;
};

/// Into how many parts sums over rows are cut: enough for all multiprocessors, and a function of
/// the number of rows alone.
inline std::size_t parts_of(std::size_t rows) {
  const auto parts = (rows + 63) / 64;
  return parts < 64 ? parts : 64;
}
/// Floats that sums over rows of n values need.
inline std::size_t norm_scratch(std::size_t rows, std::size_t n) {
  return 2 * parts_of(rows) * n;
}

/// What cuBLASLt works in; NVIDIA advises so much for Hopper.
constexpr std::size_t workspace_bytes = 32 << 20;

/// What a head's width may be at most.
constexpr std::uint32_t widest_head = 128;

/// The function that the shared object has: the GPU, or null and a sentence. lost: as gpu_lost.
using open_machine = machine*(int index, char* sentence, std::size_t size, bool* lost);
constexpr const char* open_machine_name = "troupe_open_cuda_machine";
/// Changes with `machine`: a shared object of another build is refused.
constexpr int machine_version = 6;
constexpr const char* machine_version_name = "troupe_cuda_machine_version";

}  // namespace troupe::gpu::cuda
