#include "actors/training/device/stage_replica.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

stage_backend stage_replica::backend() const {
  const std::lock_guard lock{guard_};
  return {device_.lock(), nullptr, norms_.lock(), worker_};
}

void stage_replica::set_backend(const stage_backend& b) {
  const std::lock_guard lock{guard_};
  device_ = b.device;
  norms_ = b.norms;
  worker_ = b.worker;
}

std::shared_ptr<gpu::simulated_values> stage_replica::values() const {
  const std::lock_guard lock{guard_};
  return values_.lock();
}

void stage_replica::set_values(const std::shared_ptr<gpu::simulated_values>& v) {
  const std::lock_guard lock{guard_};
  values_ = v;
}

void stage_replica::take(std::uint64_t iteration) {
  const std::lock_guard lock{guard_};
  TROUPE_INVARIANT(!updating_, "a device that takes a state updates nothing");
  iteration_ = iteration;
}

bool stage_replica::begin(std::uint64_t view, const std::vector<std::uint32_t>& pipelines,
                          bool resets) {
  const std::lock_guard lock{guard_};
  TROUPE_INVARIANT(view_ <= view, "views of a training are begun in their order");
  TROUPE_INVARIANT(std::ranges::is_sorted(pipelines),
                   "pipelines go through a stage in ascending order");
  if (view_ < view) {
    view_ = view;
    pipelines_ = pipelines;
    resetting_ = has_begun_ = false;
    // A stage that is new in the view may wait already; those that have stopped wait again.
    wake_all();
  }
  if (!resets || std::exchange(has_begun_, true)) return false;
  resetting_ = true;
  taken_.clear();
  return true;
}

void stage_replica::end_reset() {
  const std::lock_guard lock{guard_};
  resetting_ = false;
  wake_all();
}

bool stage_replica::is_shared() const {
  const std::lock_guard lock{guard_};
  return pipelines_.size() > 1;
}

bool stage_replica::may_step(std::uint32_t pipeline, std::uint64_t view, std::uint64_t iteration,
                             wake w) {
  const std::lock_guard lock{guard_};
  const bool may = !resetting_ && view_ == view && iteration_ == iteration &&
                   std::ranges::all_of(pipelines_, [&](std::uint32_t p) {
                     const auto at = taken_.find(p);
                     return p >= pipeline || (at != taken_.end() && at->second > iteration);
                   });
  if (may)
    has_begun_ = true;
  else
    waiting_.push_back(std::move(w));
  return may;
}

bool stage_replica::has_done(std::uint64_t iteration, wake w) {
  const std::lock_guard lock{guard_};
  if (iteration_ < iteration) waiting_.push_back(std::move(w));
  return iteration_ >= iteration;
}

void stage_replica::end_steps(std::uint32_t pipeline, std::uint64_t iteration) {
  const std::lock_guard lock{guard_};
  taken_[pipeline] = iteration + 1;
  wake_all();
}

stage_replica::update stage_replica::begin_update(std::uint64_t iteration, wake w) {
  const std::lock_guard lock{guard_};
  if (iteration_ > iteration) return update::done;
  TROUPE_INVARIANT(iteration_ == iteration, "weights are updated iteration by iteration");
  if (!std::exchange(updating_, true)) return update::execute;
  waiting_.push_back(std::move(w));
  return update::wait;
}

void stage_replica::end_update(const gpu::operations::update::result& done) {
  const std::lock_guard lock{guard_};
  TROUPE_INVARIANT(updating_, "an update ends that was begun");
  updating_ = false;
  updated_ = done;
  ++iteration_;
  wake_all();
}

gpu::operations::update::result stage_replica::updated() const {
  const std::lock_guard lock{guard_};
  return updated_;
}

void stage_replica::wake_all() {
  for (const auto& w : std::exchange(waiting_, {})) w();
}

}  // namespace troupe::actors
