#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/layer_file.hpp"
#include "messages/domain/model.hpp"
#include "messages/wire/frame.hpp"

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

/// An operation for a device. Tensors are rows x sequence x hidden 32-bit floats, token lists rows
/// x sequence 32-bit integers, both as bytes that are never copied.
struct operation {
  enum class kind : std::uint8_t {
    forward,    // in: {tokens or activation[, targets]}; out: {activation}, last stage {}; loss
    recompute,  // restores everything that backward needs; no effect if it was kept
    backward,   // in: {gradient of the activation}, last stage {}; out: {gradient of the input}
    gradients,  // out: {own, tied}: the sums over all micro-batches since the last update
    update,     // in: {own, tied}, or {} for the device's own sums; AdamW with scale x gradients
    // All-reduce by devices with their peers in other pipelines (rank, size):
    make_communicator_id,  // creates a group: rank 0 returns out: {group id}, others {}
    join_communicator,     // in: {group id}; joins the group, waiting for all members
    sum,  // in: {} or {tied, to be added first}; own gradients become the sums over all members, in
          // the first stage the tied ones, too. out: {tied} if another stage has the rest
    save,     // path: a directory; writes the stage's file of the checkpoint
    load,     // path: a directory with a checkpoint of any number of stages
    weights,  // out: {own, tied}: for tests
    values,   // out: {weights, first moments, second moments}, each own and then tied; steps
    norms     // in: as of update. Of programs alone (gpu/worker): each layer's squared norm
  };
  kind what = kind::forward;
  std::uint32_t microbatch = 0;
  bool keep = false;  // forward: keep the activations, since no recompute will follow
  // backward: the last one before the sum. A device may start its all-reduce during it, and then
  // rejects operations on gradients until the sum was requested. Peers need not do the same.
  bool last_backward = false;
  std::vector<payload> in{};
  bool timed = false;                // forward, recompute, backward, update: measure compute_s
  double scale = 1;                  // update: of the gradients (1 / number of micro-batches)
  std::uint32_t rank = 0, size = 1;  // make_communicator_id, join_communicator
  std::string path{};
  // For programs (gpu/worker) alone.
  std::uint64_t iteration = 0;  // completed before; a program's data and masks depend on it
  bool evaluate = false;        // forward: on held-out data, and nothing is kept or changed
  // update: of all stages' gradients, not scaled, for clipping by their norm.
  std::optional<double> squared_norm{};
};

/// Result of an operation.
struct outcome {
  std::vector<payload> out;
  double loss = 0;                // forward on the last stage: mean over the micro-batch's tokens
  std::uint64_t steps = 0;        // values: updates done
  double squared_norm = 0;        // update: of the scaled gradients, each parameter counted once
  double begin_s = 0, end_s = 0;  // on the device's own clock
  // The time of a timed operation's kernels, without copies from and to the host.
  double compute_s = 0;  // 0: the device cannot measure it
  // From programs (gpu/worker) alone.
  std::vector<double> norms{};      // norms: squared, not scaled; one for each layer
  std::vector<named_value> more{};  // forward on the last stage
  std::uint64_t peak_bytes = 0;     // the largest use of memory so far
  bool skipped = false;             // update: the norm is not finite, so nothing was changed
};

/// After `sum`, update's payloads may be empty, meaning the device's own gradients. A device
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
