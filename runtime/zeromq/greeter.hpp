#pragma once

#include <condition_variable>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <zmq.hpp>

#include "runtime/zeromq/connection_table.hpp"
#include "runtime/zeromq/direct_links.hpp"
#include "runtime/zeromq/frame_pump.hpp"
#include "runtime/zeromq/pending.hpp"
#include "runtime/zeromq/sockets.hpp"

namespace troupe::runtime {

/// Authentication of peers and reconnection: which host is at the other end of a connection, and
/// the consequences when that changes.
///
/// A connection starts with hello from the side that connected and welcome from the other. Credit
/// starts from nothing at every greeting, so that frames lost with a connection are not waited for.
/// A router that receives a frame of an unknown peer (the router was restarted) refuses it with
/// "unknown", which makes the peer greet again.
///
/// A class of its own because it alone decides whom to trust: everything after a greeting relies on
/// the lane's peer and key name that it has set. Functions run on the engine's thread, but for the
/// last group.
class greeter {
 public:
  using steady = host_state::steady;

  greeter(host_state& host, connection_table& table, sockets& all, frame_pump& pump,
          direct_links& links)
      : host_{host}, table_{table}, sockets_{all}, pump_{pump}, links_{links} {}

  // The side that connected.
  void greet_when_due();
  steady::duration until_greeting() const;
  void on_reply(dealer& d, const message& m);
  void on_refusal(dealer& d, reason why);
  void watch_dealer(dealer& d);

  // The side that listens.
  void on_hello(zmq::message_t& id, zmq::message_t& header);
  void on_unknown_sender(const zmq::message_t& id, const zmq::message_t& header);
  /// Does a frame that came over this lane carry the key that greeted on it?
  bool has_its_key(const lane& l, zmq::message_t& header) const;
  void watch_router();
  /// Closes connections that exceed the limits before greeting.
  void cut_pending();
  bool has_pending() const { return !pending_.empty(); }

  /// Acts on an admission, between two rounds, as that may open sockets. False: nothing was due.
  bool admit_held();
  bool has_held() const { return !held_.empty(); }

  // Any thread, which may hold the lock only for the first.
  /// Has the upstream welcomed this host, on every connection? Under the lock.
  bool upstream_open() const;
  expected<void> wait_until_greeted(double seconds) const;
  std::optional<reason> refused() const;

 private:
  void greet(dealer& d);
  void reconnect(dealer& d);
  void on_welcome(dealer& d, const welcome& w);
  bool take_place(const welcome& w);
  void on_handshake_failure(dealer& d, bool for_good);

  void reply(const std::string& id, address to, const message& m);
  bool knows_cluster() const;
  expected<address> admit(const hello& h, std::string_view key_name, const std::string& id);
  expected<address> admit_host(const hello& h) const;
  expected<address> admit_client(std::string_view key_name, const std::string& id);
  caller caller_with(std::string_view key_name) const;

  host_state& host_;
  connection_table& table_;
  sockets& sockets_;
  frame_pump& pump_;
  direct_links& links_;

  bool admitted_ = false, admission_due_ = false;  // by the upstream; on_admitted to be called
  std::map<std::string, std::pair<zmq::message_t, zmq::message_t>> held_;  // hellos until then
  pending_connections pending_;
  steady::time_point pending_check_at_{};

  mutable std::condition_variable changed_;  // of the upstream's answer
  std::optional<reason> refused_;            // under the lock, as the next
  std::string trouble_;                      // why the last handshake failed
};

}  // namespace troupe::runtime
