#include "conformance/networks.hpp"

#include "runtime/host/wait.hpp"
#include "runtime/virtual/virtual_world.hpp"
#include "runtime/zeromq/transport.hpp"

namespace troupe::runtime::conformance {
namespace {

using test::long_s;
using test::two_datacenters;

class simulated final : public network {
 public:
  simulated() : world_{two_datacenters(), options()} {}

  void start(address a, bool handles) override {
    if (hosts_.contains(a)) return world_.restart(a);
    world_.add_host(a, [this, a, handles](const host& h) {
      listen(a, h.net, handles);
      return std::vector<caf::actor>{};
    });
  }
  void stop(address a) override { world_.crash(a); }
  bool is_simulated() const override { return true; }
  bool eventually(const std::function<bool()>& so) override {
    return world_.run_until(so, world_.now_s() + long_s);
  }

 private:
  static virtual_options options() {
    virtual_options o;
    o.credit_frames = credit_frames;
    return o;
  }
  virtual_world world_;
};

class zeromq final : public network {
 public:
  explicit zeromq(bool ipc) : ipc_{ipc} {}
  ~zeromq() override {
    for (auto& [a, h] : hosts_) h->net.reset();
  }

  void start(address a, bool handles) override {
    zeromq_options o;
    const auto c = two_datacenters();
    o.cluster = c;
    o.client = is_client(a);
    o.name = host_name(c, a);
    o.incarnation = ++incarnations_[a];
    o.window_frames = credit_frames / 2;
    o.queue_frames = credit_frames / 2;
    if (is_node(c, a)) o.connections = node_connections;
    if (!o.client) o.listen = place_of(a);
    if (a != controller) o.upstream = endpoints_.at(next_hop(c, a, controller));
    for (const auto& [other, at] : endpoints_)
      if (is_gateway(c, a) && is_gateway(c, other) && greets(a, other))
        o.links.push_back({other, at, gateway_connections});
    auto t = test::must_open(o);
    if (!is_node(c, a)) endpoints_[a] = t->endpoint();
    listen(a, t, handles);
    if (a == controller) return;
    REQUIRE(t->wait_until_greeted(long_s));
    REQUIRE(t->self() == a);
  }
  void stop(address a) override { hosts_.at(a)->net.reset(); }
  bool eventually(const std::function<bool()>& so) override { return wait_until(so, long_s); }

 private:
  // A host that starts again listens where it did before.
  std::string place_of(address a) const {
    if (const auto known = endpoints_.find(a); known != endpoints_.end()) return known->second;
    return ipc_ ? "ipc://" + dir_ / std::to_string(a) : "tcp://127.0.0.1:*";
  }

  bool ipc_;
  test::scratch dir_;
  std::map<address, std::string> endpoints_;
  std::map<address, std::uint64_t> incarnations_;
};

}  // namespace

std::size_t network::received(address a) const {
  const auto& h = *hosts_.at(a);
  const std::lock_guard guard{h.mutex};
  return h.frames.size();
}

std::vector<frame> network::take(address a) {
  auto& h = *hosts_.at(a);
  const std::lock_guard guard{h.mutex};
  return std::exchange(h.frames, {});
}

void network::listen(address a, std::shared_ptr<transport> net, bool handles) {
  auto& h = hosts_[a];
  h = std::make_shared<host_state>();
  h->net = net;
  // The receiver must not keep the transport that keeps the receiver.
  const std::weak_ptr<host_state> weak = h;
  net->listen([weak, handles, me = net.get()](frame f) {
    const auto state = weak.lock();
    if (!state) return;
    if (handles) me->handled(f);
    const std::lock_guard guard{state->mutex};
    state->frames.push_back(std::move(f));
  });
}

std::unique_ptr<network> make_network(const std::string& kind) {
  if (kind == "simulated") return std::make_unique<simulated>();
  return std::make_unique<zeromq>(kind == "ipc");
}

}  // namespace troupe::runtime::conformance
