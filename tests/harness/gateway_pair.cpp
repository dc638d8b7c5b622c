#include "harness/gateway_pair.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <caf/all.hpp>

#include "actors/worlds/wiring.hpp"
#include "messages/codec/codec.hpp"
#include "messages/domain/address.hpp"
#include "runtime/host/real_clock.hpp"

namespace troupe::harness {

namespace {

using runtime::zeromq_link;
using runtime::zeromq_options;
using runtime::zeromq_transport;

constexpr double patience_s = 10;

std::shared_ptr<cluster> two_datacenters(const wan_link& w) {
  auto c = std::make_shared<cluster>();
  c->name = "pair";
  c->gpus.resize(1);
  c->datacenters = {{"dc1", ""}, {"dc2", ""}};
  c->nodes = {{"a", 0, 0, 1, {}, {}}, {"b", 1, 0, 1, {}, {}}};
  c->wan = {w};
  c->wan[0].a = 0;
  c->wan[0].b = 1;
  return c;
}

}  // namespace

gateway_pair::gateway_pair(gateway_pair_options options)
    : o_{std::move(options)}, cluster_{two_datacenters(o_.wan)} {
  controller_ = open(controller_address, "", {});
  controller_->listen([net = controller_.get()](const frame& f) { net->handled(f); });
  open_gateway(0, {});
  open_gateway(1, {{gateway_address(0), gateways_[0]->endpoint(), 1 + o_.lanes}});
  for (std::uint32_t side = 0; side < 2; ++side)
    inside(side, [&, side] {
      const auto a = node_address(side);
      nodes_[side] = open(a, gateways_[side]->endpoint(), {});
      nodes_[side]->listen([this, net = nodes_[side].get()](const frame& f) {
        net->handled(f);
        auto m = decode(f.header.bytes());
        auto* t = m ? std::get_if<tensor>(&m->second) : nullptr;
        if (t == nullptr) return;
        const std::lock_guard guard{mutex_};
        arrived_.push_back({clock_.s(), std::move(*t), f.body});
      });
    });
  for (const auto& net : {gateways_[0], gateways_[1], nodes_[0], nodes_[1]})
    if (auto ok = net->wait_until_greeted(patience_s); !ok)
      throw std::runtime_error{ok.error().text};
}

gateway_pair::~gateway_pair() {
  for (auto& a : actors_) caf::anon_send_exit(a, caf::exit_reason::kill);
  nodes_ = {};
}

void gateway_pair::inside(std::uint32_t side, const std::function<void()>& what) const {
  o_.inside ? o_.inside(side, what) : what();
}

std::shared_ptr<zeromq_transport> gateway_pair::open(address a, const std::string& upstream,
                                                     std::vector<zeromq_link> links) {
  zeromq_options o;
  o.name = host_name(*cluster_, a);
  o.cluster = *cluster_;
  o.incarnation = 1;
  if (a == controller_address) o.listen = "ipc://" + (directory_ / "controller");
  if (is_gateway(*cluster_, a)) o.listen = o_.listen[a - gateway_address(0)];
  o.upstream = upstream;
  o.links = std::move(links);
  if (is_node(*cluster_, a)) o.connections = 2;
  auto opened = zeromq_transport::open(std::move(o));
  if (!opened) throw std::runtime_error{opened.error().text};
  return *opened;
}

void gateway_pair::open_gateway(std::uint32_t side, std::vector<zeromq_link> links) {
  inside(side, [&] {
    runtime::host h;
    h.self = gateway_address(side);
    h.incarnation = 1;
    h.clock = std::make_shared<runtime::real_clock>();
    gateways_[side] = open(h.self, controller_->endpoint(), std::move(links));
    h.net = gateways_[side];
    for (auto& a : actors::start_gateway(system_, h, cluster_, false)) actors_.push_back(a);
  });
}

bool gateway_pair::send(const tensor& t, const payload& body) {
  const auto a = node_address(0), b = node_address(1);
  return nodes_[0]->send(b, encode(a, b, t, body), runtime::tensor_lane);
}

std::size_t gateway_pair::arrived() const {
  const std::lock_guard guard{mutex_};
  return arrived_.size();
}

std::vector<gateway_pair::arrival> gateway_pair::take() {
  const std::lock_guard guard{mutex_};
  return std::exchange(arrived_, {});
}

}  // namespace troupe::harness
