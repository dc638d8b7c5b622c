#include <algorithm>

#include "messages/codec.hpp"
#include "runtime/log.hpp"
#include "runtime/zeromq_engine.hpp"

// Who is at the other end of a connection, and what happens when that changes.
//
// A connection starts with hello from the side that connected and welcome from the other. Credit
// starts from nothing at every greeting, so that frames lost with a connection are not waited for.
// A router that hears from somebody whom it does not know (it was restarted) refuses with
// "unknown": greet again.

namespace troupe::runtime {
namespace {

constexpr std::size_t most_clients = 4096;
constexpr std::size_t routing_id_bytes =
    19;  // 'T', hash of the name, incarnation, number, of how many

std::span<const std::byte> view(const zmq::message_t& m) {
  return {static_cast<const std::byte*>(m.data()), m.size()};
}

// Which of how many connections a routing id stands for. Other programs may use any id: the only
// one.
std::pair<std::uint32_t, std::uint32_t> connection_of(const std::string& id, std::uint32_t most) {
  if (id.size() != routing_id_bytes || id.front() != 'T') return {0, 1};
  const auto number = static_cast<std::uint8_t>(id[17]), of = static_cast<std::uint8_t>(id[18]);
  if (of > most || number >= of) return {0, 1};
  return {number, of};
}

std::optional<address> find_host(const cluster& c, const std::string& name) {
  if (name == host_name(c, controller_address)) return controller_address;
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
    if (name == host_name(c, gateway_address(d))) return gateway_address(d);
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (name == c.nodes[n].name) return node_address(c, n);
  return {};
}

// What a monitor socket tells: the event's number; 0 if there is none.
std::uint16_t next_event(zmq::socket_t& monitor, std::string& endpoint) {
  zmq::message_t event, where;
  if (!monitor.recv(event, zmq::recv_flags::dontwait)) return 0;
  if (event.more()) (void)monitor.recv(where, zmq::recv_flags::dontwait);
  endpoint = where.to_string();
  std::uint16_t number = 0;
  if (event.size() >= sizeof number)
    std::copy_n(static_cast<const char*>(event.data()), sizeof number,
                reinterpret_cast<char*>(&number));
  return number;
}

constexpr int handshake_failures = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                   ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                   ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

}  // namespace

// ---- the side that connected

void zeromq_transport::engine::greet(dealer& d) {
  d.next_hello = steady::now() + std::chrono::duration_cast<steady::duration>(
                                     std::chrono::duration<double>(options_.greeting_s));
  const hello h{options_.name, options_.client ? 0 : fingerprint_, options_.incarnation};
  const auto f = encode(self_, d.over->peer, h);
  auto header = outgoing_message(f.header);
  // Lets the socket see a connection that has just come: sending alone may look only a millisecond
  // later.
  (void)d.socket.get(zmq::sockopt::events);
  // Without a connection there is nobody to greet; the next one is greeted when it stands.
  if (d.socket.send(header, zmq::send_flags::dontwait | zmq::send_flags::sndmore))
    d.socket.send(zmq::message_t{}, zmq::send_flags::dontwait);
}

void zeromq_transport::engine::greet_when_due() {
  const auto now = steady::now();
  for (auto& d : dealers_)
    if (!d.over->open && !d.refused && now >= d.next_hello) greet(d);
}

zeromq_transport::engine::steady::duration zeromq_transport::engine::until_greeting() const {
  auto wait = steady::duration{std::chrono::hours{1}};
  const auto now = steady::now();
  for (const auto& d : dealers_)
    if (!d.over->open && !d.refused)
      wait = std::min(wait, std::max(d.next_hello - now, steady::duration{}));
  return wait;
}

void zeromq_transport::engine::answered(dealer& d, const message& m) {
  if (const auto* yes = std::get_if<welcome>(&m)) {
    if (options_.client) self_ = yes->you;
    d.over->restart(fresh_inbox(d.over));
    d.last_refusal.clear();
    if (d.over->peer == upstream_) {
      const std::lock_guard guard{mutex_};
      refused_.reset();
      changed_.notify_all();
    }
    log(log_level::debug, "transport", "welcomed",
        {{"by", host_name(options_.cluster, d.over->peer)},
         {"as", host_name(options_.cluster, self_)}});
    return flush(*d.over);
  }
  const auto* no = std::get_if<refusal>(&m);
  if (no == nullptr) return;
  if (no->why.code != reason::kind::unknown) return not_wanted(d, no->why);
  // It was restarted and does not know us; frames that were on the way each bring this answer.
  const bool first = d.over->open.exchange(false);
  if (first) greet(d);
}

void zeromq_transport::engine::not_wanted(dealer& d, reason why) {
  d.over->open = false;
  d.refused = true;
  if (d.last_refusal != why.text)
    log(log_level::error, "transport", "refused",
        {{"by", host_name(options_.cluster, d.over->peer)}, {"at", d.endpoint}, {"why", why.text}});
  d.last_refusal = why.text;
  // A host without its upstream is of no use; without another gateway it still is.
  if (d.over->peer != upstream_) return;
  const std::lock_guard guard{mutex_};
  refused_ = std::move(why);
  changed_.notify_all();
}

void zeromq_transport::engine::watch_dealer(dealer& d) {
  std::string endpoint;
  while (const auto event = next_event(d.monitor, endpoint)) {
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      if (!d.over->open) greet(d);
    } else if (event == ZMQ_EVENT_DISCONNECTED) {
      d.over->open = false;
      d.refused = false;  // who comes next may think otherwise
    } else if ((event & handshake_failures) != 0 && !d.refused) {
      not_wanted(
          d, {reason::kind::refused,
              fmt::format("{} does not accept the key of {}, or is not the host that its key says",
                          d.endpoint, options_.name)});
    }
  }
}

// ---- the side that listens

void zeromq_transport::engine::watch_router() {
  if (!router_monitor_) return;
  std::string endpoint;
  while (next_event(*router_monitor_, endpoint) != 0)
    log(log_level::warn, "transport", "refused a peer that did not prove a key",
        {{"at", endpoint_}});
}

void zeromq_transport::engine::reply(const std::string& id, address to, const message& m) {
  lane once;
  once.peer = to;
  once.routing_id = id;
  write(once, encode(self_, to, m));
}

void zeromq_transport::engine::from_stranger(const zmq::message_t& id,
                                             const zmq::message_t& header) {
  add(strangers);
  const auto e = peek(view(header));
  if (!e && !is_batch(header))
    return reply(id.to_string(), first_client_address, refusal{e.error()});
  if (e && (e->type == type_id<refusal> || e->type == type_id<welcome>))
    return;  // no answers to answers
  reply(id.to_string(), e ? e->from : first_client_address,
        refusal{{reason::kind::unknown, "greet first"}});
}

void zeromq_transport::engine::greeted_by(const zmq::message_t& id_part,
                                          const zmq::message_t& header) {
  const auto id = id_part.to_string();
  const auto m = decode(view(header));
  const auto* h = m ? std::get_if<hello>(&m->second) : nullptr;
  if (h == nullptr) {
    add(malformed);
    return reply(
        id, first_client_address,
        refusal{m ? reason{reason::kind::malformed, "a greeting that is none"} : m.error()});
  }
  // Set by the key check where the connection is encrypted.
  const char* key_name = zmq_msg_gets(header.handle(), "User-Id");
  const auto who = admit(*h, key_name == nullptr ? "" : key_name, id);
  auto l = who ? place(*who, h->incarnation, id)
               : expected<std::shared_ptr<lane>>{tl::unexpect, who.error()};
  if (!l) {
    log(log_level::warn, "transport", "refused a greeting",
        {{"name", h->name}, {"why", l.error().text}});
    return reply(id, m->first.from, refusal{l.error()});
  }
  (*l)->restart(fresh_inbox(*l));
  reply(id, *who, welcome{*who});
  log(log_level::debug, "transport", "welcomed a peer",
      {{"name", h->name}, {"address", *who}, {"incarnation", h->incarnation}});
  flush(**l);
}

expected<address> zeromq_transport::engine::admit(const hello& h, std::string_view key_name,
                                                  const std::string& id) {
  const auto& c = options_.cluster;
  using enum reason::kind;
  if (h.cluster_fingerprint == 0) return admit_client(id);
  if (h.cluster_fingerprint != fingerprint_)
    return refuse(refused, fmt::format("{} and {} have loaded different cluster files", h.name,
                                       options_.name));
  const auto who = find_host(c, h.name);
  if (!who)
    return refuse(refused, fmt::format("there is no host '{}' in cluster {}", h.name, c.name));
  if (*who == controller_address || *who == self_ || next_hop(c, self_, *who) != *who ||
      (is_gateway(c, *who) && is_gateway(c, self_) && !greets(*who, self_)))
    return refuse(refused, fmt::format("{} does not belong behind {}", h.name, options_.name));
  if (!key_name.empty() && key_name != h.name)
    return refuse(refused, fmt::format("{} came with the key of {}", h.name, key_name));
  return *who;
}

expected<address> zeromq_transport::engine::admit_client(const std::string& id) {
  if (self_ != controller_address)
    return refuse(reason::kind::refused,
                  fmt::format("clients talk to the controller, not to {}", options_.name));
  if (const auto known = by_id_.find(id); known != by_id_.end() && is_client(known->second->peer))
    return known->second->peer;
  if (clients_ < most_clients) return next_client_++;
  const std::lock_guard guard{mutex_};
  auto oldest = peers_.end();
  for (auto p = peers_.begin(); p != peers_.end(); ++p)
    if (is_client(p->first) &&
        (oldest == peers_.end() || p->second.last_heard < oldest->second.last_heard))
      oldest = p;
  if (oldest != peers_.end()) {
    for (const auto& l : oldest->second.lanes) give_up(l);
    peers_.erase(oldest);
    --clients_;
  }
  return next_client_++;
}

// A place for the connection among its host's. A newer incarnation takes all of them.
expected<std::shared_ptr<lane>> zeromq_transport::engine::place(address who,
                                                                std::uint64_t incarnation,
                                                                const std::string& id) {
  if (!is_client(who)) {
    auto& newest = newest_[who];
    if (incarnation < newest)
      return refuse(reason::kind::stale, fmt::format("a newer {} has taken this one's place",
                                                     host_name(options_.cluster, who)));
    newest = incarnation;
  }
  const auto [number, of] = connection_of(id, most_connections);
  const std::lock_guard guard{mutex_};
  if (is_client(who) && !peers_.contains(who)) ++clients_;
  auto& p = peers_[who];
  p.last_heard = ++heard_;
  if (p.incarnation != incarnation || p.lanes.size() != of) {
    for (const auto& l : p.lanes) give_up(l);
    p.incarnation = incarnation;
    p.lanes.clear();
    while (p.lanes.size() < of) {
      p.lanes.push_back(std::make_shared<lane>());
      p.lanes.back()->peer = who;
      p.lanes.back()->batches = !is_client(who);  // which may be another program
    }
  }
  const auto& l = p.lanes[number];
  if (l->routing_id != id) {
    by_id_.erase(l->routing_id);
    last_lane_ = nullptr;
    l->routing_id = id;
    by_id_[id] = l;
  }
  return l;
}

// Under the lock. Whatever waits for this connection is lost.
void zeromq_transport::engine::give_up(const std::shared_ptr<lane>& l) {
  add(lost, l->waiting.size() + l->fresh.size() + l->taken.size());
  l->open = false;
  l->waiting.clear();
  l->fresh.clear();
  by_id_.erase(l->routing_id);
  last_lane_ = nullptr;
}

void zeromq_transport::engine::drop_broken() {
  for (const auto& id : broken_) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end() || found->second->open) continue;
    const auto who = found->second->peer;
    const std::lock_guard guard{mutex_};
    give_up(found->second);
    const auto p = peers_.find(who);
    if (p == peers_.end()) continue;
    const auto& lanes = p->second.lanes;
    if (std::any_of(lanes.begin(), lanes.end(), [](const auto& l) { return l->open.load(); }))
      continue;
    peers_.erase(p);
    if (is_client(who)) --clients_;
  }
  broken_.clear();
}

std::shared_ptr<inbox> zeromq_transport::engine::fresh_inbox(const std::shared_ptr<lane>& l) const {
  return std::make_shared<inbox>(l, std::max<std::uint32_t>(1, options_.window_frames / 4),
                                 options_.window_bytes / 4);
}

lane* zeromq_transport::engine::lane_of(const zmq::message_t& id) {
  if (last_lane_ != nullptr && id.to_string_view() == last_id_) return last_lane_;
  last_id_ = id.to_string();
  const auto found = by_id_.find(last_id_);
  last_lane_ = found == by_id_.end() ? nullptr : found->second.get();
  return last_lane_;
}

}  // namespace troupe::runtime
