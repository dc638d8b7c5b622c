#pragma once

#include <functional>

#include <caf/all.hpp>

#include "actors/protocol/permissions.hpp"
#include "actors/protocol/protocol.hpp"
#include "actors/serving/front/completions.hpp"
#include "actors/serving/front/front_requests.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// Submissions and cancellations of its own host are calls.
using front_actor =
    caf::typed_actor<caf::reacts_to<arrived>, caf::reacts_to<call_now>, caf::reacts_to<tick>>;

/// The actor of a front: the requests of its host, and its connection to the network.
class front_state {
 public:
  front_state() = default;
  void start(front_actor::pointer self, runtime::host h, shared_cluster c, completions local,
             std::function<void()> on_removed);
  void on_frame(const frame& f);
  void on_tick();

 private:
  void set_timer();
  void publish();
  void report();
  void end_if_removed();

  front_actor::pointer self_ = nullptr;
  runtime::host host_;
  shared_cluster cluster_;
  completions local_;
  front_requests requests_;
  frame_guard guard_;
  double tick_at_s_ = 0;  // of the latest timer; earlier ones that come late are ignored
  double report_at_s_ = 0;
  std::uint64_t reports_ = 0;
  std::function<void()> on_removed_;
  double removed_s_ = 0;  // when it noticed that; 0: not yet
};

/// `local` becomes the way to this front. `on_removed` is called, if given, once it was removed
/// from the cluster and its requests have ended, or a program's grace is over.
front_actor::behavior_type front(front_actor::stateful_pointer<front_state> self, runtime::host h,
                                 shared_cluster c, completions local,
                                 std::function<void()> on_removed);

}  // namespace troupe::actors
