#include "runtime/zeromq/connection_table.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::runtime {
namespace {

// 'T', hash of the peer's name, its secret number, the connection's number, number of connections.
constexpr std::size_t routing_id_bytes = 19;

/// The number of a connection, and of how many it is one. Other programs may use any id: theirs is
/// the only connection. The bytes are untrusted.
std::pair<std::uint32_t, std::uint32_t> connection_of(const std::string& id) {
  if (id.size() != routing_id_bytes || id.front() != 'T') return {0, 1};
  const auto number = static_cast<std::uint8_t>(id[17]), of = static_cast<std::uint8_t>(id[18]);
  if (of > max_connections || number >= of) return {0, 1};
  return {number, of};
}

/// Which of several connections carries a lane: the first is lane 0's alone (transport.hpp).
std::size_t choose(std::uint32_t lane, std::size_t connections) {
  return lane == 0 || connections < 2 ? 0 : 1 + (lane - 1) % (connections - 1);
}

}  // namespace

std::shared_ptr<lane> connection_table::route(address hop, std::uint32_t lane_number) const {
  const auto found = peers_.find(hop);
  if (found == peers_.end()) return {};
  const auto& lanes = found->second.lanes;
  TROUPE_INVARIANT(!lanes.empty(), "a peer that is known has a lane");
  return lanes[choose(lane_number, lanes.size())];
}

bool connection_table::room_for(const lane& l, std::size_t bytes) const {
  const auto& o = host_.options;
  // While the peer is not connected, only a window's worth is queued.
  const std::size_t max = l.open ? o.queue_frames : o.window_frames;
  if (l.queued_frames >= max) return false;
  if (!is_client(l.peer)) return l.queued_bytes < o.queue_bytes;
  // Clients are untrusted and many: their queues have a bound together, too.
  return l.queued_bytes < o.client_queue_bytes &&
         clients_queued_bytes_ + clients_unsent_->now() + bytes <= o.clients_bytes;
}

void connection_table::count_queued(lane& l, std::size_t bytes) {
  TROUPE_INVARIANT(l.queued_frames > 0 || l.queued_bytes == 0,
                   "a lane without frames has no bytes queued");
  l.queued_frames += 1;
  l.queued_bytes += bytes;
  if (is_client(l.peer)) clients_queued_bytes_ += bytes;
}

void connection_table::count_written(lane& l, std::size_t frames, std::size_t bytes) {
  TROUPE_INVARIANT(l.queued_frames >= frames && l.queued_bytes >= bytes,
                   "what is written had been queued in its lane");
  l.queued_frames -= frames;
  l.queued_bytes -= bytes;
  TROUPE_INVARIANT(l.queued_frames > 0 || l.queued_bytes == 0,
                   "the last frame of a lane takes the last bytes with it");
  if (!is_client(l.peer)) return;
  TROUPE_INVARIANT(clients_queued_bytes_ >= bytes,
                   "what is written to a client was counted as queued for clients");
  clients_queued_bytes_ -= bytes;
}

bool connection_table::is_open(address who) const {
  const auto found = peers_.find(who);
  return found != peers_.end() &&
         std::ranges::all_of(found->second.lanes, [](const auto& l) { return l->open.load(); });
}

void connection_table::renumber(address before, address now) {
  TROUPE_INVARIANT(peers_.contains(before) && !peers_.contains(now),
                   "a peer gets a number that no other has");
  auto known = peers_.extract(before);
  known.key() = now;
  for (const auto& l : known.mapped().lanes) l->peer = now;
  TROUPE_INVARIANT(
      std::ranges::all_of(known.mapped().lanes, [&](const auto& l) { return l->peer == now; }),
      "the lanes of a peer have its number");
  peers_.insert(std::move(known));
}

const std::string* connection_table::endpoint_of(address node) const {
  const auto at = peers_.find(node);
  return at == peers_.end() ? nullptr : &at->second.endpoint;
}

void connection_table::set_endpoint(address node, std::string endpoint) {
  if (const auto at = peers_.find(node); at != peers_.end())
    at->second.endpoint = std::move(endpoint);
}

expected<std::shared_ptr<lane>> connection_table::assign(address who, std::uint64_t incarnation,
                                                         const std::string& id) {
  if (!is_client(who)) {
    auto& newest = newest_[who];
    if (incarnation < newest)
      return refuse(reason::kind::stale, "superseded by a newer instance of {}",
                    host_name(host_.cluster(), who));
    newest = incarnation;
  }
  const auto [number, of] = connection_of(id);
  TROUPE_INVARIANT(number < of && of <= max_connections,
                   "a peer's connection is one of as many as it may have");
  const std::lock_guard guard{host_.mutex};
  if (is_client(who) && !peers_.contains(who)) ++clients_;
  auto& p = peers_[who];
  p.last_greeting = ++greetings_;
  if (p.incarnation != incarnation || p.lanes.size() != of) {
    for (const auto& l : p.lanes) reset(l);
    p.incarnation = incarnation;
    p.lanes.clear();
    while (p.lanes.size() < of) p.lanes.push_back(new_lane(who));
  }
  TROUPE_INVARIANT(number < p.lanes.size(), "a lane's number is below the peer's number of lanes");
  const auto& l = p.lanes[number];
  if (l->routing_id != id) take_id(l, id);
  TROUPE_INVARIANT(by_id_.at(id) == l, "a routing id leads to the lane that has it");
  return l;
}

std::shared_ptr<lane> connection_table::new_lane(address who) const {
  auto l = std::make_shared<lane>();
  l->peer = who;
  l->direct = are_local_nodes(host_.cluster(), host_.self, who);
  if (is_client(who))
    l->unsent = std::make_shared<unsent_bytes>(clients_unsent_);
  else
    l->batches = true;  // a client may be another program, which knows no batches
  return l;
}

/// The connection takes this routing id from the one that had it.
void connection_table::take_id(const std::shared_ptr<lane>& l, const std::string& id) {
  if (const auto other = by_id_.find(id); other != by_id_.end())
    reset(std::shared_ptr{other->second});
  by_id_.erase(l->routing_id);
  last_lane_ = nullptr;
  TROUPE_INVARIANT(!by_id_.contains(id), "a routing id is one lane's");
  l->routing_id = id;
  by_id_[id] = l;
}

address connection_table::client_number(const std::string& id, std::string_view key_name) {
  if (const auto* known = find(id); known != nullptr && is_client(known->peer) &&
                                    (key_name.empty() || known->who.name == key_name))
    return known->peer;
  if (clients_ < host_.options.max_clients) return next_client_++;
  const std::lock_guard guard{host_.mutex};
  auto oldest = peers_.end();
  for (auto p = peers_.begin(); p != peers_.end(); ++p)
    if (is_client(p->first) &&
        (oldest == peers_.end() || p->second.last_greeting < oldest->second.last_greeting))
      oldest = p;
  if (oldest != peers_.end()) {
    for (const auto& l : oldest->second.lanes) reset(l);
    peers_.erase(oldest);
    TROUPE_INVARIANT(clients_ > 0, "a client that makes room had been counted");
    --clients_;
  }
  return next_client_++;
}

bool connection_table::is_newest(address who, std::uint64_t incarnation) const {
  const auto known = newest_.find(who);
  return known != newest_.end() && known->second == incarnation;
}

// Under the lock. Drops the frames queued for this connection. The peer's next connection may have
// the same routing id, and finds the lane empty.
void connection_table::reset(const std::shared_ptr<lane>& l) {
  host_.add(host_state::lost, l->waiting.size() + l->fresh.size());
  if (is_client(l->peer)) {
    TROUPE_INVARIANT(clients_queued_bytes_ >= l->queued_bytes,
                     "what a client's lane has queued was counted for clients");
    clients_queued_bytes_ -= l->queued_bytes;
  }
  l->open = false;
  l->waiting = {};
  l->fresh = {};
  l->queued_frames = l->queued_bytes = 0;
  by_id_.erase(std::exchange(l->routing_id, {}));
  last_lane_ = nullptr;
  host_.trim_due = true;
}

void connection_table::remove(const std::string& id) {
  const auto found = by_id_.find(id);
  // Open: the peer has greeted again since the write that failed.
  if (found == by_id_.end() || found->second->open) return;
  const auto over = found->second;
  TROUPE_INVARIANT(over->routing_id == id, "a lane that is removed is found by its own id");
  const std::lock_guard guard{host_.mutex};
  reset(over);
  const auto p = peers_.find(over->peer);
  if (p == peers_.end()) return;
  if (std::ranges::any_of(p->second.lanes, [](const auto& l) { return l->open.load(); })) return;
  peers_.erase(p);
  if (!is_client(over->peer)) return;
  TROUPE_INVARIANT(clients_ > 0, "a client that goes had been counted");
  --clients_;
}

lane* connection_table::find(const zmq::message_t& id) {
  if (last_lane_ != nullptr && id.to_string_view() == last_id_) return last_lane_;
  last_id_ = id.to_string();
  last_lane_ = find(last_id_);
  return last_lane_;
}

lane* connection_table::find(const std::string& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second.get();
}

}  // namespace troupe::runtime
