#include "runtime/zeromq/direct_links.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "messages/base/invariant.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/host/log.hpp"

namespace troupe::runtime {
namespace {

// In intervals between greetings.
constexpr double patience = 3;  // from the first tensor until the connection is open
constexpr double ask_every = 0.5;
constexpr double shortest_pause = 2, longest_pause = 60;  // between attempts
constexpr std::size_t longest_endpoint = 256;

std::string_view scheme_of(std::string_view endpoint) {
  return endpoint.substr(0, endpoint.find("://"));
}

}  // namespace

// A node that listens at all addresses does not know by which one others reach it; its gateway sees
// one that works inside the datacenter.
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

std::shared_ptr<lane> direct_links::lane_to(address to) {
  if (!are_local_nodes(host_.cluster(), host_.self, to)) return {};
  const auto [at, fresh] = links_.try_emplace(to);
  auto& d = at->second;
  using enum link::state;
  if (fresh || (d.is == unusable && steady::now() >= d.until)) {
    d.is = finding;
    d.until = steady::now() + host_.greetings(patience);
    d.ask_at = {};
    d.over = std::make_shared<lane>();
    d.over->peer = to;
    d.over->direct = true;
    update_at_ = {};
    host_.wake_if_asleep();
  }
  return d.is == open || (d.is != unusable && d.waits) ? d.over : nullptr;
}

direct_links::steady::duration direct_links::until_update() const {
  if (update_at_ == steady::time_point::max()) return std::chrono::hours{1};
  return std::max(update_at_ - steady::now(), steady::duration{});
}

// ---- the thread

void direct_links::update() {
  if (!host_.is_node()) return;
  const auto now = steady::now();
  std::vector<address> to_find;
  {
    const std::lock_guard guard{host_.mutex};
    if (now < update_at_) return;
    update_at_ = steady::time_point::max();
    using enum link::state;
    for (auto& [to, d] : links_) {
      if (d.is != finding && d.is != greeting) continue;
      if (now >= d.until) {
        mark_unusable(d, d.is == finding ? "it is not known where" : "no answer");
      } else if (d.is == finding && !d.endpoint.empty()) {
        connect(d);
      } else if (d.is == finding && now >= d.ask_at) {
        d.ask_at = now + host_.greetings(ask_every);
        to_find.push_back(to);
      }
      if (d.is == finding) update_at_ = std::min(update_at_, d.ask_at);
      if (d.is != unusable) update_at_ = std::min(update_at_, d.until);
    }
  }
  // Written without the lock: a socket's send may block for a moment.
  for (const auto to : to_find)
    if (auto* upstream = upstream_lane(); upstream != nullptr && upstream->open)
      pump_.write(*upstream, encode(host_.self, host_.upstream, find_node{to}));
  close_unused();
}

/// Null: the lane is of an earlier attempt, whose events no longer matter.
direct_links::link* direct_links::link_of(const lane& l) {
  const auto at = l.direct ? links_.find(l.peer) : links_.end();
  return at == links_.end() || at->second.over.get() != &l ? nullptr : &at->second;
}

lane* direct_links::upstream_lane() {
  for (const auto& d : sockets_.dealers())
    if (d->over->peer == host_.upstream) return d->over.get();
  return nullptr;
}

void direct_links::on_node_endpoint(const node_endpoint& m) {
  const std::lock_guard guard{host_.mutex};
  const auto at = links_.find(m.node);
  if (at == links_.end() || at->second.is != link::state::finding) return;
  if (m.endpoint.empty()) return mark_unusable(at->second, "it does not listen");
  at->second.endpoint = m.endpoint;
  update_at_ = {};
}

/// Under the lock.
void direct_links::connect(link& d) {
  TROUPE_INVARIANT(d.is == link::state::finding && !d.over->open,
                   "a direct connection is made once, after its peer was found");
  const auto endpoint = std::exchange(d.endpoint, {});
  // Never less protected than the connection to the gateway: ipc is not encrypted.
  if (endpoint.size() > longest_endpoint ||
      scheme_of(endpoint) != scheme_of(host_.options.upstream))
    return mark_unusable(d, "the endpoint cannot be used");
  if (const auto made = sockets_.connect(d.over, endpoint); !made)
    return mark_unusable(d, made.error().text);
  d.is = link::state::greeting;
}

void direct_links::on_welcome(const lane& l) {
  const std::lock_guard guard{host_.mutex};
  auto* d = link_of(l);
  if (d == nullptr || d->is != link::state::greeting) return;
  d->is = link::state::open;
  d->pause = {};
  log(log_level::debug, "transport", "exchanges tensors directly",
      {{"with", host_name(host_.cluster(), l.peer)}});
}

void direct_links::on_failure(const lane& l, std::string_view why) {
  const std::lock_guard guard{host_.mutex};
  auto* d = link_of(l);
  if (d != nullptr && d->is != link::state::unusable) mark_unusable(*d, why);
}

/// Under the lock. Waiting frames go through the gateway; frames on the way may be lost, and their
/// receiver asks for them again.
void direct_links::mark_unusable(link& d, std::string_view why) {
  TROUPE_INVARIANT(d.is != link::state::unusable, "a direct connection becomes unusable once");
  const auto name = host_name(host_.cluster(), d.over->peer);
  if (const auto lines = host_.pass_line(fmt::format("{}: {}", name, why)); lines > 0)
    log(log_level::info, "transport", "tensors go through the gateway",
        {{"to", name}, {"why", why}, {"times", lines}});
  d.is = link::state::unusable;
  d.waits = false;
  d.pause =
      std::clamp(2 * d.pause, host_.greetings(shortest_pause), host_.greetings(longest_pause));
  d.until = steady::now() + d.pause;
  update_at_ = {};
  auto& l = *d.over;
  l.open = false;
  auto waiting = std::exchange(l.waiting, {});
  std::ranges::move(std::exchange(l.fresh, {}), std::back_inserter(waiting));
  l.queued_frames = l.queued_bytes = 0;
  for (auto& f : waiting)
    if (!pump_.enqueue(host_.upstream, std::move(f), relayed_tensor_lane))
      host_.add(host_state::lost);
}

void direct_links::close_unused() {
  sockets_.close_if([this](const dealer& d) {
    if (!d.over->direct) return false;
    const std::lock_guard guard{host_.mutex};
    const auto* of = link_of(*d.over);
    return of == nullptr || of->is == link::state::unusable;
  });
}

// ---- a gateway

void direct_links::remember_endpoint(address who, const hello& h, std::string_view peer_address) {
  if (!host_.is_gateway() || !is_node(host_.cluster(), who)) return;
  const std::lock_guard guard{host_.mutex};
  table_.set_endpoint(who, reachable_endpoint(h.endpoint.value_or(""), peer_address));
}

void direct_links::on_find_node(lane& l, const zmq::message_t& header) {
  const auto m = decode(bytes_of(header));
  const auto* asked = m ? std::get_if<find_node>(&m->second) : nullptr;
  if (asked == nullptr || !host_.is_gateway() ||
      !are_local_nodes(host_.cluster(), l.peer, asked->node))
    return host_.add(host_state::strangers);
  node_endpoint answer{asked->node, {}};
  {
    const std::lock_guard guard{host_.mutex};
    const auto* endpoint = table_.endpoint_of(asked->node);
    if (endpoint == nullptr) return;  // this gateway, or that node, may just have started
    answer.endpoint = *endpoint;
  }
  pump_.write(l, encode(host_.self, l.peer, answer));
}

}  // namespace troupe::runtime
