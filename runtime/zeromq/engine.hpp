#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include <zmq.hpp>

#include "messages/wire/message.hpp"
#include "messages/wire/session.hpp"
#include "runtime/host/log_limiter.hpp"
#include "runtime/zeromq/keys.hpp"
#include "runtime/zeromq/lane.hpp"
#include "runtime/zeromq/pending.hpp"
#include "runtime/zeromq/socket_monitor.hpp"
#include "runtime/zeromq/transport.hpp"
#include "runtime/zeromq/zap.hpp"

// The sockets and the thread behind zeromq_transport. engine.cpp moves frames, greeting.cpp
// authenticates peers and handles reconnection, direct_links.cpp connects nodes of one datacenter.
//
// Two kinds of threads:
//
//   any thread     send() appends to a lane's queue, handled() returns credit; both under mutex_
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

/// Where others reach a node that listens at `endpoint`: if that names no address, at the one from
/// which its connection came. Empty: it cannot be used.
std::string reachable_endpoint(const std::string& endpoint, std::string_view peer_address);

class zeromq_transport::engine {
 public:
  explicit engine(zeromq_options options);
  ~engine();
  engine(const engine&) = delete;

  expected<void> open();
  void start(receiver r);
  expected<void> add_link(const zeromq_link& l);
  bool send(address to, frame f, std::uint32_t lane);
  void handled(const frame& f);

  address self() const { return self_; }
  const std::string& endpoint() const { return endpoint_; }
  bool greeted() const;
  bool upstream_open() const;
  expected<void> wait_until_greeted(double seconds) const;
  std::optional<reason> refused() const;
  zeromq_counts counts() const;

 private:
  using steady = std::chrono::steady_clock;
  static constexpr std::uint32_t max_connections = 64;  // between two hosts

  /// A socket to the upstream, another gateway or another node, and ZeroMQ's events about it.
  struct dealer {
    zmq::socket_t socket;
    std::unique_ptr<socket_monitor> monitor;
    std::shared_ptr<lane> over;
    std::string endpoint;
    steady::time_point next_hello{};
    steady::duration backoff{};  // after a refusal; doubles with each
    // When to connect again ourselves: ZeroMQ stops reconnecting after a protocol error, which
    // includes a refused key. max(): ZeroMQ reconnects.
    steady::time_point reconnect_at = steady::time_point::max();
    bool refused = false;  // permanently
  };
  /// The host that is, or was, connected under an address.
  struct peer {
    std::uint64_t incarnation = 0;
    std::uint64_t last_greeting = 0;  // by greetings_
    std::vector<std::shared_ptr<lane>> lanes;
    std::string endpoint;  // a node's, at its gateway: where it listens for tensors
  };
  /// A connection for tensors to another node of the datacenter (direct_links.cpp).
  struct direct_link {
    enum class state : std::uint8_t { finding, greeting, open, unusable };
    state is = state::finding;
    bool waits = true;            // tensors are queued until it is open: it has never failed
    steady::time_point until{};   // finding, greeting: timeout; unusable: the next attempt
    steady::time_point ask_at{};  // finding: the next query to the gateway
    steady::duration pause{};     // after a failure; doubles with each
    std::string endpoint;         // finding: the gateway's answer
    std::shared_ptr<lane> over{};
  };
  /// Frames handled since the last credit message.
  struct credit_grant {
    std::shared_ptr<inbox> in;
    std::uint32_t frames = 0;
  };
  enum count {
    sent,
    received,
    no_route,
    full,
    lost,
    malformed,
    strangers,
    over_credit,
    count_kinds
  };

  // Opening.
  expected<void> find_self();
  expected<void> open_router();
  expected<void> open_dealers();
  expected<void> open_link(const zeromq_link& l);
  void set_up(zmq::socket_t& socket, bool tensors, bool direct) const;
  expected<std::unique_ptr<dealer>> make_dealer(std::shared_ptr<lane> over,
                                                const std::string& endpoint,
                                                std::uint32_t connection,
                                                std::uint32_t connections);
  void list_poll_items();
  std::unique_ptr<socket_monitor> watch(zmq::socket_t& socket, const std::string& name);
  bool encrypts(const std::string& endpoint) const;
  std::string routing_id_of(std::uint32_t connection, std::uint32_t connections) const;

  // The thread.
  void run();
  void poll_monitors();
  void wait_for_work();
  void wake();
  bool take_queued();
  void flush(lane& l);
  bool write(lane& l, const frame& f);
  bool write(lane& l, zmq::message_t header, zmq::message_t body);
  bool may_write(const lane& l) const;
  void mark_blocked(const lane& l);
  void flush_blocked();
  void trim_memory();
  void drop_pending();
  bool enqueue(address hop, frame f, std::uint32_t lane);
  bool enqueue(const std::shared_ptr<lane>& l, frame f);
  bool room_for(const lane& l, std::size_t bytes) const;
  void send_credits();
  bool drain_router();
  bool drain_dealer(dealer& d);
  void on_batch(lane& l, zmq::message_t body);
  bool is_valid_source(const lane& l, const envelope& e) const;
  void deliver(lane& l, frame f);
  void discard(lane& l, count why, std::size_t bytes);
  void on_credit(lane& l, const zmq::message_t& header);

  // Direct links between nodes.
  std::shared_ptr<lane> direct_lane(address to);
  void update_direct_links();
  direct_link* link_of(const lane& l);
  lane* upstream_lane();
  void on_node_endpoint(const node_endpoint& m);
  void connect(direct_link& d);
  void on_direct_welcome(const lane& l);
  void on_direct_failure(const lane& l, std::string_view why);
  void mark_unusable(direct_link& d, std::string_view why);
  void close_direct_sockets();
  steady::duration until_direct_links() const;
  void remember_endpoint(address who, const hello& h, std::string_view peer_address);
  void on_find_node(lane& l, const zmq::message_t& header);

  // Greetings, on the thread.
  void on_unknown_sender(const zmq::message_t& id, const zmq::message_t& header);
  void greet(dealer& d);
  void greet_when_due();
  void reconnect(dealer& d);
  steady::duration until_greeting() const;
  void on_hello(zmq::message_t& id, zmq::message_t& header);
  expected<address> admit(const hello& h, std::string_view key_name, const std::string& id);
  caller caller_with(std::string_view key_name) const;
  bool has_its_key(const lane& l, zmq::message_t& header) const;
  bool take_place(const welcome& w);
  bool knows_cluster() const;
  bool admit_held();
  expected<address> admit_client(const std::string& id, std::string_view key_name);
  expected<std::shared_ptr<lane>> assign_lane(address who, std::uint64_t incarnation,
                                              const std::string& id);
  void on_greeting_reply(dealer& d, const message& m);
  void on_refusal(dealer& d, reason why);
  void on_handshake_failure(dealer& d, bool for_good);
  void drop_broken();
  void reset(const std::shared_ptr<lane>& l);
  void watch_dealer(dealer& d);
  void watch_router();
  void reply(const std::string& id, address to, const message& m);
  /// So many times as long as between two greetings.
  steady::duration greetings(double n) const {
    return std::chrono::duration_cast<steady::duration>(
        std::chrono::duration<double>(n * options_.greeting_s));
  }
  double now_s() const {
    return std::chrono::duration<double>(steady::now().time_since_epoch()).count();
  }
  std::shared_ptr<inbox> fresh_inbox(const std::shared_ptr<lane>& l) const;
  lane* lane_of(const zmq::message_t& id);
  void add(count c, std::uint64_t n = 1) { counts_[c].fetch_add(n, std::memory_order_relaxed); }

  zeromq_options options_;
  host_entry entry_;         // a host's own, by its file
  std::uint64_t token_ = 0;  // secret: part of routing ids, so that nobody can guess another's
  std::atomic<address> self_{first_client_address};
  address upstream_ = controller_address;
  std::string endpoint_;
  std::optional<key_ring> keys_;
  receiver receiver_;
  std::array<std::atomic<std::uint64_t>, count_kinds> counts_{};

  zmq::context_t context_;
  std::optional<zap_handler> zap_;
  std::optional<zmq::socket_t> router_;
  std::unique_ptr<socket_monitor> router_monitor_;
  std::vector<std::unique_ptr<dealer>> dealers_;
  int wake_fd_ = -1;
  std::vector<pollfd> items_;  // wake_fd_, those that poll_monitors() checks in its order, the rest
  unsigned monitors_ = 0;      // monitor sockets created so far
  unsigned rounds_ = 0;

  // Used by the engine's thread only.
  std::unordered_map<std::string, std::shared_ptr<lane>> by_id_;
  bool admitted_ = false, admission_due_ = false;  // by the upstream; on_admitted to be called
  std::map<std::string, std::pair<zmq::message_t, zmq::message_t>> held_;  // hellos until then
  std::map<address, std::uint64_t> newest_;  // incarnations of hosts that have greeted
  std::string last_id_;
  lane* last_lane_ = nullptr;
  std::uint64_t greetings_ = 0;
  address next_client_ = first_client_address + 1;
  std::size_t clients_ = 0;
  std::vector<std::shared_ptr<lane>> lanes_to_flush_;
  std::vector<credit_grant> credits_to_send_;
  std::vector<std::string> broken_;   // routing ids that ZeroMQ no longer knows
  std::vector<std::string> blocked_;  // routing ids whose ZeroMQ queue is full
  std::shared_ptr<unsent_bytes> clients_unsent_ = std::make_shared<unsent_bytes>();
  pending_connections pending_;
  log_limiter refusals_;
  bool trim_due_ = false;
  steady::time_point trimmed_{}, pending_check_at_{};

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::unordered_map<address, peer> peers_;
  std::map<address, direct_link> direct_;
  steady::time_point direct_update_at_ = steady::time_point::max();
  std::vector<std::shared_ptr<lane>> dirty_;
  std::vector<credit_grant> credits_;
  std::optional<reason> refused_;
  std::string trouble_;                   // why the last handshake failed
  std::size_t clients_queued_bytes_ = 0;  // of all clients
  bool sleeping_ = false;
  bool stopping_ = false;

  bool started_ = false;
  std::thread thread_;
};

}  // namespace troupe::runtime
