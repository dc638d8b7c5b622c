#include "actors/serving/decoder/request_table.hpp"

#include <vector>

#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

// A front that has been started again knows none of its former requests, whose sequences hold
// pages: its first message ends them.
bool request_table::is_current(address from, const request_name& n, const dropper& drop) {
  if (from != n.front) return false;
  auto& f = fronts_[from];
  if (n.incarnation < f.incarnation) return false;
  if (n.incarnation > f.incarnation) {
    drop_front(from, f.incarnation, drop);
    f.incarnation = n.incarnation;
  }
  f.silent_since_s = never;
  return true;
}

// From the first unanswered statement on, not from the last: repetitions must not extend it.
void request_table::expect_answer(address front, double now_s) {
  if (auto& f = fronts_[front]; f.silent_since_s == never) f.silent_since_s = now_s;
}

void request_table::drop_silent(double now_s, double limit_s, const dropper& drop) {
  for (auto& [a, f] : fronts_) {
    if (now_s - f.silent_since_s <= limit_s) continue;
    drop_front(a, f.incarnation, drop);
    f.silent_since_s = never;
  }
}

// The keys first: dropping erases from the map.
void request_table::drop_front(address front, std::uint64_t incarnation, const dropper& drop) {
  std::vector<request_key> all;
  for (const auto& [k, r] : requests_)
    if (k.front == front && k.incarnation <= incarnation) all.push_back(k);
  for (const auto& k : all) drop(k);
}

request_table::request& request_table::add(request r) {
  const auto k = key_of(r.about.name);
  const bool alone = by_sequence_.emplace(r.sequence, k).second;
  TROUPE_INVARIANT(alone, "a sequence is one request's");
  const auto [at, fresh] = requests_.emplace(k, std::move(r));
  TROUPE_INVARIANT(fresh, "a request is added once");
  return at->second;
}

request_table::request* request_table::find(const request_name& n) {
  auto* r = find_in(requests_, key_of(n));
  return r && r->about.name == n ? r : nullptr;
}

request_table::request* request_table::find(gpu::sequence_id s) {
  const auto* k = find_in(by_sequence_, s);
  return k ? &requests_.at(*k) : nullptr;
}

void request_table::erase(const request_key& k) {
  const auto at = requests_.find(k);
  TROUPE_INVARIANT(at != requests_.end(), "a request that is forgotten was known");
  TROUPE_INVARIANT(at->second.output.ended() && !by_sequence_.contains(at->second.sequence),
                   "a request that is forgotten has ended, and its sequence is gone");
  remember(at->second.output.final_state());
  changed_.erase(k);
  requests_.erase(at);
}

const generated* request_table::ending_of(const request_name& n) const {
  const auto* ending = endings_.find(key_of(n));
  return ending && ending->name.attempt >= n.attempt ? ending : nullptr;
}

}  // namespace troupe::actors
