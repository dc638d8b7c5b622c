#pragma once

#include <map>

#include "actors/protocol/actor_state.hpp"
#include "actors/protocol/request.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

using client_actor = actor_of<arrived, tick>::extend<caf::replies_to<ask>::with<answer>>;

/// The client side of every request: numbers it, sends it, and retries until it is answered or the
/// timeout has passed.
class client_state {
 public:
  using interface = client_actor;
  static constexpr const char* actor_name = "client";

  void start(client_actor::pointer self, runtime::host h);
  caf::result<answer> on(const ask& a);
  void on(const arrived& a);
  void on(const tick&);

 private:
  void on_frame(const frame& f);

  struct pending {
    message request;
    double until_s = 0;
    caf::typed_response_promise<answer> promise;
  };

  client_actor::pointer self_ = nullptr;
  runtime::host host_;
  std::map<std::uint64_t, pending> pending_;
  bool ticking_ = false;
};

}  // namespace troupe::actors
