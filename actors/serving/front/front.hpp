#pragma once

#include <functional>

#include "actors/protocol/actor_state.hpp"
#include "actors/protocol/permissions.hpp"
#include "actors/serving/front/completions.hpp"
#include "actors/serving/front/front_requests.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// Submissions and cancellations of its own host are calls.
using front_actor = actor_of<arrived, call_now, tick>;

/// The actor of a front: the requests of its host, and its connection to the network.
class front_state {
 public:
  using interface = front_actor;
  static constexpr const char* actor_name = "front";

  /// `local` becomes the way to this front. `on_removed` is called, if given, once it was removed
  /// from the cluster and its requests have ended, or a program's grace is over.
  void start(front_actor::pointer self, runtime::host h, shared_cluster c, completions local,
             std::function<void()> on_removed);
  void on(const arrived& a);
  void on(const tick&);

 private:
  void on_frame(const frame& f);
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

}  // namespace troupe::actors
