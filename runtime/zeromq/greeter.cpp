#include <algorithm>
#include <cstring>

#include "messages/codec/codec.hpp"
#include "runtime/host/log.hpp"
#include "runtime/zeromq/engine.hpp"

// Authentication of peers and reconnection: who is at the other end of a connection, and what
// happens when that changes.
//
// A connection starts with hello from the side that connected and welcome from the other. Credit
// starts from nothing at every greeting, so that frames lost with a connection are not waited for.
// A router that receives a frame of an unknown peer (the router was restarted) refuses it with
// "unknown", which makes the peer greet again.

namespace troupe::runtime {
namespace {

constexpr std::size_t routing_id_bytes =
    19;  // 'T', hash of the name, incarnation, number, of how many

// Which of how many connections a routing id stands for. Other programs may use any id: the only
// one.
std::pair<std::uint32_t, std::uint32_t> connection_of(const std::string& id, std::uint32_t max) {
  if (id.size() != routing_id_bytes || id.front() != 'T') return {0, 1};
  const auto number = static_cast<std::uint8_t>(id[17]), of = static_cast<std::uint8_t>(id[18]);
  if (of > max || number >= of) return {0, 1};
  return {number, of};
}

bool is_removed(const cluster& c, address a) {
  if (is_node(c, a)) return c.nodes[node_of(a)].removed;
  if (is_front(c, a)) return c.fronts[front_of(a)].removed;
  return is_gateway(c, a) && c.datacenters[datacenter_of(a)].removed;
}

std::string shown(const host_entry& e) {
  if (e.gpus > 0) return fmt::format("{} {} in {}", e.gpus, e.gpu_type, e.datacenter);
  return fmt::format("datacenter {}", e.datacenter);
}

/// The name of the key that the connection was opened with; empty where it is not encrypted.
std::string_view key_of(zmq::message_t& m) {
  const char* name = zmq_msg_gets(m.handle(), "User-Id");
  return name == nullptr ? "" : name;
}

/// An untrusted name, shortened for messages.
std::string shown(const std::string& name) {
  constexpr std::size_t longest = 64;
  return name.size() <= longest ? name : name.substr(0, longest) + "...";
}

constexpr int handshake_failures = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                   ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                   ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

}  // namespace

// ---- the side that connected

void zeromq_transport::engine::greet(dealer& d) {
  d.next_hello = steady::now() + greetings(1);
  hello h{options_.name, options_.incarnation, {}, {}};
  if (!options_.client) h.entry = entry_;
  if (is_node(*options_.cluster, self_) && router_ && !d.over->direct) h.endpoint = endpoint_;
  const auto f = encode(self_, d.over->peer, h);
  auto header = outgoing_message(f.header, d.over->unsent, false);
  // Lets the socket see a connection that has just come: sending alone may look only a millisecond
  // later.
  (void)d.socket.get(zmq::sockopt::events);
  // Without a connection there is nobody to greet; the next one is greeted when it stands.
  if (d.socket.send(header, zmq::send_flags::dontwait | zmq::send_flags::sndmore))
    d.socket.send(zmq::message_t{}, zmq::send_flags::dontwait);
}

void zeromq_transport::engine::greet_when_due() {
  const auto now = steady::now();
  for (auto& d : dealers_) {
    if (d->over->open || d->refused) continue;
    if (now >= d->reconnect_at) reconnect(*d);
    if (now >= d->next_hello) greet(*d);
  }
}

void zeromq_transport::engine::reconnect(dealer& d) {
  d.reconnect_at = steady::time_point::max();
  try {
    d.socket.disconnect(d.endpoint);
  } catch (const zmq::error_t&) {  // ZeroMQ has forgotten it
  }
  try {
    d.socket.connect(d.endpoint);
  } catch (const zmq::error_t& e) {
    log(log_level::error, "transport", "cannot connect", {{"at", d.endpoint}, {"why", e.what()}});
    d.reconnect_at = steady::now() + greetings(60);
  }
}

zeromq_transport::engine::steady::duration zeromq_transport::engine::until_greeting() const {
  auto wait = steady::duration{std::chrono::hours{1}};
  const auto now = steady::now();
  for (const auto& d : dealers_)
    if (!d->over->open && !d->refused)
      wait = std::min(wait,
                      std::max(std::min(d->next_hello, d->reconnect_at) - now, steady::duration{}));
  return wait;
}

void zeromq_transport::engine::on_greeting_reply(dealer& d, const message& m) {
  if (const auto* yes = std::get_if<welcome>(&m)) {
    if (options_.client) self_ = yes->you;
    const bool first = d.over->peer == upstream_ && !options_.client && !admitted_;
    if (!options_.client && d.over->peer == upstream_ && !take_place(*yes)) {
      return on_refusal(d, {reason::kind::stale,
                            "the controller's new journal gives this host another number: "
                            "restart it"});
    }
    d.over->restart(fresh_inbox(d.over));
    d.backoff = {};
    if (d.over->peer == upstream_) {
      const std::lock_guard guard{mutex_};
      refused_.reset();
      changed_.notify_all();
    }
    if (d.over->direct) on_direct_welcome(*d.over);
    log(log_level::debug, "transport", "welcomed",
        {{"by", host_name(*options_.cluster, d.over->peer)},
         {"as", host_name(*options_.cluster, self_)}});
    if (first) admission_due_ = true;
    return flush(*d.over);
  }
  const auto* no = std::get_if<refusal>(&m);
  if (no == nullptr) return;
  if (no->why.code != reason::kind::unknown) return on_refusal(d, no->why);
  // The peer was restarted and does not know us; each frame in flight causes this reply.
  const bool first = d.over->open.exchange(false);
  if (first) greet(d);
}

/// False: this host cannot go on under the number that it has been given.
bool zeromq_transport::engine::take_place(const welcome& w) {
  if (admitted_) return w.you == self_;
  if (w.cluster) {
    if (!indices_exist(*w.cluster) || host_name(*w.cluster, w.you) != options_.name) return false;
    options_.cluster.replace(*w.cluster);
    const auto up = next_hop(*w.cluster, w.you, controller_address);
    const std::lock_guard guard{mutex_};
    if (up != upstream_) {
      auto known = peers_.extract(upstream_);
      known.key() = up;
      for (const auto& l : known.mapped().lanes) l->peer = up;
      peers_.insert(std::move(known));
      upstream_ = up;
    }
    self_ = w.you;
  }
  admitted_ = true;
  return true;
}

bool zeromq_transport::engine::knows_cluster() const {
  if (!options_.upstream.empty()) return admitted_;
  return !options_.waits_for_cluster || options_.cluster->version > 0;
}

/// What an admission leads to, between two rounds: it may open sockets. False: nothing was due.
bool zeromq_transport::engine::admit_held() {
  const bool due = std::exchange(admission_due_, false);
  if (due && options_.on_admitted) options_.on_admitted();
  if (held_.empty() || !knows_cluster()) return due;
  for (auto& [id, hello] : std::exchange(held_, {})) on_hello(hello.first, hello.second);
  return true;
}

void zeromq_transport::engine::on_refusal(dealer& d, reason why) {
  d.over->open = false;
  if (d.over->direct) return on_direct_failure(*d.over, why.text);
  // Permanent for a client, whose user waits for the answer, and if a newer instance of this host
  // has taken over. Other refusals may be fixed at the other side: its list of keys, its cluster
  // file.
  d.refused = options_.client || why.code == reason::kind::stale;
  d.backoff = std::clamp(2 * d.backoff, greetings(2), greetings(60));
  d.next_hello = steady::now() + d.backoff;
  // A client's verb prints it.
  if (const auto lines = options_.client ? 0 : refusals_.pass(d.endpoint + why.text, now_s());
      lines > 0)
    log(log_level::error, "transport", d.refused ? "refused" : "rejected; retrying",
        {{"by", host_name(*options_.cluster, d.over->peer)},
         {"at", d.endpoint},
         {"why", why.text},
         {"times", lines}});
  // A host cannot work without its upstream, but it can without another gateway.
  if (d.over->peer != upstream_) return;
  const std::lock_guard guard{mutex_};
  refused_ = std::move(why);
  changed_.notify_all();
}

// An interrupted handshake does not mean a wrong key: the listener may have ended, or it is a
// proxy. Only the other side's refusal does.
void zeromq_transport::engine::on_handshake_failure(dealer& d, bool for_good) {
  if (d.over->direct) return on_direct_failure(*d.over, "the handshake failed");
  auto text = encrypts(d.endpoint)
                  ? fmt::format("{} does not accept the key of {}", d.endpoint, keys_->name)
                  : fmt::format("this cluster has keys: --keys DIR{}",
                                options_.client ? " or TROUPE_KEYS" : "");
  if (for_good) return on_refusal(d, {reason::kind::refused, std::move(text)});
  text = fmt::format(
      "the handshake with {} was interrupted; the host may be starting, or its key differs from "
      "the list",
      d.endpoint);
  if (const auto lines = refusals_.pass(text, now_s()); lines > 0)
    log(log_level::warn, "transport", text, {{"times", lines}});
  const std::lock_guard guard{mutex_};
  trouble_ = std::move(text);
}

void zeromq_transport::engine::watch_dealer(dealer& d) {
  const auto patience = greetings(10);  // with ZeroMQ, which tries again every second
  const auto reconnect_within = [&d](steady::duration wait) {
    d.reconnect_at = std::min(d.reconnect_at, steady::now() + wait);
  };
  while (const auto event = d.monitor->next().number) {
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      d.reconnect_at = steady::time_point::max();
      if (!d.over->open) greet(d);
    } else if (event == ZMQ_EVENT_DISCONNECTED) {
      d.over->open = false;
      d.refused = false;  // who comes next may think otherwise
      if (d.over->direct) on_direct_failure(*d.over, "disconnected");
      reconnect_within(patience);
    } else if ((event & handshake_failures) == 0) {
      d.reconnect_at = steady::time_point::max();  // ZeroMQ is connecting
    } else if (!d.refused) {
      // To a client that came without a key, or with one to a listener without, it is an answer
      // too.
      const bool answer = event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH ||
                          (options_.client && event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL);
      on_handshake_failure(d, answer);
      reconnect_within(answer ? d.backoff : patience);
    }
  }
}

// ---- the side that listens

void zeromq_transport::engine::watch_router() {
  if (!router_monitor_) return;
  for (auto e = router_monitor_->next(); e.number != 0; e = router_monitor_->next()) {
    if (e.number == ZMQ_EVENT_ACCEPTED) {
      pending_.accepted(e.value);
    } else if (e.number == ZMQ_EVENT_DISCONNECTED) {
      pending_.ended(e.value);
      trim_due_ = true;
    } else if (encrypts(options_.listen)) {
      if (const auto lines = refusals_.pass("no key", now_s()); lines > 0)
        log(log_level::warn, "transport", "rejected a peer without a valid key",
            {{"at", endpoint_}, {"times", lines}});
    }
  }
}

void zeromq_transport::engine::reply(const std::string& id, address to, const message& m) {
  lane once;
  once.peer = to;
  once.routing_id = id;
  write(once, encode(self_, to, m));
}

void zeromq_transport::engine::on_unknown_sender(const zmq::message_t& id,
                                                 const zmq::message_t& header) {
  add(strangers);
  const auto e = peek(bytes_of(header));
  if (!e && !is_batch(header))
    return reply(id.to_string(), first_client_address, refusal{e.error()});
  if (e && (e->type == type_id<refusal> || e->type == type_id<welcome>))
    return;  // no answers to answers
  reply(id.to_string(), e ? e->from : first_client_address,
        refusal{{reason::kind::unknown, "greet first"}});
}

void zeromq_transport::engine::on_hello(zmq::message_t& id_part, zmq::message_t& header) {
  constexpr std::size_t max_held = 4096;
  const auto id = id_part.to_string();
  if (!knows_cluster()) {
    if (held_.size() < max_held) held_[id] = {std::move(id_part), std::move(header)};
    return;
  }
  const auto m = decode(bytes_of(header));
  const auto* h = m ? std::get_if<hello>(&m->second) : nullptr;
  if (h == nullptr) {
    add(malformed);
    return reply(id, first_client_address,
                 refusal{m ? reason{reason::kind::malformed, "malformed hello"} : m.error()});
  }
  const auto key_name = key_of(header);
  const auto who = admit(*h, key_name, id);
  auto l = who ? assign_lane(*who, h->incarnation, id)
               : expected<std::shared_ptr<lane>>{tl::unexpect, who.error()};
  if (!l) {
    const auto* from = zmq_msg_gets(header.handle(), "Peer-Address");
    const std::string at = from == nullptr ? "" : from;
    if (const auto lines = refusals_.pass(at, now_s()); lines > 0)
      log(log_level::warn, "transport", "rejected a greeting",
          {{"address", at}, {"name", shown(h->name)}, {"why", l.error().text}, {"times", lines}});
    return reply(id, m->first.from, refusal{l.error()});
  }
  const auto* from = zmq_msg_gets(header.handle(), "Peer-Address");
  remember_endpoint(*who, *h, from == nullptr ? "" : from);
  (*l)->who = caller_with(key_name);
  pending_.welcomed(zmq_msg_get(header.handle(), ZMQ_SRCFD));
  (*l)->restart(fresh_inbox(*l));
  welcome yes{*who, {}};
  if (h->entry && next_hop(*options_.cluster, *who, controller_address) == self_)
    yes.cluster = *options_.cluster;
  reply(id, *who, yes);
  log(log_level::debug, "transport", "welcomed a peer",
      {{"name", shown(h->name)}, {"address", *who}, {"incarnation", h->incarnation}});
  flush(**l);
}

caller zeromq_transport::engine::caller_with(std::string_view key_name) const {
  if (key_name.empty()) return {};
  return {std::string{key_name}, keys_->role_of(key_name) == key_role::operator_};
}

// A routing id is no proof of identity: ZeroMQ gives it to the latest connection that asks for it.
bool zeromq_transport::engine::has_its_key(const lane& l, zmq::message_t& header) const {
  if (!encrypts(options_.listen)) return true;
  const auto name = key_of(header);
  return !name.empty() && l.who.name == name;
}

expected<address> zeromq_transport::engine::admit(const hello& h, std::string_view key_name,
                                                  const std::string& id) {
  const auto& c = *options_.cluster;
  using enum reason::kind;
  if (encrypts(options_.listen) && key_name.empty())
    return refuse(refused, fmt::format("{} did not prove a key", shown(h.name)));
  const bool has_key = !key_name.empty();
  const bool is_host_key = has_key && keys_->role_of(key_name) == key_role::host;
  if (!h.entry) {
    if (is_host_key)
      return refuse(refused,
                    fmt::format("the key of {} is a host's: clients need user keys", key_name));
    return admit_client(id, key_name);
  }
  if (h.entry->cluster != c.name)
    return refuse(refused,
                  fmt::format("{} is of cluster '{}', and {} of cluster '{}'", shown(h.name),
                              shown(h.entry->cluster), options_.name, c.name));
  const auto who = find_host(c, h.name);
  if (!who)
    return refuse(refused, fmt::format("no host '{}' in cluster {}", shown(h.name), c.name));
  if (is_removed(c, *who)) {
    // Its work may still have its grace.
    if (const auto known = newest_.find(*who);
        known == newest_.end() || known->second != h.incarnation)
      return refuse(refused, fmt::format("{} was removed from the cluster", h.name));
  } else if (const auto right = entry_of(c, *who); right != *h.entry) {
    return refuse(refused, fmt::format("{} has {} by its own cluster file, and {} by the "
                                       "controller's",
                                       h.name, shown(shown(*h.entry)), shown(right)));
  }
  // Only nodes of its datacenter connect to a node, for tensors; not even its gateway does.
  const bool connects =
      is_node(c, self_) ? are_local_nodes(c, self_, *who) : next_hop(c, self_, *who) == *who;
  if (*who == controller_address || *who == self_ || !connects ||
      (is_gateway(c, *who) && is_gateway(c, self_) && !greets(*who, self_)))
    return refuse(refused, fmt::format("{} must not connect to {}", h.name, options_.name));
  if (has_key && (!is_host_key || key_name != h.name))
    return refuse(refused, fmt::format("{} used the key of {}", h.name, key_name));
  return *who;
}

expected<address> zeromq_transport::engine::admit_client(const std::string& id,
                                                         std::string_view key_name) {
  if (self_ != controller_address)
    return refuse(reason::kind::refused,
                  fmt::format("clients must connect to the controller, not to {}", options_.name));
  if (const auto known = by_id_.find(id); known != by_id_.end() && is_client(known->second->peer) &&
                                          (key_name.empty() || known->second->who.name == key_name))
    return known->second->peer;
  if (clients_ < options_.max_clients) return next_client_++;
  const std::lock_guard guard{mutex_};
  auto oldest = peers_.end();
  for (auto p = peers_.begin(); p != peers_.end(); ++p)
    if (is_client(p->first) &&
        (oldest == peers_.end() || p->second.last_greeting < oldest->second.last_greeting))
      oldest = p;
  if (oldest != peers_.end()) {
    for (const auto& l : oldest->second.lanes) reset(l);
    peers_.erase(oldest);
    --clients_;
  }
  return next_client_++;
}

// The lane for a connection of a host. A newer incarnation of the host replaces all of its lanes.
expected<std::shared_ptr<lane>> zeromq_transport::engine::assign_lane(address who,
                                                                      std::uint64_t incarnation,
                                                                      const std::string& id) {
  if (!is_client(who)) {
    auto& newest = newest_[who];
    if (incarnation < newest)
      return refuse(reason::kind::stale, fmt::format("superseded by a newer instance of {}",
                                                     host_name(*options_.cluster, who)));
    newest = incarnation;
  }
  const auto [number, of] = connection_of(id, max_connections);
  const std::lock_guard guard{mutex_};
  if (is_client(who) && !peers_.contains(who)) ++clients_;
  auto& p = peers_[who];
  p.last_greeting = ++greetings_;
  if (p.incarnation != incarnation || p.lanes.size() != of) {
    for (const auto& l : p.lanes) reset(l);
    p.incarnation = incarnation;
    p.lanes.clear();
    while (p.lanes.size() < of) {
      p.lanes.push_back(std::make_shared<lane>());
      p.lanes.back()->peer = who;
      p.lanes.back()->direct = are_local_nodes(*options_.cluster, self_, who);
      if (!is_client(who)) {
        p.lanes.back()->batches = true;  // a client may be another program
      } else {
        p.lanes.back()->unsent = std::make_shared<unsent_bytes>(clients_unsent_);
      }
    }
  }
  const auto& l = p.lanes[number];
  if (l->routing_id != id) {
    // The new connection takes this routing id from the one that had it.
    if (const auto other = by_id_.find(id); other != by_id_.end())
      reset(std::shared_ptr{other->second});
    by_id_.erase(l->routing_id);
    last_lane_ = nullptr;
    l->routing_id = id;
    by_id_[id] = l;
  }
  return l;
}

// Under the lock. Drops the frames queued for this connection. The peer's next connection may have
// the same routing id, and finds the lane empty.
void zeromq_transport::engine::reset(const std::shared_ptr<lane>& l) {
  add(lost, l->waiting.size() + l->fresh.size());
  if (is_client(l->peer)) clients_queued_bytes_ -= l->queued_bytes;
  l->open = false;
  l->waiting = {};
  l->fresh = {};
  l->queued_frames = l->queued_bytes = 0;
  by_id_.erase(std::exchange(l->routing_id, {}));
  last_lane_ = nullptr;
  trim_due_ = true;
}

void zeromq_transport::engine::drop_broken() {
  for (const auto& id : broken_) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end() || found->second->open) continue;
    const auto over = found->second;
    const auto who = over->peer;
    const std::lock_guard guard{mutex_};
    reset(over);
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
  return std::make_shared<inbox>(l, l->who, std::max<std::uint32_t>(1, options_.window_frames / 4),
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
