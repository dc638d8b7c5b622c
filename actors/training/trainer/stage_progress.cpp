#include "actors/training/trainer/stage_progress.hpp"

#include <algorithm>
#include <utility>

#include "actors/training/stage/stage_times.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

void stage_progress::means::add(const stage_costs& k) {
  ++iterations;
  for (const auto time : measured_costs) sum.*time += k.*time;
  if (k.norms_s) sum.norms_s = sum.norms_s.value_or(0) + *k.norms_s;
}

stage_costs stage_progress::means::mean() const {
  auto k = sum;
  for (const auto time : measured_costs) k.*time /= std::max(1U, iterations);
  if (k.norms_s) *k.norms_s /= std::max(1U, iterations);
  return k;
}

void stage_progress::begin(const training_plan& plan, std::size_t kept) {
  stages_each_ = plan.stages_each();
  pipelines_ = plan.pipelines();
  kept_ = kept;
  stages_.resize(plan.stages.size());
  TROUPE_INVARIANT(stages_.size() == std::size_t{stages_each_} * pipelines_,
                   "each stage of each pipeline has its progress");
}

void stage_progress::resume_after(std::uint64_t iteration) {
  for (auto& s : stages_) s.done = iteration, s.saved = {iteration};
}

void stage_progress::add_round_trip(std::size_t i, const stage_report& r, double now_s) {
  if (r.request_sent_s > 0)
    stages_[i].clock.sample(r.request_sent_s, r.received_s, r.replied_s, now_s);
}

// The group id and the reason come with the first report only; later ones have neither.
bool stage_progress::set_ready(std::size_t i, const stage_report& r) {
  auto& s = stages_[i];
  TROUPE_INVARIANT(!s.ready, "a stage becomes ready once in an attempt");
  s.ready = true;
  s.communicator_id = r.communicator_id;
  s.fallback_reason = r.fallback_reason;
  ++ready_;
  TROUPE_INVARIANT(ready_ <= stages_.size(), "no more stages are ready than there are");
  return ready_ == stages_.size();
}

void stage_progress::begin_again(std::size_t i) {
  auto& s = stages_[i];
  if (std::exchange(s.ready, false)) --ready_;
  s.clock = {};
}

const reason* stage_progress::fallback_reason(std::uint32_t stage) const {
  for (std::uint32_t p = 0; p < pipelines_; ++p)
    if (const auto& why = of(p, stage).fallback_reason; !why.text.empty()) return &why;
  return nullptr;
}

void stage_progress::set_joined(std::size_t i, const stage_report& r) {
  TROUPE_INVARIANT(stages_[i].ready, "a stage joins its group after it is ready");
  stages_[i].joined = *r.joined;
  if (!*r.joined) stages_[i].fallback_reason = r.fallback_reason;
}

// One that could not join is enough: its peers need not answer.
bool stage_progress::groups_are_settled() const {
  for (std::uint32_t s = 0; s < stages_each_; ++s)
    for (std::uint32_t p = 0; p < pipelines_; ++p)
      if (!communicator_id(s).empty() && !of(p, s).joined) return false;
  return true;
}

// Pipeline 0's device has made it, for all peers.
const std::vector<std::uint8_t>& stage_progress::communicator_id(std::uint32_t stage) const {
  static const std::vector<std::uint8_t> none;
  return fallback_reason(stage) ? none : of(0, stage).communicator_id;
}

void stage_progress::add(std::size_t i, const stage_report& r) {
  auto& s = stages_[i];
  TROUPE_INVARIANT(r.iteration == s.done + 1, "iterations of a stage are counted one by one");
  s.done = r.iteration;
  set_saved(i, r.saved);
  s.measured.push_back(r.measured);
  if (s.measured.size() > kept_) s.measured.pop_front();
  TROUPE_INVARIANT(s.ready, "a stage does iterations after it is ready");
  s.window.add(r.measured);
  s.max_in_flight = std::max(s.max_in_flight, r.max_in_flight);
}

void stage_progress::set_saved(std::size_t i, std::uint64_t saved) {
  TROUPE_INVARIANT(i < stages_.size(), "a checkpoint is reported of a stage that is known");
  constexpr std::size_t kept = 64;  // stages are nearer to each other than that
  auto& all = stages_[i].saved;
  all.insert(saved);
  if (all.size() > kept) all.erase(all.begin());
}

std::uint64_t stage_progress::saved_by_all(std::uint64_t limit) const {
  const auto& first = of(0, 0).saved;
  for (auto at = first.upper_bound(limit); at != first.begin();) {
    --at;
    bool all = true;
    for (std::uint32_t s = 1; s < stages_each_ && all; ++s) all = of(0, s).saved.contains(*at);
    if (all) return *at;
  }
  return 0;
}

std::optional<std::uint64_t> stage_progress::halt(std::size_t i, std::uint64_t at) {
  TROUPE_INVARIANT(i < stages_.size(), "a stage that halts is known");
  stages_[i].halts_at = at;
  std::uint64_t furthest = 0;
  for (const auto& s : stages_) {
    if (!s.halts_at) return {};
    furthest = std::max(furthest, *s.halts_at);
  }
  return furthest;
}

std::vector<stage_costs> stage_progress::take_means() {
  std::vector<stage_costs> all;
  for (auto& s : stages_) all.push_back(std::exchange(s.window, {}).mean());
  return all;
}

std::vector<stage_costs> stage_progress::medians() const {
  std::vector<stage_costs> all;
  for (const auto& s : stages_) all.push_back(median(s.measured));
  return all;
}

stage_costs stage_progress::slowest(std::uint32_t stage) const {
  stage_costs result;
  for (std::uint32_t p = 0; p < pipelines_; ++p) {
    const auto m = median(of(p, stage).measured);
    for (const auto time : measured_costs) result.*time = std::max(result.*time, m.*time);
    result.norms_s = std::max(result.norms_s, m.norms_s);
    result.activation_bytes = std::max(result.activation_bytes, m.activation_bytes);
    result.gradient_bytes = std::max(result.gradient_bytes, m.gradient_bytes);
    result.tied_bytes = std::max(result.tied_bytes, m.tied_bytes);
  }
  return result;
}

std::uint32_t stage_progress::max_in_flight(std::uint32_t stage) const {
  std::uint32_t max = 0;
  for (std::uint32_t p = 0; p < pipelines_; ++p) max = std::max(max, of(p, stage).max_in_flight);
  return max;
}

}  // namespace troupe::actors
