#include "runtime/virtual/simulated_network.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "messages/base/invariant.hpp"
#include "messages/codec/codec.hpp"

namespace troupe::runtime {
namespace {

// A token without any of these bits is a flight's index.
constexpr std::uint64_t wan_token = std::uint64_t{1} << 32, card_token = std::uint64_t{1} << 33,
                        block_token = std::uint64_t{1} << 34;

/// Do messages take no time at all? In a cluster whose nodes have infinitely fast links, the
/// controller's and the clients' included: a replay of given times counts nothing else.
bool is_instant(const cluster& c) {
  return !c.nodes.empty() && std::isinf(c.nodes.front().inter.gbps);
}

double ns_per_byte(double gbps) {
  return 8 / gbps;
}

/// 0: it has none.
std::uint16_t type_of(const frame& f) {
  const auto e = peek(f.header.bytes());
  return e ? e->type : 0;
}

/// Index of a pair of datacenters, by direction.
std::size_t direction(const cluster& c, std::uint32_t a, std::uint32_t b) {
  return a * c.datacenters.size() + b;
}

}  // namespace

/// The transport of one incarnation of a host.
// Incarnations are odd generations while the host is up: a frame or a call of an earlier one has
// another number and is ignored.
class simulated_network::door final : public transport {
 public:
  door(simulated_network& net, std::uint32_t endpoint_index, address self, std::uint64_t generation)
      : net_{net}, endpoint_{endpoint_index}, self_{self}, generation_{generation} {}

  address self() const override { return self_; }
  bool send(address to, frame f, std::uint32_t lane) override {
    return net_.send(endpoint_, generation_, to, std::move(f), lane);
  }
  void listen(receiver r) override {
    auto& e = net_.endpoints_[endpoint_];
    if (e.generation != generation_) return;
    net_.retire(e);
    e.receiver = std::make_unique<const receiver>(std::move(r));
  }
  void handled(const frame& f) override { net_.handled(endpoint_, generation_, f); }

 private:
  simulated_network& net_;
  std::uint32_t endpoint_;
  address self_;
  std::uint64_t generation_;
};

bool is_meant(const cluster& c, address a, const std::string& name) {
  if (host_name(c, a) == name) return true;
  if (is_gateway(c, a)) return c.datacenters[datacenter_of(a)].name == name;
  const bool inside = is_node(c, a) || is_front(c, a);
  return inside && host_name(c, gateway_of(c, a)) == name + "/gateway";
}

simulated_network::simulated_network(virtual_coordinator& time, const cluster& c,
                                     const fault_plan& faults, random_source random,
                                     std::uint32_t credit_frames)
    : time_{time}, cluster_{c}, faults_{faults}, random_{random}, credit_frames_{credit_frames} {
  random_faults_ = faults.loss > 0 || faults.duplication > 0 || faults.reordering > 0;
  const auto n = static_cast<std::uint32_t>(c.datacenters.size());
  by_number_.assign(1 + n + c.nodes.size() + c.fronts.size(), unknown_host);
  wan_.reserve(std::size_t{n} * n);
  for (std::uint32_t a = 0; a < n; ++a) {
    for (std::uint32_t b = 0; b < n; ++b) {
      const auto* w = wan_between(c, a, b);
      const double gbps = w && w->node_gbps > 0 ? w->node_gbps : unlisted_wan_gbps;
      const double connection_gbps = w ? w->connection_gbps : 0;
      wan_.push_back({.share = fair_share{gbps * 1e9 / 8, connection_gbps * 1e9 / 8}});
    }
  }
  cards_.resize(c.nodes.size());
}

std::shared_ptr<transport> simulated_network::open(address a) {
  const auto i = endpoint_of(a);
  auto& e = endpoints_[i];
  if (e.generation % 2 == 1) close(a);
  ++e.generation;
  return std::make_shared<door>(*this, i, a, e.generation);
}

void simulated_network::close(address a) {
  const auto i = endpoint_of(a);
  auto& e = endpoints_[i];
  if (e.generation % 2 == 0) return;
  ++e.generation;
  retire(e);
  // Connections end with either side: credit starts anew.
  for (auto& c : connections_)
    if (c.from == i || c.to == i) c.unhandled = c.unhandled_blocks = 0;
}

bool simulated_network::send(std::uint32_t from, std::uint64_t generation, address to, frame f,
                             std::uint32_t lane) {
  const auto& e = endpoints_[from];
  if (e.generation != generation || to == e.self) return false;
  ++counters_.sent;
  const auto via = route(from, to, lane);
  auto& c = connections_[via];
  const bool block = lane == prefill_lane && type_of(f) == type_id<prefill_block>;
  if (credit_frames_ > 0 && unhandled_of(c, block) >= credit_frames_) {
    ++counters_.refused;
    return false;
  }
  const auto drop = [](std::uint64_t& count) {
    ++count;
    return true;  // a sender does not see it
  };
  if (endpoints_[c.to].generation % 2 == 0) return drop(counters_.unreachable);
  if (!faults_.partitions.empty() && cut(c)) return drop(counters_.cut);
  if (loses_ && loses_(e.self, endpoints_[c.to].self, f)) return drop(counters_.lost);
  if (!random_faults_ || !faulty_now()) {
    depart(new_flight(std::move(f), via, block));
    return true;
  }
  if (faults_.loss > 0 && random_.chance(faults_.loss)) return drop(counters_.lost);
  const bool twice = faults_.duplication > 0 && random_.chance(faults_.duplication);
  const bool late = faults_.reordering > 0 && random_.chance(faults_.reordering);
  const auto first = new_flight(std::move(f), via, block);
  if (late) {
    ++counters_.reordered;
    flights_[first].extra = random_delay();
  }
  if (twice) {
    ++counters_.duplicated;
    const auto second = new_flight(flights_[first].content, via, block);
    flights_[second].extra = random_delay();
    depart(second);
  }
  depart(first);
  return true;
}

/// Tensors go directly to nodes of the same datacenter that can be reached, all else to the next
/// hop.
std::uint32_t simulated_network::route(std::uint32_t from, address to, std::uint32_t lane) {
  const auto self = endpoints_[from].self;
  if (lane == tensor_lane && are_local_nodes(cluster_, self, to)) {
    const auto direct = connect(from, to);
    const auto& c = connections_[direct];
    if (endpoints_[c.to].generation % 2 == 1 && !cut(c)) return direct;
  }
  return connect(from, next_hop(cluster_, self, to));
}

void simulated_network::handled(std::uint32_t at, std::uint64_t generation, const frame& f) {
  auto& e = endpoints_[at];
  if (credit_frames_ == 0 || e.generation != generation) return;
  const auto who = peek(f.header.bytes());
  if (!who) return;
  if (who->type == type_id<tensor> && are_local_nodes(cluster_, e.self, who->from)) {
    // A frame does not know its route. One of the two connections has it unhandled, and which of
    // them gets its credit back first makes no difference to their sum.
    auto& direct = connections_[connect(endpoint_of(who->from), e.self)];
    if (direct.unhandled > 0) return void(--direct.unhandled);
  }
  const auto sender = next_hop(cluster_, e.self, who->from);
  if (sender != e.last_from) {
    e.last_in = connect(endpoint_of(sender), e.self);
    e.last_from = sender;
  }
  auto& open = unhandled_of(connections_[e.last_in], who->type == type_id<prefill_block>);
  if (open > 0) --open;
}

std::uint32_t simulated_network::new_flight(frame f, std::uint32_t via, bool block) {
  if (free_flights_.empty()) {
    free_flights_.push_back(static_cast<std::uint32_t>(flights_.size()));
    flights_.emplace_back();
  }
  const auto i = free_flights_.back();
  free_flights_.pop_back();
  auto& c = connections_[via];
  ++unhandled_of(c, block);
  TROUPE_INVARIANT(
      credit_frames_ == 0 || unhandled_of(c, block) <= credit_frames_ + 1,
      "a connection has no more frames under way than its credit, and a copy of the last");
  auto& fresh = flights_[i];
  fresh.block = block;
  fresh.content = std::move(f);
  fresh.via = via;
  fresh.to_generation = endpoints_[c.to].generation;
  fresh.extra = 0;
  return i;
}

void simulated_network::depart(std::uint32_t i) {
  const auto& f = flights_[i];
  const auto& c = connections_[f.via];
  const auto bytes = static_cast<double>(f.content.size());
  if (c.wan >= 0) return join_wan(i, c, bytes);
  if (c.of_node) {
    const auto e = peek(f.content.header.bytes());
    if (e && e->type == type_id<tensor>) return depart_tensor(i, endpoints_[c.from].self, e->to);
    if (e && e->type == type_id<prefill_block>)
      return depart_block(i, endpoints_[c.from].self, e->to);
  }
  const auto wire = static_cast<time_ns>(bytes * c.ns_per_byte + 0.5);
  time_.at(time_.now() + c.latency + wire + f.extra, *this, i);
}

/// It is charged where it leaves its node, however many hops it still has.
void simulated_network::depart_tensor(std::uint32_t i, address from, address to) {
  auto& f = flights_[i];
  const bool inside =
      is_node(cluster_, from) && is_node(cluster_, to) && site_of(from) == site_of(to);
  if (!inside) {
    time_.at(time_.now() + f.extra, *this, i);
    return;
  }
  const auto m = decode(f.content.header.bytes());
  const auto t =
      m && std::holds_alternative<tensor>(m->second) ? std::get<tensor>(m->second) : tensor{};
  const auto node = node_of(from);
  const auto flows = std::clamp(t.flows.value_or(1), 1U, max_group_gpus);
  const auto link = link_cost_between(cluster_, node, node_of(to), flows);
  const auto bytes = static_cast<double>(t.bytes);
  f.latency = to_ns(link.latency_s);
  auto& card = cards_[node];
  card.share.start(time_.now(),
                   {t.from.lease, t.from.pipeline, t.from.stage, t.to_pipeline, t.to_stage},
                   std::round(link.link_s(bytes) * 1e9), i, 1, link.share(bytes));
  schedule(card, card_token | node);
  give_link_to_block(node);
}

/// As a tensor, but behind all of them.
void simulated_network::depart_block(std::uint32_t i, address from, address to) {
  auto& f = flights_[i];
  if (!are_local_nodes(cluster_, from, to)) {
    time_.at(time_.now() + f.extra, *this, i);
    return;
  }
  const auto m = decode(f.content.header.bytes());
  const auto* block = m ? std::get_if<prefill_block>(&m->second) : nullptr;
  const auto node = node_of(from);
  const auto link = link_cost_between(cluster_, node, node_of(to));
  f.latency = to_ns(link.latency_s);
  const auto bytes = static_cast<double>(block ? block->bytes : f.content.size());
  cards_[node].blocks.push_back({i, to_ns(link.alone_s(bytes))});
  give_link_to_block(node);
}

/// Lets the first block go on, or takes the link from it, as the tensors allow.
void simulated_network::give_link_to_block(node_index n) {
  auto& card = cards_[n];
  if (card.blocks.empty()) return;
  const auto now = time_.now();
  auto& first = card.blocks.front();
  const bool tensors = card.share.next_end().has_value();
  if (tensors && card.block_since) {
    time_.cancel(card.block_end);
    first.left -= now - *card.block_since;
    card.block_since.reset();
  } else if (!tensors && !card.block_since) {
    card.block_since = now;
    card.block_end = time_.at(now + first.left, *this, block_token | n);
  }
}

void simulated_network::end_block(node_index n) {
  auto& card = cards_[n];
  TROUPE_INVARIANT(!card.blocks.empty() && card.block_since, "a block that ends had the link");
  const auto i = card.blocks.front().flight;
  card.blocks.pop_front();
  card.block_since.reset();
  time_.at(time_.now() + flights_[i].latency + flights_[i].extra, *this, i);
  give_link_to_block(n);
}

void simulated_network::join_wan(std::uint32_t i, const connection& c, double bytes) {
  const auto direction_index = static_cast<std::uint32_t>(c.wan);
  auto& w = wan_[direction_index];
  const auto now = time_.now();
  flights_[i].latency = c.latency;
  const bool busy_alone = w.share.transfers() == 0 && now < w.alone_until;
  if (w.share.transfers() == 0 && !busy_alone) {
    w.alone = i;
    w.alone_bytes = bytes;
    w.alone_from = now;
    w.alone_until = now + w.share.alone(bytes);
    w.alone_delivery = time_.at(w.alone_until + c.latency + flights_[i].extra, *this, i);
    return;
  }
  if (busy_alone) {
    time_.cancel(w.alone_delivery);
    const double share_left = static_cast<double>(w.alone_until - now) /
                              static_cast<double>(w.alone_until - w.alone_from);
    w.share.start(now, w.alone_bytes * share_left, w.alone);
    w.alone_until = now;
  }
  w.share.start(now, bytes, i);
  schedule(w, wan_token | direction_index);
}

/// A transfer that starts makes all others end later: the event that waits for the first end may
/// stay where it is and find, when it comes, that it is early.
template <class Link>
void simulated_network::schedule(Link& l, std::uint64_t token) {
  const auto end = l.share.next_end();
  if (!end || *end >= l.next_end_at) return;
  if (l.next_end_at != never_ns) time_.cancel(l.next_end);
  l.next_end_at = *end;
  l.next_end = time_.at(*end, *this, token);
}

template <class Link>
void simulated_network::wake(Link& l, std::uint64_t token) {
  l.next_end_at = never_ns;
  const auto now = time_.now();
  while (const auto ended = l.share.take_ended(now)) {
    const auto i = static_cast<std::uint32_t>(*ended);
    time_.at(now + flights_[i].latency + flights_[i].extra, *this, i);
  }
  schedule(l, token);
}

void simulated_network::fire(std::uint64_t token) {
  const auto index = static_cast<std::uint32_t>(token);
  if (token & wan_token)
    wake(wan_[index], token);
  else if (token & card_token)
    wake(cards_[index], token), give_link_to_block(index);
  else if (token & block_token)
    end_block(index);
  else
    arrive(index);
}

void simulated_network::arrive(std::uint32_t i) {
  TROUPE_INVARIANT(free_flights_.size() < flights_.size(), "a frame that arrives was in flight");
  auto f = std::move(flights_[i]);
  free_flights_.push_back(i);
  auto& c = connections_[f.via];
  auto& to = endpoints_[c.to];
  const bool there = to.generation == f.to_generation && to.receiver;
  if (!there || (!faults_.partitions.empty() && cut(c))) {
    ++(there ? counters_.cut : counters_.unreachable);
    auto& open = unhandled_of(c, f.block);
    if (to.generation == f.to_generation && open > 0) --open;
    return;
  }
  ++counters_.delivered;
  const auto header = f.content.header.bytes(), body = f.content.body.bytes();
  const std::array<std::uint64_t, 3> what{static_cast<std::uint64_t>(time_.now()),
                                          std::uint64_t{endpoints_[c.from].self} << 32 | to.self,
                                          std::uint64_t{header.size()} << 32 ^ body.size()};
  fingerprint_.add(what);
  fingerprint_.add(header);
  if (!body.empty()) fingerprint_.add(body);
  struct call {
    simulated_network& net;
    explicit call(simulated_network& n) : net{n} { net.receiving_ = true; }
    ~call() {
      net.receiving_ = false;
      if (!net.retired_.empty()) net.retired_.clear();
    }
  };
  const call guard{*this};
  (*to.receiver)(std::move(f.content));
}

void simulated_network::retire(endpoint& e) {
  if (receiving_ && e.receiver) retired_.push_back(std::move(e.receiver));
  e.receiver = nullptr;
}

std::uint32_t simulated_network::endpoint_of(address a) {
  const auto sites = cluster_.datacenters.size(), nodes = cluster_.nodes.size();
  std::size_t number = 0;
  if (is_gateway(cluster_, a))
    number = 1 + datacenter_of(a);
  else if (is_node(cluster_, a))
    number = 1 + sites + node_of(a);
  else if (is_front(cluster_, a))
    number = 1 + sites + nodes + front_of(a);
  else if (a != controller_address)
    return add_endpoint(a);
  auto& known = by_number_[number];
  if (known == unknown_host) known = add_endpoint(a);
  return known;
}

std::uint32_t simulated_network::add_endpoint(address a) {
  const auto [found, fresh] =
      by_address_.try_emplace(a, static_cast<std::uint32_t>(endpoints_.size()));
  if (fresh) {
    auto& e = endpoints_.emplace_back();
    e.self = a;
    place_in_partitions(e);
  }
  return found->second;
}

std::uint32_t simulated_network::connect(std::uint32_t from, address to) {
  auto& e = endpoints_[from];
  if (e.last_to != to) {
    e.last_out = connect_first(from, to);
    e.last_to = to;
  }
  return e.last_out;
}

std::uint32_t simulated_network::connect_first(std::uint32_t from, address to) {
  const auto known = endpoints_[from].connections.find(to);
  if (known != endpoints_[from].connections.end()) return known->second;
  const auto i = static_cast<std::uint32_t>(connections_.size());
  auto& c = connections_.emplace_back();
  c.from = from;
  c.to = endpoint_of(to);
  describe(c);
  endpoints_[from].connections.emplace(to, i);
  return i;
}

std::uint32_t simulated_network::site_of(address a) const {
  if (is_gateway(cluster_, a)) return datacenter_of(a);
  return is_node(cluster_, a) || is_front(cluster_, a) ? datacenter_of(gateway_of(cluster_, a)) : 0;
}

void simulated_network::describe(connection& c) {
  if (is_instant(cluster_)) return;
  const auto a = endpoints_[c.from].self, b = endpoints_[c.to].self;
  const auto from_site = site_of(a), to_site = site_of(b);
  if (is_client(a) || is_client(b)) {
    c.latency = to_ns(client_latency_s);
    c.ns_per_byte = ns_per_byte(site_gbps);
  } else if (is_gateway(cluster_, a) && is_gateway(cluster_, b)) {
    // no latency, no limit
  } else if (from_site != to_site) {
    const auto* w = wan_between(cluster_, from_site, to_site);
    c.latency = to_ns((w ? w->rtt_ms : unlisted_wan_rtt_ms) * 1e-3 / 2);
    c.wan = static_cast<std::int32_t>(direction(cluster_, from_site, to_site));
  } else {
    const auto* n = is_node(cluster_, a)   ? &cluster_.nodes[node_of(a)]
                    : is_node(cluster_, b) ? &cluster_.nodes[node_of(b)]
                                           : nullptr;
    const bool given = n && n->inter.gbps > 0;
    c.latency = to_ns(given ? n->inter.latency_us * 1e-6 : site_latency_s);
    c.ns_per_byte = ns_per_byte(given ? n->inter.gbps : site_gbps);
    c.of_node = n != nullptr;
  }
}

void simulated_network::place_in_partitions(endpoint& e) const {
  const auto meant = [&](const std::vector<std::string>& names) {
    return std::ranges::any_of(names,
                               [&](const std::string& n) { return is_meant(cluster_, e.self, n); });
  };
  for (const auto& p : faults_.partitions) {
    const bool in_a = meant(p.a);
    const bool in_b = p.b.empty() ? !in_a : meant(p.b);
    e.sides.push_back(static_cast<std::uint8_t>((in_a ? 1 : 0) | (in_b ? 2 : 0)));
  }
}

bool simulated_network::cut(const connection& c) const {
  const auto now = time_.now();
  for (std::size_t i = 0; i < faults_.partitions.size(); ++i) {
    const auto& p = faults_.partitions[i];
    const int from = endpoints_[c.from].sides[i], to = endpoints_[c.to].sides[i];
    if (((from & 1) != 0 && (to & 2) != 0) || ((from & 2) != 0 && (to & 1) != 0))
      if (now >= to_ns(p.from_s) && now < to_ns(p.until_s)) return true;
  }
  return false;
}

bool simulated_network::faulty_now() const {
  const auto now = time_.now();
  return now >= to_ns(faults_.from_s) && (faults_.until_s <= 0 || now < to_ns(faults_.until_s));
}

time_ns simulated_network::random_delay() {
  return static_cast<time_ns>(random_.uniform() *
                              static_cast<double>(to_ns(faults_.reorder_delay_s)));
}

}  // namespace troupe::runtime
