#include "planners/search/job_space/link_floors.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "planners/cost/batch_split.hpp"

namespace troupe::planners {

namespace {

constexpr double no_link = std::numeric_limits<double>::infinity();

/// The fastest rate of all sizes, bytes/s, for that number of flows; 0: any number.
double max_bytes_s(const link& l, std::uint32_t flows) {
  double gbps = l.max_gbps();
  if (l.flow_rates && flows > 0)
    gbps = std::min(gbps, flows * std::ranges::max(*l.flow_rates, {}, &link_rate::gbps).gbps);
  return gbps * 1e9 / 8;
}

/// No tensor of these sizes takes less on an idle link. Rates may grow faster than sizes.
double shortest_s(link_cost w, std::uint32_t flows, const link_floors::tensor_sizes& sizes) {
  if (!w.has_rates()) return sizes.min * w.s_per_byte + w.latency_s;
  w.flows = flows;
  if (sizes.min == sizes.max) return w.alone_s(sizes.min) + w.latency_s;
  return sizes.min / std::min(max_bytes_s(*w.ends[0], flows), max_bytes_s(*w.ends[1], flows)) +
         w.latency_s;
}

/// A node of each kind of node of a kind of GPU in a datacenter, two where there are two.
struct node_kind {
  std::uint32_t kind = 0, datacenter = 0, room = 0;
  std::vector<node_index> nodes;
};

std::vector<node_kind> kinds_of_nodes(const cluster& c, const idle_index& idle,
                                      const std::vector<std::uint32_t>& kind_of) {
  std::vector<node_kind> all;
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    if (idle.idle(n) == 0) continue;
    const auto& node = c.nodes[n];
    const auto kind = kind_of[n];
    const auto same = std::ranges::find_if(all, [&](const node_kind& k) {
      const auto& other = c.nodes[k.nodes.front()];
      return k.kind == kind && k.datacenter == node.datacenter && other.inter == node.inter &&
             other.intra == node.intra && other.nvlink_domain == node.nvlink_domain;
    });
    auto& to =
        same == all.end() ? all.emplace_back(node_kind{kind, node.datacenter, 0, {}}) : *same;
    to.room = std::max(to.room, idle.idle(n));
    if (to.nodes.size() < 2) to.nodes.push_back(n);
  }
  return all;
}

}  // namespace

link_floors::link_floors(const cluster& c, const idle_index& idle,
                         const std::vector<std::uint32_t>& kind_of, std::size_t kinds,
                         std::uint32_t connections)
    : cards_(kinds, 0.0), unlike_of_kind_(kinds, 1) {
  const auto all = kinds_of_nodes(c, idle, kind_of);
  for (const auto& a : all) {
    std::vector<const link*> of_kind, of_any;
    const auto add = [&](std::vector<const link*>& to, const node_kind& b) {
      const auto* card = &c.nodes[b.nodes[0]].inter;
      if (std::ranges::none_of(to, [&](const link* l) { return *l == *card; })) to.push_back(card);
    };
    for (const auto& b : all) {
      if (b.datacenter != a.datacenter) continue;
      add(of_any, b);
      if (b.kind == a.kind) add(of_kind, b);
    }
    auto& unlike = unlike_of_kind_[a.kind];
    unlike = std::max(unlike, static_cast<std::uint32_t>(of_kind.size()));
    unlike_ = std::max(unlike_, static_cast<std::uint32_t>(of_any.size()));
  }
  for (const auto& a : all) {
    has_domains_ = has_domains_ || c.nodes[a.nodes[0]].nvlink_domain.has_value();
    for (const auto& b : all) {
      if (a.datacenter != b.datacenter) continue;
      if (&a == &b)
        lan_.push_back({link_cost_between(c, a.nodes[0], a.nodes[0]), a.kind, a.kind, a.datacenter,
                        true, a.room});
      if (&a == &b && a.nodes.size() < 2) continue;
      lan_.push_back({link_cost_between(c, a.nodes[0], b.nodes[&a == &b ? 1 : 0]), a.kind, b.kind,
                      a.datacenter, false, 0});
      cards_[a.kind] = std::max(cards_[a.kind], 1 / lan_.back().link.s_per_byte);
    }
  }
  for (std::uint32_t a = 0; a < c.datacenters.size(); ++a)
    for (auto b = a + 1; b < c.datacenters.size(); ++b) {
      wan_pair p{link_between(c, a, b, connections), a, b, std::vector<bool>(kinds)};
      bool ends[2]{};
      for (const auto& k : all) {
        if (k.datacenter != a && k.datacenter != b) continue;
        ends[k.datacenter == a ? 0 : 1] = p.kinds[k.kind] = true;
      }
      if (ends[0] && ends[1]) wan_.push_back(std::move(p));
    }
  for (std::size_t i = 0; i < wan_.size(); ++i) {
    const double s = wan_[i].of.latency_us * 1e-6;
    wan_latency_s_ = i == 0 ? s : std::min(wan_latency_s_, s);
  }
}

double link_floors::send_s(std::uint32_t kind, std::uint32_t tensor,
                           const tensor_sizes& sizes) const {
  double s = no_link;
  for (const auto& w : lan_)
    if (w.from == kind && (!w.inside || w.room > tensor))
      s = std::min(s, shortest_s(w.link, tensor, sizes));
  return s < no_link ? s : 0;
}

double link_floors::receive_s(std::uint32_t kind, std::uint32_t flows,
                              const tensor_sizes& sizes) const {
  double s = no_link;
  for (const auto& w : lan_)
    if (w.to == kind && (!w.inside || w.room > 1))
      s = std::min(s, shortest_s(w.link, flows, sizes));
  return s < no_link ? s : 0;
}

double link_floors::leaving_send_s(std::uint32_t kind, std::uint32_t tensor,
                                   const tensor_sizes& sizes) const {
  double s = no_link;
  for (const auto& w : lan_)
    if (w.from == kind && !w.inside) s = std::min(s, shortest_s(w.link, tensor, sizes));
  return s;
}

double link_floors::leaving_receive_s(std::uint32_t kind, std::uint32_t flows,
                                      const tensor_sizes& sizes) const {
  double s = no_link;
  for (const auto& w : lan_)
    if (w.to == kind && !w.inside) s = std::min(s, shortest_s(w.link, flows, sizes));
  return s;
}

double link_floors::longest_inside_s(std::uint32_t kind, double bytes) const {
  double s = 0;
  for (const auto& w : lan_)
    if (w.from == kind && w.inside) s = std::max(s, w.link.max_s(bytes) + w.link.latency_s);
  return s;
}

double link_floors::longest_send_s(std::uint32_t kind, double bytes) const {
  double s = 0;
  for (const auto& w : lan_)
    if (w.from == kind) s = std::max(s, w.link.max_s(bytes) + w.link.latency_s);
  return s;
}

double link_floors::longest_crossing_s(double bytes) const {
  double s = 0, latency_s = 0;
  for (const auto& w : wan_) {
    s = std::max(s, bytes / w.of.min_bytes_s(1));
    latency_s = std::max(latency_s, w.of.latency_us * 1e-6);
  }
  return s + latency_s;
}

double link_floors::crossing_s(std::uint32_t kind, std::uint32_t tensor,
                               const tensor_sizes& sizes) const {
  double s = no_link;
  for (const auto& w : wan_) {
    if (!w.kinds[kind]) continue;
    const double rate =
        sizes.min == sizes.max ? w.of.bytes_s(sizes.min, tensor) : max_bytes_s(w.of, tensor);
    s = std::min(s, sizes.min / rate + w.of.latency_us * 1e-6);
  }
  return s;
}

double link_floors::send_s(const place& from, const place& to, double bytes) const {
  double s = no_link;
  for (const auto& w : lan_)
    if (w.datacenter == from.datacenter && w.from == from.kind && w.to == to.kind &&
        (!w.inside || w.room >= from.tensor + to.tensor))
      s = std::min(s, shortest_s(w.link, from.tensor, {bytes, bytes}));
  return s < no_link ? s : 0;
}

const link_floors::wan_pair* link_floors::pair(std::uint32_t a, std::uint32_t b) const {
  const auto at = std::ranges::find_if(
      wan_, [&](const wan_pair& w) { return w.a == std::min(a, b) && w.b == std::max(a, b); });
  return at == wan_.end() ? nullptr : &*at;
}

double link_floors::crossing_s(const place& from, const place& to, double bytes) const {
  const auto* w = pair(from.datacenter, to.datacenter);
  return w ? bytes / w->of.bytes_s(bytes, std::min(from.tensor, to.tensor)) : 0;
}

double link_floors::crossing_latency_s(std::uint32_t a, std::uint32_t b) const {
  const auto* w = pair(a, b);
  return w ? w->of.latency_us * 1e-6 : 0;
}

double link_floors::wan_bytes_s(std::uint32_t flows) const {
  if (flows >= wan_bytes_s_.size()) wan_bytes_s_.resize(flows + 1, -1);
  auto& rate = wan_bytes_s_[flows];
  if (rate >= 0) return rate;
  for (const auto& w : wan_) rate = std::max(rate, max_bytes_s(w.of, flows));
  return rate = std::max(0.0, rate);
}

}  // namespace troupe::planners
