#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "actors/protocol/protocol.hpp"
#include "messages/domain/stage_name.hpp"
#include "messages/wire/work.hpp"

// The interface of the node actor. It is here and not in node/ because the actors that a node runs
// (trainer, stages, decoders, guests) report to it, and node/ is above them.

namespace troupe::actors {

/// A frame from an actor of the same host.
struct local_frame {
  frame what;
};

/// A program of this node has started or ended.
struct programs_changed {};

/// The timer of simulated work: it has ended.
struct work_done {
  lease_id lease = 0;
  std::uint64_t start = 0;  // distinguishes it from an earlier work of the same lease
};

/// A stage or the trainer of a lease has ended, or cannot continue.
struct training_over {
  lease_id lease = 0;
  stage_name who;  // a stage; of the trainer only the lease counts
  bool trainer = false;
  part_report::state how = part_report::state::succeeded;
  std::string detail;
  double peak_bytes = 0;           // of the trainer: of any stage's device; 0: unknown
  std::optional<end_word> word{};  // none: what `how` implies
};

/// An event of a trainer, for the lease's log.
struct training_event {
  lease_id lease = 0;
  std::string sentence;
};

/// A decoder cannot begin, or cannot continue; or it has drained.
struct serving_over {
  lease_id lease = 0;
  std::string detail;  // why; empty: it has drained
};

/// The node's process is to end: its work gets its grace, and nothing more begins.
struct end_node {};

using node_actor = actor_of<arrived, local_frame, programs_changed, work_done, training_over,
                            training_event, serving_over, end_node, tick>;

}  // namespace troupe::actors
