#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "gpu/cuda/kernels/attention.hpp"
#include "gpu/cuda/kernels/training.hpp"
#include "gpu/cuda/runtime/collectives.hpp"

// A stage's interface to a GPU: memory, copies, matrix products and the project's kernels. The
// implementation is in a shared object that is loaded when needed (plugin.cu); tests have one that
// runs the same kernels without a GPU.

namespace troupe::gpu::cuda {

/// A row-major matrix with a row stride; turned: its transpose.
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

/// a b, accumulated in 32 bits, written to exactly one of `wide` and `narrow`.
struct product {
  operand a, b;
  float* wide = nullptr;
  bf16* narrow = nullptr;
  std::size_t stride = 0;             // of the result
  const float* plus = nullptr;        // wide: added; may be `wide` itself
  const float* bias = nullptr;        // wide: added to each row
  const bf16* narrow_bias = nullptr;  // narrow: the same
  bf16* before = nullptr;  // narrow, with narrow_bias: gelu is applied, its input stored here
  const bf16* slope_at = nullptr;  // narrow: multiplied by gelu' of this
};

/// Properties of a GPU for a profile; 0 and empty: unknown.
struct machine_facts {
  std::string driver, runtime, libraries;  // versions
  double core_mhz = 0, core_max_mhz = 0, memory_mhz = 0, memory_max_mhz = 0;
  int devices = 1;  // of this machine
};

/// Thrown when the GPU is unusable for this process, for example after a memory error or an illegal
/// access of a kernel. Other GPUs are not affected.
struct gpu_lost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown when the GPU, or the host for its copies, has too little memory left. The machine stays
/// usable.
struct gpu_out_of_memory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The sentence of it. `total` 0: what is free is not known.
inline std::string out_of_memory_text(const char* call, std::size_t bytes, std::size_t free,
                                      std::size_t total) {
  auto text = "the GPU refused " + std::string{call} + " of " + std::to_string(bytes) +
              " bytes: out of memory";
  if (total > 0)
    text += "; " + std::to_string(free) + " of " + std::to_string(total) + " bytes are free";
  return text;
}

/// Asynchronous and in order unless stated otherwise. Throws std::runtime_error if a call fails,
/// gpu_out_of_memory if memory is what it lacks, gpu_lost if all later calls will fail, too.
class machine {
 public:
  virtual ~machine() = default;

  virtual std::string name() const = 0;
  /// The GPU's present properties.
  virtual machine_facts facts() { return {}; }
  /// Must be called first on each thread.
  virtual void enter() = 0;

  /// The GPU's total and free memory; 0: unknown.
  struct memory_state {
    std::size_t free_bytes = 0, total_bytes = 0;
  };
  virtual memory_state memory() { return {}; }
  virtual void* take(std::size_t bytes) = 0;
  virtual void give(void* memory) noexcept = 0;
  /// Pinned host memory for copies.
  virtual void* take_host(std::size_t bytes) = 0;
  virtual void give_host(void* memory) noexcept = 0;
  /// Hint that memory for copies is unused until it is allocated again, for machines that check
  /// this.
  virtual void let_go(void* /*memory*/, std::size_t /*bytes*/) noexcept {}

  /// Copies that run concurrently with kernels: copied-in data is available to kernels that are
  /// launched later, copied-out data is the result of earlier kernels.
  virtual void copy_in(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_out(void* to, const void* from, std::size_t bytes) = 0;
  /// An event in the order of kernels and copies; wait: until it is reached, on any thread, once.
  virtual void* record_event() = 0;
  virtual void wait(void* event) = 0;
  /// Does not wait; before wait.
  virtual bool reached(void* event) = 0;

  /// Collectives with other GPUs; null and an error if there are none. They stay valid.
  virtual const collectives* sums_with_others(std::string& why) = 0;
  /// The stream of kernels, for `collectives`.
  virtual void* stream() = 0;
  /// A side stream next to the kernels, for `collectives`: work added to it sees the results of
  /// kernels launched so far, and events do not wait for it.
  virtual void* side_stream() = 0;
  /// Makes later kernels and events wait for all work of the side stream.
  virtual void join_beside() = 0;

  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void zero(void* to, std::size_t bytes) = 0;

  /// A pass: a machine may record its kernels and launch them together at the end. No copies from
  /// or to the host in between. drop: it failed half-way.
  virtual void begin_pass() {}
  virtual void end_pass() {}
  virtual void drop_pass() noexcept {}

  /// Records kernels instead of launching them, until end_graph; false: not supported.
  virtual bool begin_graph() { return false; }
  /// The recorded kernels, to be launched repeatedly in the same memory; null: they could not be
  /// recorded.
  virtual void* end_graph() { return nullptr; }
  virtual void run_graph(void* /*graph*/) {}
  virtual void drop_graph(void* /*graph*/) noexcept {}

  /// A timing event in the order of kernels; null if not supported.
  virtual void* timing_event() { return nullptr; }
  /// The time between two events: waits for the second. forget: releases an event.
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
  /// dots: scratch, as many floats as log_sums.
  virtual void attention_backward(attention_shape shape, std::size_t rows, const bf16* qkv,
                                  const bf16* out, const bf16* gradient_out, const float* log_sums,
                                  float* dots, bf16* gradient_qkv) = 0;
  /// loss: the mean over rows. losses: scratch, a float per row.
  virtual void cross_entropy(bf16* logits, const std::uint32_t* targets, std::size_t rows,
                             std::size_t n, std::size_t width, float* losses, double* loss) = 0;
  /// norm: the sum over all runs. norms: scratch, a double per run.
  virtual void adamw(const adamw_run* runs, std::size_t count, float* values, float* first_moments,
                     float* second_moments, float* gradients, bf16* narrow, adamw_numbers how,
                     double* norms, double* norm) = 0;
  virtual void narrow_weights(const adamw_run* runs, std::size_t count, const float* values,
                              bf16* narrow) = 0;
};

/// The number of partial sums over rows: enough for all multiprocessors, and a function of the
/// number of rows only.
inline std::size_t parts_of(std::size_t rows) {
  const auto parts = (rows + 63) / 64;
  return parts < 64 ? parts : 64;
}
/// Scratch floats for sums over rows of n values.
inline std::size_t norm_scratch(std::size_t rows, std::size_t n) {
  return 2 * parts_of(rows) * n;
}

/// cuBLASLt's workspace, as NVIDIA recommends for Hopper.
constexpr std::size_t workspace_bytes = 32 << 20;

/// Maximum width of a head.
constexpr std::uint32_t widest_head = 128;

/// Why a GPU could not be opened: as the exceptions, which cannot leave the shared object.
enum class open_failure : int { unusable, lost, out_of_memory };

/// The function exported by the shared object: returns the GPU, or null and an error.
using open_machine = machine*(int index, char* sentence, std::size_t size, open_failure* why);
constexpr const char* open_machine_name = "troupe_open_cuda_machine";
/// Incremented with changes of `machine`: other builds of the shared object are rejected.
constexpr int machine_version = 7;
constexpr const char* machine_version_name = "troupe_cuda_machine_version";

}  // namespace troupe::gpu::cuda
