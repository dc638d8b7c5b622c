#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "runtime/host/shared_cluster.hpp"
#include "runtime/host/transport.hpp"

namespace troupe::runtime {

/// Another gateway that a gateway greets (greets() in address.hpp).
struct zeromq_link {
  address to = 0;
  std::string endpoint;
  std::uint32_t connections = 1;
};

/// One process's place in the network.
struct zeromq_options {
  /// Who this is: host_name() of the controller, a gateway, a node or a front; a client's name is
  /// free.
  std::string name;
  bool client = false;
  /// As loaded, until a host's upstream has welcomed it with the controller's; a client may leave
  /// it empty.
  shared_cluster cluster;
  /// Called by the transport's thread once a host's upstream has welcomed it: its address and the
  /// cluster are final. It calls listen().
  std::function<void()> on_admitted{};
  /// The controller's: no peer is welcomed before its journal's cluster, which has a version, is in
  /// `cluster`.
  bool waits_for_cluster = false;
  /// Larger after every start; a client takes a random number.
  std::uint64_t incarnation = 0;
  /// Where others greet this host: tcp://address:port or ipc://path; a port may be `*`. Empty:
  /// nowhere. At a node these are nodes of its datacenter, with tensors, which otherwise come
  /// through the gateway; the address `*` stands for the one that its gateway sees.
  std::string listen;
  /// Whom this host greets: a node or front its gateway, a gateway and a client the controller.
  /// Empty: none.
  std::string upstream;
  /// TCP connections to the upstream, up to 64.
  std::uint32_t connections = 1;
  /// A gateway's links to others, beside the upstream; on_admitted adds more.
  std::vector<zeromq_link> links;
  /// Directory of keys (keys.hpp). Given, tcp is encrypted and only listed keys are let in; ipc
  /// never is.
  std::string keys;
  /// A client's key in that directory; empty: default_client_key().
  std::string client_key;
  /// Credit: frames and bytes on the way that the receiver has not handled yet, a connection.
  std::uint32_t window_frames = 1024;
  std::size_t window_bytes = 32u << 20;
  /// Bytes that a client's connection may hold in ZeroMQ, unread; bytes that may wait beyond that;
  /// and the bound of both for all clients together. More is dropped.
  std::size_t client_unsent_bytes = 8u << 20;
  std::size_t client_queue_bytes = 16u << 20;
  std::size_t clients_bytes = 128u << 20;
  /// Frames and bytes that may wait for credit beyond that.
  std::size_t queue_frames = 16384;
  std::size_t queue_bytes = 256u << 20;
  /// Clients that are connected at once; one more takes the place of the one that greeted longest
  /// ago.
  std::size_t max_clients = 4096;
  /// Seconds between greetings until one is answered. The other pauses are multiples of it: after a
  /// refusal 2 (and twice as long after each other, up to 60), for a direct connection 3, until
  /// ZeroMQ's own attempts to connect are given up 10.
  double greeting_s = 0.5;
};

/// Frames that have passed, and dropped ones by reason.
struct zeromq_counts {
  std::uint64_t sent = 0;         // frames handed to the network
  std::uint64_t received = 0;     // frames handed to the receiver
  std::uint64_t no_route = 0;     // no host of that address is connected
  std::uint64_t full = 0;         // too much was waiting for credit
  std::uint64_t lost = 0;         // was waiting for a peer that went away
  std::uint64_t malformed = 0;    // came in and was no frame of this protocol
  std::uint64_t strangers = 0;    // came from one who had not greeted, or in another's name
  std::uint64_t over_credit = 0;  // came from one who ignored its credit
};

/// The transport over ZeroMQ sockets: a ROUTER where others connect, DEALERs to the upstream, to
/// other gateways and to nodes of the same datacenter, and one thread that owns them all.
/// docs/wire.md describes the frames.
///
/// Nothing is greeted, sent or received before listen(). The destructor stops the thread; what was
/// already sent has half a second to leave.
class zeromq_transport : public transport {
 public:
  /// Binds and connects. Refuses an unknown name, an endpoint that cannot be used, bad keys.
  static expected<std::shared_ptr<zeromq_transport>> open(zeromq_options options);

  /// Greets the upstream; on_admitted then calls listen().
  void begin() { listen({}); }
  /// In on_admitted: connects to another gateway.
  virtual expected<void> add_link(const zeromq_link& l) = 0;

  /// Has the upstream welcomed this host, on every connection?
  virtual bool greeted() const = 0;
  /// Blocks the caller until then. The reason: the refusal, or that there was no answer.
  virtual expected<void> wait_until_greeted(double seconds) const = 0;
  /// Why the upstream refuses this host; none while it has not refused.
  virtual std::optional<reason> refused() const = 0;

  /// Where this host listens, with the real port; empty: nowhere.
  virtual std::string endpoint() const = 0;
  virtual zeromq_counts counts() const = 0;
};

}  // namespace troupe::runtime
