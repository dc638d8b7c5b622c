#include "actors/protocol/host_threads.hpp"
#include "actors/worlds/wiring.hpp"
#include "runtime/host/real_clock.hpp"
#include "security/keyed.hpp"

using namespace troupe;
using namespace troupe::test;

// A real gateway between hosts that send anything, over encrypted connections.

namespace {

struct sent_frame {
  std::uint16_t type = 0;
  address from = 0, to = 0;
  auto operator<=>(const sent_frame&) const = default;
};

class gateway_world {
 public:
  gateway_world() {
    controller_ = must_open(keys_.host("controller"));
    controller_->listen(recorder(controller_));
    auto o = keys_.host("dc1/gateway", controller_->endpoint());
    runtime::host h;
    h.self = dc1;
    h.incarnation = 1;
    h.clock = std::make_shared<runtime::real_clock>();
    h.net = gateway_ = must_open(o);
    actors_ = actors::start_gateway(system_, h, std::make_shared<const cluster>(two_datacenters()),
                                    false);
    auto other = keys_.host("dc2/gateway", controller_->endpoint());
    other.links = {{dc1, gateway_->endpoint(), 2}};
    dc2_ = must_open(other);
    dc2_->listen(recorder(dc2_));
    for (const auto* name : {"a-0", "a-1"}) {
      auto n = keys_.host(name, gateway_->endpoint());
      n.connections = 2;
      nodes_.push_back(must_open(n));
      nodes_.back()->listen(recorder(nodes_.back()));
    }
    REQUIRE(gateway_->wait_until_greeted(long_s));
    REQUIRE(dc2_->wait_until_greeted(long_s));
    for (const auto& n : nodes_) REQUIRE(n->wait_until_greeted(long_s));
  }
  ~gateway_world() {
    for (const auto& a : actors_) caf::anon_send_exit(a, caf::exit_reason::kill);
    nodes_.clear();
    dc2_.reset();
  }

  /// Sends all types from `from` to every host, over a connection, and waits until the
  /// gateway has looked at them all.
  void log_everything(zeromq_transport& over, address claimed, address honest) {
    for (const address to : {controller_address, a0, a1})
      for_each_message([&](const message& m) {
        if (claimed == to || type_of(m) <= last_session_type) return;
        REQUIRE(eventually([&] { return send(over, encode(claimed, to, m)); }));
      });
    // Valid messages follow invalid ones on the same connection.
    ++sentinel_;
    const bool upstream = honest == controller_address;
    const address to = upstream ? a0 : is_node(two_datacenters(), honest) ? controller_address : a0;
    message last = node_report{};
    if (upstream) {
      node_orders o;
      o.sequence = sentinel_;
      last = o;
    } else if (honest == dc2) {
      last = stage_report{};
    }
    const auto before = count({type_of(last), honest == dc2 ? b0 : honest, to});
    REQUIRE(eventually([&] { return send(over, encode(honest == dc2 ? b0 : honest, to, last)); }));
    REQUIRE(eventually([&] {
      return count({type_of(last), honest == dc2 ? b0 : honest, to}) > before;
    }));
    sentinels_[{type_of(last), honest == dc2 ? b0 : honest, to}] += 1;
  }

  int count(const sent_frame& f) const {
    const std::lock_guard guard{mutex_};
    const auto at = seen_.find(f);
    return at == seen_.end() ? 0 : at->second;
  }
  int without_sentinels(const sent_frame& f) {
    return count(f) - (sentinels_.contains(f) ? sentinels_[f] : 0);
  }

  zeromq_transport& controller() { return *controller_; }
  zeromq_transport& other_gateway() { return *dc2_; }
  zeromq_transport& node(std::size_t i) { return *nodes_[i]; }

 private:
  static bool send(zeromq_transport& over, frame f) { return over.send(dc1, std::move(f)); }

  runtime::transport::receiver recorder(const std::shared_ptr<zeromq_transport>& net) {
    return [this, me = net.get()](const frame& f) {
      me->handled(f);
      const auto e = peek(f.header.bytes());
      const std::lock_guard guard{mutex_};
      if (e) ++seen_[{e->type, e->from, e->to}];
    };
  }

  key_directory keys_;
  mutable std::mutex mutex_;
  std::map<sent_frame, int> seen_, sentinels_;
  std::uint64_t sentinel_ = 0;
  actors::host_threads config_;
  caf::actor_system system_{config_};
  std::vector<caf::actor> actors_;
  std::shared_ptr<zeromq_transport> controller_, gateway_, dc2_;
  std::vector<std::shared_ptr<zeromq_transport>> nodes_;
};

}  // namespace

TEST_CASE(
    "a gateway forwards only frames that the table allows, from hosts behind the connection") {
  gateway_world w;
  const auto c = two_datacenters();
  const std::vector<address> all{controller_address, dc1, dc2, a0, a1, b0, client_1};
  struct connection {
    zeromq_transport& over;
    address honest;
    std::set<address> behind;
  };
  const connection connections[] = {{w.node(0), a0, {a0}},
                                    {w.node(1), a1, {a1}},
                                    {w.other_gateway(), dc2, {dc2, b0}},
                                    {w.controller(), controller_address, {0, client_1}}};
  for (const auto& over : connections)
    for (const auto from : all) w.log_everything(over.over, from, over.honest);
  for (const auto from : all)
    for (const address to : {controller_address, a0, a1})
      for_each_message([&](const message& m) {
        const auto type = type_of(m);
        // The gateway's own statements are no frames that it passed on; one that it gets in its own
        // name would be.
        if (from == to || (from == dc1 && type == type_id<gateway_report>)) return;
        const bool comes_over_one =
            std::any_of(std::begin(connections), std::end(connections),
                        [&](const connection& x) { return x.behind.contains(from); });
        bool wanted =
            type > last_session_type && comes_over_one &&
            expected_in_table(name_of(type), *actors::role_of(c, from), *actors::role_of(c, to));
        // Prefills stay in a datacenter: dc2 and its node are in another one than the receivers.
        if (stays_in_datacenter(name_of(type)) && (from == dc2 || from == b0)) wanted = false;
        // To the controller this gateway forwards only its own nodes' frames.
        if (to == controller_address && from != a0 && from != a1) wanted = false;
        INFO(name_of(type) << " from " << host_name(c, from) << " to " << host_name(c, to));
        REQUIRE(eventually([&] {
          return w.without_sentinels({type, from, to}) >= (wanted ? 1 : 0);
        }));
        CHECK(w.without_sentinels({type, from, to}) == (wanted ? 1 : 0));
      });
}
