#include <algorithm>

#include "messages/base/invariant.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/host/log.hpp"
#include "runtime/zeromq/engine.hpp"

// Tensors between nodes of one datacenter. A node that has one for another asks its gateway where
// that listens, connects there, and sends it tensors and nothing else; the other direction has a
// connection of its own.
//
//            first tensor              node_endpoint               welcome
//   (none) ----------------> finding ----------------> greeting ------------> open
//                              ^  |  too late              |  refused,          |
//                              |  v                        |  or too late       | disconnected
//                  next tensor |  unusable <---------------+--------------------+
//              after a while   +-----+
//
// The first tensors wait for the connection. If it fails they go through the gateway, and so do all
// others until it is open; nothing waits for it a second time.

namespace troupe::runtime {
namespace {

// By the time between two greetings.
constexpr double patience = 3;  // from the first tensor until the connection is open
constexpr double ask_every = 0.5;
constexpr double shortest_pause = 2, longest_pause = 60;  // between attempts
constexpr std::size_t longest_endpoint = 256;

std::string_view scheme_of(std::string_view endpoint) {
  return endpoint.substr(0, endpoint.find("://"));
}

}  // namespace

std::string reachable_endpoint(const std::string& endpoint, std::string_view peer) {
  if (endpoint.size() > longest_endpoint) return {};
  for (const std::string_view anywhere : {"tcp://0.0.0.0:", "tcp://[::]:"}) {
    if (!endpoint.starts_with(anywhere) || peer.empty()) continue;
    const auto port = endpoint.substr(anywhere.size());
    const bool v6 = peer.find(':') != std::string_view::npos;
    return v6 ? fmt::format("tcp://[{}]:{}", peer, port) : fmt::format("tcp://{}:{}", peer, port);
  }
  return endpoint;
}

// ---- any thread, under the lock

/// The connection for a tensor to that host; null: it goes through the gateway.
std::shared_ptr<lane> zeromq_transport::engine::direct_lane(address to) {
  if (!are_local_nodes(*options_.cluster, self_, to)) return {};
  const auto [at, fresh] = direct_.try_emplace(to);
  auto& d = at->second;
  using enum direct_link::state;
  if (fresh || (d.is == unusable && steady::now() >= d.until)) {
    d.is = finding;
    d.until = steady::now() + greetings(patience);
    d.ask_at = {};
    d.over = std::make_shared<lane>();
    d.over->peer = to;
    d.over->direct = true;
    direct_update_at_ = {};
    if (sleeping_) wake();
  }
  return d.is == open || (d.is != unusable && d.waits) ? d.over : nullptr;
}

// ---- the thread

/// Carries the links' states forward; closes the sockets of those that are unusable.
void zeromq_transport::engine::update_direct_links() {
  if (!is_node(*options_.cluster, self_)) return;
  const auto now = steady::now();
  std::vector<address> to_find;
  {
    const std::lock_guard guard{mutex_};
    if (now < direct_update_at_) return;
    direct_update_at_ = steady::time_point::max();
    using enum direct_link::state;
    for (auto& [to, d] : direct_) {
      if (d.is != finding && d.is != greeting) continue;
      if (now >= d.until) {
        mark_unusable(d, d.is == finding ? "it is not known where" : "no answer");
      } else if (d.is == finding && !d.endpoint.empty()) {
        connect(d);
      } else if (d.is == finding && now >= d.ask_at) {
        d.ask_at = now + greetings(ask_every);
        to_find.push_back(to);
      }
      if (d.is == finding) direct_update_at_ = std::min(direct_update_at_, d.ask_at);
      if (d.is != unusable) direct_update_at_ = std::min(direct_update_at_, d.until);
    }
  }
  for (const auto to : to_find)
    if (auto* upstream = upstream_lane(); upstream != nullptr && upstream->open)
      write(*upstream, encode(self_, upstream_, find_node{to}));
  close_direct_sockets();
}

zeromq_transport::engine::direct_link* zeromq_transport::engine::link_of(const lane& l) {
  const auto at = l.direct ? direct_.find(l.peer) : direct_.end();
  return at == direct_.end() || at->second.over.get() != &l ? nullptr : &at->second;
}

lane* zeromq_transport::engine::upstream_lane() {
  for (const auto& d : dealers_)
    if (d->over->peer == upstream_) return d->over.get();
  return nullptr;
}

/// The gateway has said where a node listens.
void zeromq_transport::engine::on_node_endpoint(const node_endpoint& m) {
  const std::lock_guard guard{mutex_};
  const auto at = direct_.find(m.node);
  if (at == direct_.end() || at->second.is != direct_link::state::finding) return;
  if (m.endpoint.empty()) return mark_unusable(at->second, "it does not listen");
  at->second.endpoint = m.endpoint;
  direct_update_at_ = {};
}

/// Under the lock.
void zeromq_transport::engine::connect(direct_link& d) {
  const auto endpoint = std::exchange(d.endpoint, {});
  // Never less protected than the connection to the gateway: ipc is not encrypted.
  if (endpoint.size() > longest_endpoint || scheme_of(endpoint) != scheme_of(options_.upstream))
    return mark_unusable(d, "the endpoint cannot be used");
  auto made = make_dealer(d.over, endpoint, 0, 1);
  if (!made) return mark_unusable(d, made.error().text);
  d.is = direct_link::state::greeting;
  d.over->dealer = dealers_.size();
  dealers_.push_back(std::move(*made));
  list_poll_items();
}

void zeromq_transport::engine::on_direct_welcome(const lane& l) {
  const std::lock_guard guard{mutex_};
  auto* d = link_of(l);
  if (d == nullptr || d->is != direct_link::state::greeting) return;
  d->is = direct_link::state::open;
  d->pause = {};
  log(log_level::debug, "transport", "exchanges tensors directly",
      {{"with", host_name(*options_.cluster, l.peer)}});
}

void zeromq_transport::engine::on_direct_failure(const lane& l, std::string_view why) {
  const std::lock_guard guard{mutex_};
  auto* d = link_of(l);
  if (d != nullptr && d->is != direct_link::state::unusable) mark_unusable(*d, why);
}

/// Under the lock. What waits goes through the gateway; what is on the way may be lost, and is
/// asked for again by its receiver.
void zeromq_transport::engine::mark_unusable(direct_link& d, std::string_view why) {
  TROUPE_INVARIANT(d.is != direct_link::state::unusable);
  const auto name = host_name(*options_.cluster, d.over->peer);
  if (const auto lines = refusals_.pass(fmt::format("{}: {}", name, why), now_s()); lines > 0)
    log(log_level::info, "transport", "tensors go through the gateway",
        {{"to", name}, {"why", why}, {"times", lines}});
  d.is = direct_link::state::unusable;
  d.waits = false;
  d.pause = std::clamp(2 * d.pause, greetings(shortest_pause), greetings(longest_pause));
  d.until = steady::now() + d.pause;
  direct_update_at_ = {};
  auto& l = *d.over;
  l.open = false;
  auto waiting = std::exchange(l.waiting, {});
  std::ranges::move(std::exchange(l.fresh, {}), std::back_inserter(waiting));
  l.queued_frames = l.queued_bytes = 0;
  for (auto& f : waiting)
    if (!enqueue(upstream_, std::move(f), relayed_tensor_lane)) add(lost);
}

void zeromq_transport::engine::close_direct_sockets() {
  const auto unused = [this](const std::unique_ptr<dealer>& d) {
    if (!d->over->direct) return false;
    const std::lock_guard guard{mutex_};
    const auto* link = link_of(*d->over);
    return link == nullptr || link->is == direct_link::state::unusable;
  };
  if (std::erase_if(dealers_, unused) == 0) return;
  for (std::size_t i = 0; i < dealers_.size(); ++i) dealers_[i]->over->dealer = i;
  list_poll_items();
}

/// How long the thread may sleep as far as these links go. Under the lock.
zeromq_transport::engine::steady::duration zeromq_transport::engine::until_direct_links() const {
  if (direct_update_at_ == steady::time_point::max()) return std::chrono::hours{1};
  return std::max(direct_update_at_ - steady::now(), steady::duration{});
}

// ---- a gateway

/// A node of this gateway's has greeted and said where it listens.
void zeromq_transport::engine::remember_endpoint(address who, const hello& h,
                                                 std::string_view peer_address) {
  if (!is_gateway(*options_.cluster, self_) || !is_node(*options_.cluster, who)) return;
  const std::lock_guard guard{mutex_};
  if (const auto at = peers_.find(who); at != peers_.end())
    at->second.endpoint = reachable_endpoint(h.endpoint.value_or(""), peer_address);
}

void zeromq_transport::engine::on_find_node(lane& l, const zmq::message_t& header) {
  const auto m = decode({static_cast<const std::byte*>(header.data()), header.size()});
  const auto* asked = m ? std::get_if<find_node>(&m->second) : nullptr;
  if (asked == nullptr || !is_gateway(*options_.cluster, self_) ||
      !are_local_nodes(*options_.cluster, l.peer, asked->node))
    return add(strangers);
  node_endpoint answer{asked->node, {}};
  {
    const std::lock_guard guard{mutex_};
    const auto at = peers_.find(asked->node);
    if (at == peers_.end()) return;  // this gateway, or that node, may just have started
    answer.endpoint = at->second.endpoint;
  }
  write(l, encode(self_, l.peer, answer));
}

}  // namespace troupe::runtime
