#pragma once

#include <map>

#include "actors/node/node_context.hpp"
#include "actors/serving/decoder/interface.hpp"
#include "messages/wire/message.hpp"
#include "messages/wire/work.hpp"

namespace troupe::actors {

/// The node's side of serving: spawns the decoders that are ordered and dispatches messages to
/// them. Owned by the node actor, which receives a serving_over at a decoder's end.
class serving_supervisor {
 public:
  explicit serving_supervisor(const node_context& n) : node_{n} {}

  /// Starts the decoder of an order with `serve`. It loads its model on a thread of its own.
  void begin(const work_order& w);
  /// Its decoder ends its requests, and then itself. Unknown leases are ignored.
  void stop(lease_id lease);
  /// Its decoder takes no more requests; a serving_over follows once it has none. Unknown leases
  /// are ignored.
  void drain(lease_id lease);

  /// False: the message is not about a decoder, and m is unchanged. Messages about decoders that
  /// are not here are answered: their requests have failed, and their prefills are not needed.
  bool on_message(address from, message& m, const payload& body);

 private:
  template <class T>
  bool to_decoder(lease_id lease, address from, T& m, const payload& body);
  void answer_for_lost(address to, const request_name& n, lease_id lease) const;

  node_context node_;
  std::map<lease_id, decoder_actor> decoders_;
};

}  // namespace troupe::actors
