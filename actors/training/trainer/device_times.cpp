#include "actors/training/trainer/device_times.hpp"

#include "messages/base/find_in.hpp"
#include "messages/wire/task_kind.hpp"

namespace troupe::actors {

// Busy times are summed for all iterations; tasks are kept for the iterations that not all stages
// have reported, as many of each stage as one timeline can show.
void device_times::add(const stage_report& r) {
  const stage_key who{r.name.pipeline, r.name.stage};
  auto& busy = busy_s_[who];
  busy.resize(task_kinds.size());
  auto& kept = incomplete_[r.iteration][who];
  for (const auto& t : r.tasks) {
    if (!facts_of_task(t.what)) continue;  // what a stage reports is not checked
    busy[t.what] += t.end_s - t.begin_s;
    if (kept.size() < max_tasks) kept.push_back(t);
  }
}

// Older iterations are dropped with this one: reports of a stage come in order.
void device_times::complete(std::uint64_t iteration, double begin_s, double end_s) {
  const auto done = incomplete_.find(iteration);
  if (done == incomplete_.end()) return;
  newest_ = std::move(done->second);
  incomplete_.erase(incomplete_.begin(), std::next(done));
  iteration_ = iteration;
  length_s_ = end_s - begin_s;
  for (auto& [who, all] : newest_)
    for (auto& t : all) t.begin_s -= begin_s, t.end_s -= begin_s;
}

// A timeline that is too long would be cut off arbitrarily: its stages then show busy times alone.
std::optional<iteration_timeline> device_times::report(const training_plan& plan) const {
  if (iteration_ == 0) return {};
  std::size_t count = 0;
  for (const auto& [who, all] : newest_) count += all.size();
  iteration_timeline result{iteration_, length_s_, {}};
  for (const auto& setup : plan.stages) {
    const stage_key who{setup.name.pipeline, setup.name.stage};
    const auto* busy = find_in(busy_s_, who);
    if (!busy) continue;
    const auto* known = find_in(newest_, who);
    const bool shown = known && count <= max_tasks;
    result.stages.push_back({who.first, who.second, node_of(setup.neighbours[setup.name.stage]),
                             setup.devices, shown ? *known : std::vector<timed_task>{}, *busy});
  }
  return result;
}

}  // namespace troupe::actors
