#include "actors/training/replicas/view_change.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

namespace {

/// None: there is no boundary of which each has a copy.
std::optional<std::uint64_t> newest_copy(const std::map<replica_id, replica_place>& places) {
  std::optional<std::uint64_t> newest;
  for (const auto boundary : places.begin()->second.copies) {
    const bool all = std::ranges::all_of(places, [&](const auto& p) {
      return std::ranges::find(p.second.copies, boundary) != p.second.copies.end();
    });
    if (all) newest = std::max(newest.value_or(boundary), boundary);
  }
  return newest;
}

bool any_restores(const std::map<replica_id, replica_place>& places) {
  return std::ranges::any_of(places, [](const auto& p) { return p.second.restores; });
}

}  // namespace

std::optional<std::uint64_t> common_boundary(const std::map<replica_id, replica_place>& places) {
  if (any_restores(places)) return newest_copy(places);
  auto first = places.begin()->second.boundary, last = first;
  for (const auto& [who, at] : places) {
    first = std::min(first, at.boundary);
    last = std::max(last, at.boundary);
  }
  const bool behind_are_ready = std::ranges::all_of(
      places, [&](const auto& p) { return p.second.boundary > first || p.second.ready; });
  if (last == first) return first;
  if (last > first + 1 || !behind_are_ready) return {};
  return last;
}

view_change view_change::in_new_term(std::set<replica_id> registered, std::uint32_t stages) {
  view_change v{std::move(registered), stages};
  v.gather();
  return v;
}

void view_change::gather() {
  ++number_;
  places_.clear();
  begun_.clear();
  phase_ = has_every_stage() ? phase::gathering : phase::lost;
}

bool view_change::has_every_stage() const {
  std::set<std::uint32_t> found;
  for (const auto& r : members_) found.insert(r.stage);
  return found.size() == stages_;
}

void view_change::regather() {
  TROUPE_INVARIANT(phase_ != phase::lost, "a view changes for a replica while none is lost");
  gather();
}

void view_change::suspect(const replica_id& r) {
  if (phase_ != phase::lost && members_.erase(r) > 0) gather();
}

void view_change::on_place(const replica_id& r, std::uint64_t number, const replica_place& at) {
  if (phase_ != phase::gathering || number != number_ || !members_.contains(r)) return;
  places_.emplace(r, at);
  if (places_.size() == members_.size()) decide();
}

void view_change::decide() {
  const auto together = common_boundary(places_);
  if (!together) {
    phase_ = phase::lost;
    return;
  }
  from_ = *together;
  phase_ = members_ == registered_ ? phase::beginning : phase::registering;
}

bool view_change::is_level() const {
  return restores() ||
         std::ranges::all_of(places_, [&](const auto& p) { return p.second.boundary == from_; });
}

bool view_change::restores() const {
  return any_restores(places_);
}

void view_change::on_registered(std::uint64_t number) {
  if (phase_ != phase::registering || number != number_) return;
  registered_ = members_;
  phase_ = phase::beginning;
}

void view_change::join(const replica_id& r) {
  TROUPE_INVARIANT(phase_ == phase::beginning, "a replica joins a view that begins");
  members_.insert(r);
  registered_ = members_;
}

void view_change::on_begun(const replica_id& r, std::uint64_t number) {
  if (phase_ != phase::beginning || number != number_ || !members_.contains(r)) return;
  begun_.insert(r);
  if (begun_.size() == members_.size()) phase_ = phase::stable;
}

std::vector<replica_id> view_change::unanswered() const {
  std::vector<replica_id> all;
  for (const auto& r : members_) {
    if (phase_ == phase::gathering && !places_.contains(r)) all.push_back(r);
    if (phase_ == phase::beginning && !begun_.contains(r)) all.push_back(r);
  }
  return all;
}

}  // namespace troupe::actors
