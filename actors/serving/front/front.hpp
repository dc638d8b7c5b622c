#pragma once

#include <functional>
#include <memory>

#include <caf/all.hpp>

#include "actors/protocol/permissions.hpp"
#include "actors/protocol/protocol.hpp"
#include "actors/serving/front/completions.hpp"
#include "actors/serving/front/front_requests.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// To a front, of its own host.
struct submit_completion {
  std::uint64_t number = 0;
  model_prompt prompt;
  completion_listener listener;
};
struct cancel_completion {
  std::uint64_t number = 0;
  bool enough = false;  // otherwise its client has left
};

using front_actor = caf::typed_actor<caf::reacts_to<arrived>, caf::reacts_to<submit_completion>,
                                     caf::reacts_to<cancel_completion>, caf::reacts_to<tick>>;

/// The actor of a front: the requests of its host, and its place in the network.
class front_state {
 public:
  front_state() = default;
  void start(front_actor::pointer self, runtime::host h, shared_cluster c, completions local,
             std::function<void()> on_removed);
  void on_frame(const frame& f);
  void on_submit(const submit_completion& s);
  void on_cancel(const cancel_completion& c);
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

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::submit_completion)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::cancel_completion)
