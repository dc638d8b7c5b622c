#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "messages/base/invariant.hpp"
#include "messages/domain/layer_file.hpp"
#include "messages/wire/frame.hpp"

// The operations of a stage on its device: a struct for each kind, and one for its result.
// Tensors are rows x sequence x hidden 32-bit floats, token lists rows x sequence 32-bit integers,
// both as bytes that are never copied; those of programs are gpu/worker/tensors.hpp's.

namespace troupe::gpu {

/// A number for each parameter of a stage: its own, and a tied embedding's.
struct own_and_tied {
  payload own{}, tied{};
  bool empty() const { return own.empty() && tied.empty(); }
};

namespace operations {

struct no_result {};

struct forward {
  std::uint32_t microbatch = 0;
  bool keep = false;           // the activations, since no recompute will follow
  payload input{}, targets{};  // tokens or an activation; targets in the last stage
  struct result {
    payload activation{};             // of the last stage none, but:
    double loss = 0;                  // mean over the micro-batch's tokens
    std::vector<named_value> more{};  // of programs
  };
};

/// Restores everything that backward needs; no effect if it was kept.
struct recompute {
  std::uint32_t microbatch = 0;
  using result = no_result;
};

struct backward {
  std::uint32_t microbatch = 0;
  payload gradient{};  // that of the activation; none in the last stage
  // No other one comes before the sum. A device may start its all-reduce during it, and then
  // rejects operations on gradients until the sum was requested. Peers need not do the same.
  bool last = false;
  struct result {
    payload gradient{};  // of the input; none in the first stage
  };
};

/// The sums over all micro-batches since the last update.
struct gradients {
  bool take = false;  // the device's sums are zero afterwards
  using result = own_and_tied;
};

/// Micro-batches in flight and gradients are forgotten, also after an operation has failed. Weights
/// stay.
struct reset {
  using result = no_result;
};

/// AdamW with scale x gradients.
struct update {
  own_and_tied sums{};  // empty: the device's own
  double scale = 1;     // 1 / number of micro-batches
  struct result {
    double squared_norm = 0;       // of the scaled gradients, each parameter counted once
    std::uint64_t peak_bytes = 0;  // of programs: the largest use of memory so far
    bool skipped = false;          // of programs: the norm is not finite, so nothing was changed
  };
};

/// Creates a group of a device and its peers in other pipelines, which all-reduce.
struct make_communicator_id {
  std::uint32_t rank = 0, size = 1;
  struct result {
    payload id{};  // of rank 0
  };
};

/// Waits for all members.
struct join_communicator {
  payload id{};
  std::uint32_t rank = 0, size = 1;
  using result = no_result;
};

/// Own gradients become the sums over all members, in the first stage the tied ones, too.
struct sum {
  std::optional<payload> tied{};  // of the last stage, to be added first
  struct result {
    std::optional<payload> tied{};  // if another stage has the rest
  };
};

/// Writes the stage's file of the checkpoint into a directory.
struct save {
  std::string path{};
  bool whole = false;  // with all that the stage itself loads: a tied embedding that another has
  using result = no_result;
};

/// From a directory with a checkpoint of any number of stages.
struct load {
  std::string path{};
  using result = no_result;
};

/// For tests.
struct weights {
  using result = own_and_tied;
};

/// A hash of all weights, of which replicas of a stage have equal ones.
struct digest {
  struct result {
    std::uint64_t weights = 0;  // XXH3-64 of own and then tied ones, as 32-bit floats
  };
};

/// For a member_device: all that its file of a checkpoint has.
struct values {
  struct result {
    payload weights{}, first_moments{}, second_moments{};  // each own and then tied
    std::uint64_t steps = 0;                               // updates done
  };
};

/// For a program_device.
struct norms {
  own_and_tied sums{};          // as of update
  std::uint64_t iteration = 0;  // completed before
  struct result {
    std::vector<double> squared{};  // not scaled; one for each layer
  };
};

template <class What, class... Kinds>
inline constexpr bool is_one_of = (std::is_same_v<What, Kinds> || ...);

/// Those by which a micro-batch goes through a stage.
template <class What>
inline constexpr bool is_pass = is_one_of<What, forward, recompute, backward>;

/// Those of a device and its peers in other pipelines.
template <class What>
inline constexpr bool is_collective = is_one_of<What, make_communicator_id, join_communicator, sum>;

}  // namespace operations

/// The part of an operation for programs alone (gpu/worker).
struct layered {
  std::uint64_t iteration = 0;  // completed before; a program's data and masks depend on it
  bool evaluate = false;        // forward: on held-out data, and nothing is kept or changed
  // forward: of the micro-batch over all pipelines, or of the held-out ones; none: by the device's
  // own pipeline.
  std::optional<std::uint64_t> number{};
  // update: of all stages' gradients, not scaled, for clipping by their norm.
  std::optional<double> squared_norm{};
};

/// An operation of any stage. A device's overloads for its kinds are found by std::visit.
struct operation {
  std::variant<operations::forward, operations::recompute, operations::backward,
               operations::gradients, operations::reset, operations::update,
               operations::make_communicator_id, operations::join_communicator, operations::sum,
               operations::save, operations::load, operations::weights, operations::digest>
      what{};
  bool timed = false;  // passes and update: measure compute_s
  layered program{};
};

/// Result of an operation.
struct outcome {
  std::variant<operations::no_result, operations::forward::result, operations::backward::result,
               own_and_tied, operations::update::result, operations::make_communicator_id::result,
               operations::sum::result, operations::digest::result, operations::values::result,
               operations::norms::result>
      what{};
  double begin_s = 0, end_s = 0;  // on the device's own clock
  // The time of a timed operation's kernels, without copies from and to the host.
  double compute_s = 0;  // 0: the device cannot measure it

  /// REQUIRES: it is of an operation of this kind.
  template <class What>
  typename What::result& of() {
    auto* result = std::get_if<typename What::result>(&what);
    TROUPE_INVARIANT(result, "a device's result is of the operation that it was given");
    return *result;
  }
};

}  // namespace troupe::gpu
