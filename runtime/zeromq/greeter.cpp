#include "runtime/zeromq/greeter.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/host/log.hpp"

namespace troupe::runtime {
namespace {

// Greetings that wait until this host knows its cluster; more are not answered.
constexpr std::size_t max_held = 4096;

bool is_removed(const cluster& c, address a) {
  if (is_node(c, a)) return c.nodes[node_of(a)].removed;
  if (is_front(c, a)) return c.fronts[front_of(a)].removed;
  return is_gateway(c, a) && c.datacenters[datacenter_of(a)].removed;
}

std::string shown(const host_entry& e) {
  if (e.gpus > 0) return fmt::format("{} {} in {}", e.gpus, e.gpu_type, e.datacenter);
  return fmt::format("datacenter {}", e.datacenter);
}

/// A property of the connection that a message came over; empty: it has none.
std::string_view property(zmq::message_t& m, const char* name) {
  const char* value = zmq_msg_gets(m.handle(), name);
  return value == nullptr ? "" : value;
}

/// The name of the key that the connection was opened with; empty where it is not encrypted.
std::string_view key_of(zmq::message_t& m) {
  return property(m, "User-Id");
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

void greeter::greet(dealer& d) {
  d.next_hello = steady::now() + host_.greetings(1);
  hello h{host_.options.name, host_.options.incarnation, {}, {}};
  if (!host_.options.client) h.entry = host_.entry;
  if (host_.is_node() && !host_.endpoint.empty() && !d.over->direct) h.endpoint = host_.endpoint;
  const auto f = encode(host_.self, d.over->peer, h);
  auto header = outgoing_message(f.header, d.over->unsent, false);
  // Lets the socket see a connection that has just come: sending alone may look only a millisecond
  // later.
  (void)d.socket.get(zmq::sockopt::events);
  // It fails without a connection; the next one is greeted when it stands.
  if (d.socket.send(header, zmq::send_flags::dontwait | zmq::send_flags::sndmore))
    d.socket.send(zmq::message_t{}, zmq::send_flags::dontwait);
}

// Repeated until it is answered: the router may not know its cluster yet, or a greeting was lost
// with a connection.
void greeter::greet_when_due() {
  const auto now = steady::now();
  for (auto& d : sockets_.dealers()) {
    if (d->over->open || d->refused) continue;
    if (now >= d->reconnect_at) reconnect(*d);
    if (now >= d->next_hello) greet(*d);
  }
}

// A ZeroMQ socket that has seen a protocol error connects no more; disconnecting and connecting
// makes it forget that.
void greeter::reconnect(dealer& d) {
  d.reconnect_at = steady::time_point::max();
  try {
    d.socket.disconnect(d.endpoint);
  } catch (const zmq::error_t&) {  // ZeroMQ has forgotten it
  }
  try {
    d.socket.connect(d.endpoint);
  } catch (const zmq::error_t& e) {
    log(log_level::error, "transport", "cannot connect", {{"at", d.endpoint}, {"why", e.what()}});
    d.reconnect_at = steady::now() + host_.greetings(60);
  }
}

greeter::steady::duration greeter::until_greeting() const {
  auto wait = steady::duration{std::chrono::hours{1}};
  const auto now = steady::now();
  for (const auto& d : sockets_.dealers())
    if (!d->over->open && !d->refused)
      wait = std::min(wait,
                      std::max(std::min(d->next_hello, d->reconnect_at) - now, steady::duration{}));
  return wait;
}

// Each greeting may be answered twice, by a repeated hello: a second welcome starts credit anew on
// both sides, which is harmless.
void greeter::on_reply(dealer& d, const message& m) {
  if (const auto* yes = std::get_if<welcome>(&m)) return on_welcome(d, *yes);
  const auto* no = std::get_if<refusal>(&m);
  if (no == nullptr) return;
  // A frame that the other side cannot read costs that frame alone.
  if (no->why.code == reason::kind::malformed && d.over->open) {
    if (const auto lines = host_.pass_line(d.endpoint + "malformed"); lines > 0)
      log(log_level::warn, "transport", "a frame was refused",
          {{"by", d.endpoint}, {"why", no->why.text}, {"times", lines}});
    return;
  }
  if (no->why.code != reason::kind::unknown) return on_refusal(d, no->why);
  // The peer was restarted and does not know this host; each frame in flight causes this reply.
  const bool first = d.over->open.exchange(false);
  if (first) greet(d);
}

void greeter::on_welcome(dealer& d, const welcome& w) {
  const bool is_upstream = d.over->peer == host_.upstream;
  if (host_.options.client) host_.self = w.you;
  const bool first = is_upstream && !host_.options.client && !admitted_;
  if (!host_.options.client && is_upstream && !take_place(w)) {
    return on_refusal(d, {reason::kind::stale,
                          "the controller's new journal gives this host another number: "
                          "restart it"});
  }
  d.over->restart(pump_.fresh_inbox(d.over));
  d.backoff = {};
  if (is_upstream) {
    const std::lock_guard guard{host_.mutex};
    refused_.reset();
    changed_.notify_all();
  }
  if (d.over->direct) links_.on_welcome(*d.over);
  log(log_level::debug, "transport", "welcomed",
      {{"by", host_name(host_.cluster(), d.over->peer)},
       {"as", host_name(host_.cluster(), host_.self)}});
  if (first) admission_due_ = true;
  pump_.flush(*d.over);
}

/// False: this host cannot go on under the number that it has been given.
bool greeter::take_place(const welcome& w) {
  if (admitted_) return w.you == host_.self;
  if (w.cluster) {
    if (!indices_exist(*w.cluster) || host_name(*w.cluster, w.you) != host_.options.name)
      return false;
    host_.options.cluster.replace(*w.cluster);
    const auto up = next_hop(*w.cluster, w.you, controller_address);
    const std::lock_guard guard{host_.mutex};
    if (up != host_.upstream) {
      table_.renumber(host_.upstream, up);
      host_.upstream = up;
    }
    host_.self = w.you;
  }
  admitted_ = true;
  return true;
}

// A host that welcomed others by its own file could give them other numbers than the controller
// does.
bool greeter::knows_cluster() const {
  if (!host_.options.upstream.empty()) return admitted_;
  return !host_.options.waits_for_cluster || host_.options.cluster->version > 0;
}

/// Hellos that came before the admission are answered now, in the order of their routing ids.
bool greeter::admit_held() {
  const bool due = std::exchange(admission_due_, false);
  if (due && host_.options.on_admitted) host_.options.on_admitted();
  if (held_.empty() || !knows_cluster()) return due;
  for (auto& [id, hello] : std::exchange(held_, {})) on_hello(hello.first, hello.second);
  return true;
}

void greeter::on_refusal(dealer& d, reason why) {
  d.over->open = false;
  if (d.over->direct) return links_.on_failure(*d.over, why.text);
  // Permanent for a client, whose user waits for the answer, and if a newer instance of this host
  // has taken over. Other refusals may be fixed at the other side: its list of keys, its cluster
  // file.
  d.refused = host_.options.client || why.code == reason::kind::stale;
  d.backoff = std::clamp(2 * d.backoff, host_.greetings(2), host_.greetings(60));
  d.next_hello = steady::now() + d.backoff;
  // A client's verb prints it.
  if (const auto lines = host_.options.client ? 0 : host_.pass_line(d.endpoint + why.text);
      lines > 0)
    log(log_level::error, "transport", d.refused ? "refused" : "rejected; retrying",
        {{"by", host_name(host_.cluster(), d.over->peer)},
         {"at", d.endpoint},
         {"why", why.text},
         {"times", lines}});
  // A host cannot work without its upstream, but it can without another gateway.
  if (d.over->peer != host_.upstream) return;
  const std::lock_guard guard{host_.mutex};
  refused_ = std::move(why);
  changed_.notify_all();
}

// An interrupted handshake does not mean a wrong key: the listener may have ended, or it is a
// proxy. Only the other side's refusal does.
void greeter::on_handshake_failure(dealer& d, bool for_good) {
  if (d.over->direct) return links_.on_failure(*d.over, "the handshake failed");
  auto text =
      sockets_.encrypts(d.endpoint)
          ? fmt::format("{} does not accept the key of {}", d.endpoint, sockets_.keys()->name)
          : fmt::format("this cluster has keys: --keys DIR{}",
                        host_.options.client ? " or TROUPE_KEYS" : "");
  if (for_good) return on_refusal(d, {reason::kind::refused, std::move(text)});
  text = fmt::format(
      "the handshake with {} was interrupted; the host may be starting, or its key differs from "
      "the list",
      d.endpoint);
  if (const auto lines = host_.pass_line(text); lines > 0)
    log(log_level::warn, "transport", text, {{"times", lines}});
  const std::lock_guard guard{host_.mutex};
  trouble_ = std::move(text);
}

void greeter::watch_dealer(dealer& d) {
  const auto patience = host_.greetings(10);  // with ZeroMQ, which tries again every second
  const auto reconnect_within = [&d](steady::duration wait) {
    d.reconnect_at = std::min(d.reconnect_at, steady::now() + wait);
  };
  while (const auto event = d.monitor->next().number) {
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      d.reconnect_at = steady::time_point::max();
      if (!d.over->open) greet(d);
    } else if (event == ZMQ_EVENT_DISCONNECTED) {
      d.over->open = false;
      d.refused = false;  // the next host at this endpoint may decide otherwise
      if (d.over->direct) links_.on_failure(*d.over, "disconnected");
      reconnect_within(patience);
    } else if ((event & handshake_failures) == 0) {
      d.reconnect_at = steady::time_point::max();  // ZeroMQ is connecting
    } else if (!d.refused) {
      // To a client that came without a key, or with one to a listener without, it is an answer
      // too.
      const bool answer = event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH ||
                          (host_.options.client && event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL);
      on_handshake_failure(d, answer);
      reconnect_within(answer ? d.backoff : patience);
    }
  }
}

// ---- the side that listens

void greeter::watch_router() {
  auto* monitor = sockets_.router_monitor();
  for (auto e = monitor->next(); e.number != 0; e = monitor->next()) {
    if (e.number == ZMQ_EVENT_ACCEPTED) {
      pending_.accepted(e.value);
    } else if (e.number == ZMQ_EVENT_DISCONNECTED) {
      pending_.ended(e.value);
      host_.trim_due = true;
    } else if (sockets_.encrypts(host_.options.listen)) {
      if (const auto lines = host_.pass_line("no key"); lines > 0)
        log(log_level::warn, "transport", "rejected a peer without a valid key",
            {{"at", host_.endpoint}, {"times", lines}});
    }
  }
}

void greeter::reply(const std::string& id, address to, const message& m) {
  lane once;  // for this frame alone: the peer has no lane
  once.peer = to;
  once.routing_id = id;
  pump_.write(once, encode(host_.self, to, m));
}

void greeter::on_unknown_sender(const zmq::message_t& id, const zmq::message_t& header) {
  host_.add(host_state::strangers);
  const auto e = peek(bytes_of(header));
  if (!e && !is_batch(header))
    return reply(id.to_string(), first_client_address, refusal{e.error()});
  if (e && (e->type == type_id<refusal> || e->type == type_id<welcome>))
    return;  // no answers to answers
  reply(id.to_string(), e ? e->from : first_client_address,
        refusal{{reason::kind::unknown, "greet first"}});
}

void greeter::on_hello(zmq::message_t& id_part, zmq::message_t& header) {
  const auto id = id_part.to_string();
  if (!knows_cluster()) {
    if (held_.size() < max_held) held_[id] = {std::move(id_part), std::move(header)};
    return;
  }
  const auto m = decode(bytes_of(header));
  const auto* h = m ? std::get_if<hello>(&m->second) : nullptr;
  if (h == nullptr) {
    host_.add(host_state::malformed);
    return reply(id, first_client_address,
                 refusal{m ? reason{reason::kind::malformed, "malformed hello"} : m.error()});
  }
  const auto key_name = key_of(header);
  const auto who = admit(*h, key_name, id);
  auto l = who ? table_.assign(*who, h->incarnation, id)
               : expected<std::shared_ptr<lane>>{tl::unexpect, who.error()};
  const auto from = property(header, "Peer-Address");
  if (!l) {
    if (const auto lines = host_.pass_line(std::string{from}); lines > 0)
      log(log_level::warn, "transport", "rejected a greeting",
          {{"address", from}, {"name", shown(h->name)}, {"why", l.error().text}, {"times", lines}});
    return reply(id, m->first.from, refusal{l.error()});
  }
  TROUPE_INVARIANT((*l)->peer == *who && (*l)->routing_id == id,
                   "a peer that is welcomed has the lane of its address");
  links_.remember_endpoint(*who, *h, from);
  (*l)->who = caller_with(key_name);
  pending_.welcomed(zmq_msg_get(header.handle(), ZMQ_SRCFD));
  (*l)->restart(pump_.fresh_inbox(*l));
  welcome yes{*who, {}};
  if (h->entry && next_hop(host_.cluster(), *who, controller_address) == host_.self)
    yes.cluster = host_.cluster();
  reply(id, *who, yes);
  log(log_level::debug, "transport", "welcomed a peer",
      {{"name", shown(h->name)}, {"address", *who}, {"incarnation", h->incarnation}});
  pump_.flush(**l);
}

caller greeter::caller_with(std::string_view key_name) const {
  if (key_name.empty()) return {};
  return {std::string{key_name}, sockets_.keys()->role_of(key_name) == key_role::operator_};
}

// A routing id is no proof of identity: ZeroMQ gives it to the latest connection that asks for it.
bool greeter::has_its_key(const lane& l, zmq::message_t& header) const {
  if (!sockets_.encrypts(host_.options.listen)) return true;
  const auto name = key_of(header);
  return !name.empty() && l.who.name == name;
}

/// A key proves a name, and the cluster files of both sides must agree on that name's place; so an
/// old or foreign cluster file is found when its host connects, and not by its effects.
expected<address> greeter::admit(const hello& h, std::string_view key_name, const std::string& id) {
  using enum reason::kind;
  if (sockets_.encrypts(host_.options.listen) && key_name.empty())
    return refuse(refused, "{} did not prove a key", shown(h.name));
  const bool has_key = !key_name.empty();
  const bool is_host_key = has_key && sockets_.keys()->role_of(key_name) == key_role::host;
  if (!h.entry) {
    if (is_host_key)
      return refuse(refused, "the key of {} is a host's: clients need user keys", key_name);
    return admit_client(key_name, id);
  }
  const auto who = admit_host(h);
  if (who && has_key && (!is_host_key || key_name != h.name))
    return refuse(refused, "{} used the key of {}", h.name, key_name);
  return who;
}

/// By the cluster alone, without the key.
expected<address> greeter::admit_host(const hello& h) const {
  const auto& c = host_.cluster();
  const auto& name = host_.options.name;
  using enum reason::kind;
  if (h.entry->cluster != c.name)
    return refuse(refused, "{} is of cluster '{}', and {} of cluster '{}'", shown(h.name),
                  shown(h.entry->cluster), name, c.name);
  const auto who = find_host(c, h.name);
  if (!who) return refuse(refused, "no host '{}' in cluster {}", shown(h.name), c.name);
  if (is_removed(c, *who)) {
    // It may reconnect while its last work has its grace, but not start anew.
    if (!table_.is_newest(*who, h.incarnation))
      return refuse(refused, "{} was removed from the cluster", h.name);
  } else if (const auto right = entry_of(c, *who); right != *h.entry) {
    return refuse(refused, "{} has {} by its own cluster file, and {} by the controller's", h.name,
                  shown(shown(*h.entry)), shown(right));
  }
  // Only nodes of its datacenter connect to a node, for tensors; not even its gateway does.
  const address self = host_.self;
  const bool connects =
      is_node(c, self) ? are_local_nodes(c, self, *who) : next_hop(c, self, *who) == *who;
  if (*who == controller_address || *who == self || !connects ||
      (is_gateway(c, *who) && is_gateway(c, self) && !greets(*who, self)))
    return refuse(refused, "{} must not connect to {}", h.name, name);
  return *who;
}

expected<address> greeter::admit_client(std::string_view key_name, const std::string& id) {
  if (host_.self != controller_address)
    return refuse(reason::kind::refused, "clients must connect to the controller, not to {}",
                  host_.options.name);
  return table_.client_number(id, key_name);
}

void greeter::cut_pending() {
  if (pending_.empty() || steady::now() < pending_check_at_) return;
  pending_check_at_ = steady::now() + std::chrono::milliseconds{pending_.look_every_ms};
  const auto cuts = pending_.cut();
  if (cuts == 0) return;
  host_.trim_due = true;
  if (const auto lines = host_.pass_line("pending"); lines > 0)
    log(log_level::warn, "transport", "closed connections that exceeded the limit before greeting",
        {{"at", host_.endpoint}, {"connections", cuts}, {"times", lines}});
}

// ---- any thread

bool greeter::upstream_open() const {
  return host_.options.upstream.empty() || table_.is_open(host_.upstream);
}

std::optional<reason> greeter::refused() const {
  const std::lock_guard guard{host_.mutex};
  return refused_;
}

expected<void> greeter::wait_until_greeted(double seconds) const {
  std::unique_lock guard{host_.mutex};
  changed_.wait_for(guard, std::chrono::duration<double>(seconds),
                    [this] { return upstream_open() || refused_; });
  if (upstream_open()) return {};
  if (refused_) return refuse(*refused_);
  return refuse(reason::kind::unavailable, "no answer from {} at {} within {:.1f} s{}",
                host_name(host_.cluster(), host_.upstream), host_.options.upstream, seconds,
                trouble_.empty() ? "" : " (" + trouble_ + ")");
}

}  // namespace troupe::runtime
