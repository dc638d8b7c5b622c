#include "actors/training/trainer/healing.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

healing::healing(training_plan& plan, std::function<std::uint32_t(address)> datacenter_of)
    : stages_{plan.stages_each()} {
  std::set<replica_id> all;
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    auto& s = plan.stages[i];
    s.view = 0;
    hosts_.push_back(i);
    addresses_.push_back(s.neighbours[s.name.stage]);
    datacenters_.push_back(datacenter_of(addresses_.back()));
    devices_.push_back(s.devices);
    all.insert(id_of(i));
  }
  change_ = view_change{std::move(all), stages_};
}

std::vector<std::size_t> healing::sharing(std::size_t i) const {
  std::vector<std::size_t> all;
  for (std::size_t j = 0; j < hosts_.size(); ++j)
    if (hosts_[j] == hosts_[i]) all.push_back(j);
  return all;
}

/// The device that takes over: of the same stage, in the same datacenter.
std::optional<std::size_t> healing::best_host(std::size_t i, std::optional<std::size_t> but) const {
  std::optional<std::size_t> best;
  std::ptrdiff_t fewest = 0;
  for (std::size_t h = i % stages_; h < hosts_.size(); h += stages_) {
    if (!is_alive(h) || h == but || datacenters_[h] != datacenters_[i]) continue;
    const auto has = std::ranges::count(hosts_, h);
    if (!best || has < fewest) best = h, fewest = has;
  }
  return best;
}

bool healing::can_lose(std::size_t i) const {
  if (!heals()) return false;
  const auto moves = [&](std::size_t j) { return best_host(j, hosts_[i]).has_value(); };
  return std::ranges::all_of(sharing(i), moves) && std::ranges::all_of(lost_, moves) &&
         std::ranges::all_of(joining_, moves) && std::ranges::all_of(returning_, moves);
}

void healing::lose(std::size_t i, double now_s) {
  TROUPE_INVARIANT(can_lose(i), "a device is lost whose stages others can take over");
  if (!std::exchange(heals_now_, true)) began_s_ = now_s;
  // Those that had been placed in a view that did not begin are placed anew, and no device joins
  // in it.
  auto stages = std::exchange(joining_, {});
  auto devices = std::exchange(returning_, {});
  devices.insert(hosts_[i]);
  for (const auto h : devices) {
    for (std::size_t j = 0; j < hosts_.size(); ++j)
      if (hosts_[j] == h) stages.push_back(j);
    gone_[h] = {++numbers_, ++losses_[h]};
  }
  for (const auto j : stages) {
    change_.suspect(id_of(j));
    if (std::ranges::find(lost_, j) == lost_.end()) lost_.push_back(j);
  }
  std::ranges::sort(lost_);
}

bool healing::can_await(std::size_t i) const {
  return heals() && lost_.empty() && joining_.empty() && sharing(i).size() == 1 && !has_failed() &&
         (!losses_.contains(i) || losses_.at(i) < max_returns);
}

// Those that were about to join with copies of theirs begin anew, too: where they stand is not
// known.
void healing::await(std::size_t i, double now_s) {
  TROUPE_INVARIANT(can_await(i), "a stage is awaited while no other one is taken over");
  if (!std::exchange(heals_now_, true)) began_s_ = now_s;
  auto devices = std::exchange(returning_, {});
  devices.insert(i);
  for (const auto h : devices) {
    gone_[h] = {++numbers_, ++losses_[h]};
    gone_[h].awaited = true;
    gone_[h].since_s = gone_[h].ask_at_s = now_s;
  }
  change_.regather();
}

bool healing::awaits(std::size_t i) const {
  const auto at = gone_.find(i);
  return at != gone_.end() && at->second.awaited;
}

bool healing::on_copies(std::size_t i, std::vector<std::uint64_t> iterations) {
  if (!is_gathering() || !awaits(i)) return false;
  change_.on_place(id_of(i), view(), {0, false, true, std::move(iterations)});
  return decide();
}

// The more often it was lost, the later it is asked: each return costs an iteration under way.
std::vector<healing::absent_device> healing::take_absent(double now_s, double every_s,
                                                         double held_s) {
  std::vector<absent_device> due;
  for (auto& [h, g] : gone_) {
    if (g.times > max_returns || returning_.contains(h)) continue;
    if (g.ask_at_s == 0) {
      g.since_s = now_s;
      g.ask_at_s = now_s + every_s * static_cast<double>(1U << g.times) / 2;
    }
    if (now_s < g.ask_at_s || (!g.answered && now_s > g.since_s + held_s)) continue;
    g.ask_at_s = now_s + every_s;
    due.push_back({h, g.number, addresses_[h]});
  }
  return due;
}

stage_setup healing::standby_of(const training_plan& plan, const absent_device& d) const {
  auto s = plan.stages[d.stage];
  s.devices = devices_[d.stage];
  s.shares_with.reset();
  s.standby = d.number;
  s.first_iteration = 0;
  s.view = 0;
  return s;
}

bool healing::on_standby(std::size_t i, std::uint64_t number, address from, answer what) {
  const auto at = gone_.find(i);
  if (at == gone_.end() || at->second.number != number || addresses_[i] != from) return false;
  auto& g = at->second;
  g.answered = true;
  if (what == answer::failed) g = {++numbers_, ++losses_[i], 0, 0, true};
  if (what == answer::ready) g.stands_by = true;
  return true;
}

bool healing::can_rejoin() const {
  return heals() && std::ranges::any_of(gone_, [&](const auto& g) {
           return g.second.stands_by && best_host(g.first).has_value();
         });
}

void healing::rejoin(double now_s) {
  TROUPE_INVARIANT(!is_changing() && can_rejoin(), "a device joins a stable view");
  began_s_ = now_s;
  change_.regather();
}

bool healing::on_place(std::size_t i, const view_place& at, std::vector<std::uint64_t> copies) {
  if (!is_gathering() || awaits(i)) return false;
  if (at.view == view() && at.update && (at.boundary > updated_ || !update_)) {
    updated_ = at.boundary;
    update_ = at.update;
  }
  change_.on_place(id_of(i), at.view,
                   {at.boundary, at.ready, at.restores.value_or(false), std::move(copies)});
  return decide();
}

bool healing::decide() {
  if (change_.state() != view_change::phase::registering &&
      change_.state() != view_change::phase::beginning)
    return false;
  change_.on_registered(change_.number());
  return true;
}

const agreed_update* healing::last_update() const {
  return update_ && updated_ == from() ? &*update_ : nullptr;
}

const pipeline_record* healing::record_of(std::uint32_t pipeline) const {
  const auto* update = last_update();
  if (!update) return nullptr;
  const auto& all = update->records;
  const auto at = std::ranges::find(all, pipeline, &pipeline_record::pipeline);
  return at == all.end() ? nullptr : &*at;
}

/// It shares nothing: its own device has the state of a peer.
void healing::place_back(training_plan& plan, std::size_t i) {
  hosts_[i] = i;
  auto& s = plan.stages[i];
  s.devices = devices_[i];
  s.shares_with.reset();
  s.first_iteration = from();
  s.view = view();
  returning_.insert(i);
}

void healing::place(training_plan& plan,
                    const std::function<std::uint64_t(std::size_t)>& reported) {
  const auto is_lost = [&](std::size_t i) { return std::ranges::count(lost_, i) > 0; };
  for (const auto& [h, g] : gone_)
    if (g.stands_by && !is_lost(h) && reported(h) >= from() && (g.awaited || best_host(h)))
      place_back(plan, h);
  for (const auto i : lost_) {
    const auto host = best_host(i);
    TROUPE_INVARIANT(host, "a stage that was lost has a peer that takes it over");
    hosts_[i] = *host;
    auto& s = plan.stages[i];
    s.devices = devices_[*host];
    s.shares_with = static_cast<std::uint32_t>(*host / stages_);
    s.first_iteration = from();
    s.view = view();
    change_.join(id_of(i));
  }
  if (!so_far_) so_far_.emplace();
  ++so_far_->repeated;
  so_far_->lost += lost_.size();
  joining_ = std::exchange(lost_, {});
  for (auto& s : plan.stages) {
    for (std::uint32_t k = 0; k < stages_; ++k)
      s.neighbours[k] = addresses_[hosts_[s.name.pipeline * stages_ + k]];
    for (std::uint32_t p = 0; p < s.peers.size(); ++p)
      s.peers[p] = addresses_[hosts_[p * stages_ + s.name.stage]];
  }
}

bool healing::on_begun(std::size_t i, std::uint64_t view, double now_s) {
  if (!is_changing()) return false;
  change_.on_begun(id_of(i), view);
  if (is_changing()) return false;
  joining_.clear();
  if (std::exchange(heals_now_, false)) {
    ++so_far_->count;
    so_far_->seconds += now_s - began_s_;
  }
  joined_now_ = returning_.size();
  if (joined_now_ > 0) so_far_->joined = so_far_->joined.value_or(0) + joined_now_;
  for (const auto h : std::exchange(returning_, {})) gone_.erase(h);
  return true;
}

std::vector<std::size_t> healing::unanswered() const {
  std::vector<std::size_t> all;
  for (const auto& r : change_.unanswered()) all.push_back(index_of(r));
  return all;
}

view_begin healing::begin_of(const training_plan& plan, std::size_t i) const {
  const auto& s = plan.stages[i];
  view_begin b{view(), from(), s.neighbours, s.peers, {}};
  if (!change_.is_level()) b.update = *last_update();
  if (change_.restores()) b.restores = true;
  for (const auto j : sharing(i)) b.pipelines.push_back(plan.stages[j].name.pipeline);
  for (const auto h : returning_) {
    if (awaits(h)) continue;
    const auto giver = best_host(h);
    TROUPE_INVARIANT(giver, "a joiner has a peer that gives it its state");
    if (h == i) b.takes = plan.stages[*giver].name.pipeline;
    if (*giver != i) continue;
    if (!b.gives) b.gives.emplace();
    b.gives->push_back(plan.stages[h].name.pipeline);
  }
  return b;
}

}  // namespace troupe::actors
