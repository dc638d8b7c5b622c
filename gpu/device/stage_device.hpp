#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gpu/device/operation.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/model.hpp"

// The device interface: one pipeline stage of a transformer on one device. Every backend executes
// the same operations in submission order; the CPU is the reference.

namespace troupe::gpu {

class device_thread;

/// A stage's part of the model, and its training parameters.
struct stage_spec {
  troupe::model model;  // GPT-2's layout
  // Sublayers [first_sublayer, first_sublayer + sublayers): 2i is the attention of layer i, 2i + 1
  // its MLP, each with the norm before it and the residual sum after it.
  std::uint32_t first_sublayer = 0;
  std::uint32_t sublayers = 0;
  bool has_embedding = false;  // the first stage: token and position embeddings
  bool has_head = false;       // last stage: final layer norm, head and loss
  std::uint32_t rows = 1;      // sequences per micro-batch
  // Tensor parallel: this rank's part of the heads and of the MLP's columns, of that many.
  std::uint32_t shard = 0, shards = 1;
  // The passes of an iteration, which a device with collectives executes once before the first
  // all-reduce. Empty: one micro-batch forward and backward.
  struct pass {
    enum class kind : std::uint8_t { forward, forward_kept, recompute, backward };
    kind what = kind::forward;
    std::uint32_t microbatch = 0;
  };
  std::vector<pass> iteration{};
  std::uint64_t seed = 1;    // initial values depend only on it and the parameter's name
  std::uint64_t lease = 0;   // part of file names: leases do not overwrite each other's files
  double emulate_speed = 1;  // CPU devices: operations take 1 / this times as long
  double learning_rate = 3e-4, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
};

/// After `sum`, each of update's sums may be empty, meaning the device's own. A device
/// without collectives rejects `make_communicator_id`, and hosts all-reduce instead.
///
/// A model with a tied head has its token embedding in the first and in the last stage; each
/// accumulates its own gradient ("tied" above). The caller adds the two, the first stage's first,
/// and gives the sum to both. A single stage also keeps them apart and adds them in the same order,
/// so that the results are bitwise identical.
class stage_device {
 public:
  using done = std::function<void(expected<outcome>)>;

  virtual ~stage_device() = default;

  /// Never blocks. Operations are executed in this order, one at a time. `d` is called once for
  /// each, on a thread of the device; it must only post a message.
  virtual void submit(operation o, done d) = 0;
};

/// A device that can share a stage with others (gpu/tensor_parallel): its values can be read.
class member_device : public stage_device {
 public:
  virtual void submit_values(done d) = 0;
};

/// A program's device. Updates of some need a norm, to which all stages contribute.
class program_device : public stage_device {
 public:
  virtual void submit_norms(operations::norms n, done d) = 0;
  /// Do passes change state of its layers (buffers of a BatchNorm), so that those of another
  /// pipeline would not be what they are on its own device? Known from the first `gradients` that
  /// were taken on; from any thread.
  virtual bool has_moving_state() const = 0;
};

/// Sizes of a stage, for planning and for sending gradients.
struct stage_size {
  std::uint64_t own_parameters = 0;    // not counting a tied embedding
  std::uint64_t tied_parameters = 0;   // 0 if not tied, or neither first nor last
  std::uint64_t activation_bytes = 0;  // of one micro-batch between stages
  double forward_flops = 0;            // one micro-batch
};
stage_size size_of(const stage_spec& s);

/// fp32, one thread. Fails for a model that does not have GPT-2's layout (family gpt), for heads
/// that do not divide the hidden size, and for sublayers that do not exist.
expected<std::unique_ptr<stage_device>> make_cpu_device(const stage_spec& s);

/// The same on a thread that other stages and a guest may use, too.
expected<std::unique_ptr<stage_device>> make_cpu_device_on(std::shared_ptr<device_thread> thread,
                                                           const stage_spec& s);

/// Several CPU threads of this host that share a stage, as one device. Fails if head count or MLP
/// width is not divisible by their number.
expected<std::unique_ptr<stage_device>> make_shared_cpu_device(const stage_spec& s,
                                                               std::uint32_t shards);

/// Mixed precision: 16-bit factors and 32-bit sums, weights and residual stream, on the GPU with
/// this number. Fails like the CPU device; for head widths that are not a multiple of 8 or above
/// 128; and, saying which, if the program was built without CUDA, if CUDA's libraries cannot be
/// loaded, or if there is no such GPU.
expected<std::unique_ptr<stage_device>> make_cuda_device(const stage_spec& s, int index = 0);

/// GPUs of this host that share a stage, as one device: they all-reduce by NCCL, or without it
/// through the host, which is slow.
expected<std::unique_ptr<stage_device>> make_shared_cuda_device(const stage_spec& s,
                                                                const std::vector<int>& indices);

}  // namespace troupe::gpu
