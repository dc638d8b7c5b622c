// Tiresias (Gu et al., NSDI 2019), TITAN's second baseline: discretized two-dimensional least
// attained service (docs/planners/baselines.md). A job's service is its GPUs times the time that it
// has run; jobs below a threshold are in a first queue, the others in a second one, each in order
// of arrival. Running jobs are stopped for those before them. Nothing is known of how long a job
// is.

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "planners/baselines/data_parallel_options.hpp"
#include "planners/baselines/tiresias.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/progress.hpp"

namespace troupe::planners {
namespace {

/// The part of the next iteration after which one has certainly ended, by whoever's clock: a job
/// that is stopped right at its end might be credited with one less.
constexpr double margin = 1e-3;

/// A job in the order of service.
struct served_job {
  const job_view* job = nullptr;
  double gpu_seconds = 0;  // attained
  bool running = false;
  bool second = false;  // in the second queue

  auto order() const { return std::tuple(-job->spec->priority, second, job->id); }
};

/// GPU-seconds of an iteration on the GPUs that the job asks for, wherever it runs: a scattered
/// allocation is slower, and the job would pass the threshold there and fall below it once stopped.
double iteration_service(const job_view& j) {
  return requested_iteration_s(j) * requested(j);
}

/// In whole iterations: a job that is stopped loses the one that it was in, and would fall below
/// the threshold that it has just reached.
double attained(const snapshot& s, const job_view& j, bool running) {
  if (!running) return static_cast<double>(j.progress.iterations_done) * iteration_service(j);
  return std::floor(std::max(0.0, iterations_by_now(s, j) - margin)) * iteration_service(j);
}

class tiresias_pass {
 public:
  tiresias_pass(const snapshot& s, const tiresias_options& o)
      : pools_{pools_of(s.cluster, s.idle)}, free_{s.cluster, s.idle} {
    const auto add = [&](const job_view& j, bool running) {
      const double service = attained(s, j, running);
      order_.push_back({&j, service, running, service >= o.threshold_gpu_s});
    };
    for (const auto& [id, j] : s.running)
      if (may_be_moved(j)) add(j, true);
    for (const auto& [id, j] : s.waiting)
      if (has_plans(j)) add(j, false);
    std::ranges::sort(order_, {}, &served_job::order);
  }

  const std::vector<served_job>& order() const { return order_; }

  /// Jobs take GPUs in order. A running job keeps its own, unless one before it needed them; then
  /// it looks for others, like one that waits.
  void decide(std::vector<decision>& out) {
    std::vector<decision> starts;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const auto& j = *order_[i].job;
      if (order_[i].running && !stopped_.contains(j.id)) continue;
      auto placed = place_requested(pools_, free_, j);
      if (!placed) placed = place_instead(i);
      if (!placed) continue;
      const auto what = stopped_.erase(j.id) > 0 ? decision::kind::move : decision::kind::start;
      starts.push_back({what, j.id, std::move(placed->how), std::move(placed->where), {}});
    }
    for (const auto id : stopped_) out.push_back(stop_job(id));
    std::ranges::move(starts, std::back_inserter(out));
  }

 private:
  /// Stops jobs behind it, the last first, until it has room; those whose GPUs it did not need go
  /// on.
  std::optional<placed_plan> place_instead(std::size_t at) {
    const auto before = free_;
    std::vector<const job_view*> victims;
    for (auto i = order_.size(); i-- > at + 1;) {
      const auto& j = *order_[i].job;
      if (!order_[i].running || stopped_.contains(j.id)) continue;
      free_.give_back(j.where);
      victims.push_back(&j);
      auto placed = place_requested(pools_, free_, *order_[at].job);
      if (!placed) continue;
      for (const auto* v : victims) {
        if (free_.has(v->where))
          free_.take(v->where);
        else
          stopped_.insert(v->id);
      }
      return placed;
    }
    free_ = before;
    return {};
  }

  std::vector<gpu_pool> pools_;
  free_gpus free_;
  std::vector<served_job> order_;
  std::set<job_id> stopped_;
};

class tiresias final : public data_parallel_policy {
 public:
  explicit tiresias(const tiresias_options& options) : options_{options} {}

  std::string_view name() const override { return "tiresias"; }

  /// At the next time at which a job that runs passes to the second queue, if others wait for it.
  double decide_again_s(const snapshot& s) const override {
    if (s.waiting.empty()) return 0;
    double next = 0;
    const tiresias_pass pass{s, options_};
    for (const auto& x : pass.order()) {
      if (!x.running || x.second) continue;
      const double left_s = seconds_to_second(s, *x.job);
      if (next == 0 || left_s < next) next = left_s;
    }
    return next;
  }

  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    std::vector<decision> out;
    for (const auto& [id, j] : s.waiting) gives_up(j, out);
    if (!s.waiting.empty()) tiresias_pass{s, options_}.decide(out);
    return out;
  }

 private:
  std::vector<std::uint32_t> counts_for(const job_spec& job) const override {
    return {job.request.gpus};
  }

  /// Until a running job's whole iterations reach the threshold.
  double seconds_to_second(const snapshot& s, const job_view& j) const {
    const double all = std::ceil(options_.threshold_gpu_s / iteration_service(j));
    const double done = iterations_by_now(s, j);
    const double start_s = j.start_s ? *j.start_s : start_of(s.cluster, j);
    const double starting_s = std::max(0.0, j.started_s + start_s - s.now_s);
    return starting_s +
           std::max(margin, all + 2 * margin - done) * j.iteration_s * measured_slowdown(j);
  }

  reason why_behind(const snapshot& s, const job_view& j) const override {
    const tiresias_pass pass{s, options_};
    const auto& order = pass.order();
    const auto at = std::ranges::find(order, &j, &served_job::job);
    return {
        reason::kind::insufficient,
        fmt::format("requests {} GPUs of one type; {} jobs of {} have them before it", requested(j),
                    at - order.begin(), at->second ? "both queues" : "the first queue")};
  }

  tiresias_options options_;
};

}  // namespace

std::unique_ptr<policy> make_tiresias(const tiresias_options& options) {
  return std::make_unique<tiresias>(options);
}

std::unique_ptr<policy> make_tiresias() {
  return make_tiresias(tiresias_options{});
}

}  // namespace troupe::planners
