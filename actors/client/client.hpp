#pragma once

#include <map>

#include "actors/protocol/protocol.hpp"
#include "actors/protocol/request.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

using client_actor = caf::typed_actor<caf::replies_to<ask>::with<answer>, caf::reacts_to<arrived>,
                                      caf::reacts_to<tick>>;

/// The client side of every request: numbers it, sends it, and retries until it is answered or the
/// timeout has passed.
class client_state {
 public:
  client_state() = default;
  void start(client_actor::pointer self, runtime::host h);
  caf::result<answer> on_ask(const ask& a);
  void on_frame(const frame& f);
  void on_tick();

 private:
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

client_actor::behavior_type client(client_actor::stateful_pointer<client_state> self,
                                   runtime::host h);

}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::ask)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::answer)
