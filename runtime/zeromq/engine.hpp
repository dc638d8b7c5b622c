#pragma once

#include <optional>
#include <string>
#include <thread>

#include <zmq.hpp>

#include "runtime/zeromq/connection_table.hpp"
#include "runtime/zeromq/direct_links.hpp"
#include "runtime/zeromq/frame_pump.hpp"
#include "runtime/zeromq/greeter.hpp"
#include "runtime/zeromq/host_state.hpp"
#include "runtime/zeromq/sockets.hpp"
#include "runtime/zeromq/transport.hpp"

// The thread behind zeromq_transport. Its parts, each of which uses those above it:
//
//   host_state        the options, the host's own address, counters, and the lock
//   connection_table  which lanes lead to which peer
//   sockets           ZeroMQ's ROUTER and DEALER sockets, their keys and monitors
//   frame_pump        queues, credit, and frames to and from the sockets
//   direct_links      tensors between nodes of one datacenter
//   greeter           authentication and reconnection
//   engine            the thread: one round after the other, each frame to the part that handles it
//
// Two kinds of threads:
//
//   any thread     send() appends to a lane's queue, handled() returns credit; both under the lock
//   the engine's   all sockets and everything else: it takes the queues, writes what credit allows,
//                  reads frames, and passes them to the receiver
//
// A lane is one connection to a peer, in both directions:
//
//   connected (hello sent or awaited) -> open (welcome) -> broken
//        ^                                                   |
//        +------------- ZeroMQ reconnects, greet again ------+
//
// A host that listens has one ROUTER socket for all who connect to it, and a DEALER socket for each
// connection that it opens itself. A frame waits in its lane until the lane is open and the peer
// has granted credit: at most window_frames and window_bytes are uncredited, and the queue before
// that is bounded too (send() then returns false). What ZeroMQ has not written to the network is
// counted separately (unsent_bytes), as a peer may grant credit that it does not read.

namespace troupe::runtime {

class zeromq_engine final : public zeromq_transport {
 public:
  explicit zeromq_engine(zeromq_options options) : host_{std::move(options)} {}
  ~zeromq_engine() override;
  zeromq_engine(const zeromq_engine&) = delete;

  /// Binds, and begins to connect. Called once, before anything else.
  expected<void> connect();

  address self() const override { return host_.self; }
  bool send(address to, frame f, std::uint32_t lane) override;
  void listen(receiver r) override;
  expected<void> add_link(const zeromq_link& l) override;
  caller caller_of(const frame& f) const override;
  void handled(const frame& f) override;
  bool greeted() const override;
  expected<void> wait_until_greeted(double seconds) const override {
    return greeter_.wait_until_greeted(seconds);
  }
  std::optional<reason> refused() const override { return greeter_.refused(); }
  std::string endpoint() const override { return host_.endpoint; }
  zeromq_counts counts() const override;

 private:
  using steady = host_state::steady;

  expected<void> find_self();
  void run();
  bool is_stopping() const;
  void look_at_monitors();
  void wait_for_work();
  bool drain_router();
  bool drain_dealer(dealer& d);
  void trim_memory();

  host_state host_;
  connection_table table_{host_};
  sockets sockets_{host_};
  frame_pump pump_{host_, table_, sockets_};
  direct_links links_{host_, table_, sockets_, pump_};
  greeter greeter_{host_, table_, sockets_, pump_, links_};

  unsigned rounds_ = 0;
  steady::time_point trimmed_{};
  bool stopping_ = false;  // under the lock
  bool started_ = false;
  std::thread thread_;
};

}  // namespace troupe::runtime
