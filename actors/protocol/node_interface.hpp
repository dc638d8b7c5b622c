#pragma once

#include <cstdint>
#include <string>

#include <caf/all.hpp>

#include "actors/protocol/protocol.hpp"
#include "messages/wire/stage.hpp"
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
};

/// An event of a trainer, for the lease's log.
struct training_event {
  lease_id lease = 0;
  std::string sentence;
};

/// A decoder cannot begin, or cannot continue.
struct serving_over {
  lease_id lease = 0;
  std::string detail;
};

using node_actor = caf::typed_actor<caf::reacts_to<arrived>, caf::reacts_to<local_frame>,
                                    caf::reacts_to<programs_changed>, caf::reacts_to<work_done>,
                                    caf::reacts_to<training_over>, caf::reacts_to<training_event>,
                                    caf::reacts_to<serving_over>, caf::reacts_to<tick>>;

}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::local_frame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::programs_changed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::work_done)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::training_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::training_event)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::serving_over)
