#pragma once

#include <functional>
#include <map>
#include <string>

#include "actors/protocol/node_interface.hpp"
#include "actors/serving/decoder/interface.hpp"
#include "messages/wire/message.hpp"
#include "messages/wire/work.hpp"
#include "runtime/host/shared_cluster.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

/// The node's side of serving: spawns the decoders that are ordered and dispatches messages to
/// them. Owned by the node actor, which receives a serving_over at a decoder's end.
class serving_supervisor {
 public:
  /// `backend`: the name of this node's device kind.
  void start(node_actor::pointer self, runtime::host h, shared_cluster c, std::string backend);

  /// Starts the decoder of an order with `serve`. It loads its model on a thread of its own.
  /// `slowdown`: factor for simulated devices.
  void begin(const work_order& w, std::function<double()> slowdown);
  /// Its decoder ends its requests, and then itself. Unknown leases are ignored.
  void stop(lease_id lease);

  /// False: the message is not about a decoder, and m is unchanged. Messages about decoders that
  /// are not here are answered: their requests have failed, and their prefills are not needed.
  bool on_message(address from, message& m, const payload& body);

 private:
  template <class T>
  bool to_decoder(lease_id lease, address from, T& m, const payload& body);
  void answer_for_lost(address to, const request_name& n, lease_id lease) const;

  node_actor::pointer self_ = nullptr;
  runtime::host host_;
  shared_cluster cluster_;
  std::string backend_;
  std::map<lease_id, decoder_actor> decoders_;
};

}  // namespace troupe::actors
