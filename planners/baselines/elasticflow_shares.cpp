#include "planners/baselines/elasticflow.hpp"

#include <algorithm>
#include <map>

#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"

namespace troupe::planners {

namespace {

/// GPUs that are free from each time on, as a step function: the reservations of the jobs that were
/// filled in before. Rule of Algorithm 1: a job runs on its share whenever that many GPUs are free.
class free_profile {
 public:
  explicit free_profile(std::uint32_t gpus) { free_[0] = gpus; }

  /// When a job on `gpus` of them whenever as many are left, from now on, is done.
  double end_of(const elastic_job& j, const scaling_point& p) const {
    double work = j.work;
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      if (at->second < p.gpus) continue;
      const auto next = std::next(at);
      const double end = at->first + work / p.rate;
      if (next == free_.end() || end <= next->first) return end;
      work -= (next->first - at->first) * p.rate;
    }
    return never;
  }

  void take(std::uint32_t gpus, double until_s) {
    auto end = free_.lower_bound(until_s);
    if (end == free_.end() || end->first != until_s)
      end = free_.emplace_hint(end, until_s, std::prev(end)->second);
    for (auto at = free_.begin(); at != end; ++at)
      if (at->second >= gpus) at->second -= gpus;
  }

 private:
  std::map<double, std::uint32_t> free_;  // by time
};

}  // namespace

// Progressive filling in the order of deadlines. A job takes the smallest share that is enough,
// because scaling is concave: more GPUs end it sooner but cost more GPU-seconds, which later jobs
// may need.
std::optional<std::vector<std::uint32_t>> minimum_shares(const std::vector<elastic_job>& jobs,
                                                         std::uint32_t gpus) {
  free_profile left{gpus};
  std::vector<std::uint32_t> shares;
  for (const auto& j : jobs) {
    if (j.deadline_s == never) {
      shares.push_back(0);
      continue;
    }
    const auto enough = std::ranges::find_if(
        j.curve, [&](const scaling_point& p) { return left.end_of(j, p) <= j.deadline_s; });
    if (enough == j.curve.end()) return {};
    shares.push_back(enough->gpus);
    left.take(enough->gpus, left.end_of(j, *enough));
  }
  return shares;
}

// Greedy by marginal throughput per GPU, which is optimal for concave curves. Throughputs of
// different models are not comparable in samples: each counts relative to the job's own at its
// smallest count.
std::vector<std::uint32_t> elastic_shares(const std::vector<elastic_job>& jobs,
                                          std::vector<std::uint32_t> shares, std::uint32_t gpus) {
  TROUPE_INVARIANT(shares.size() == jobs.size(), "each job has a share, if only of no GPU");
  std::uint32_t left = gpus;
  for (auto& n : shares) {  // those whose GPUs are not there yet wait for them
    if (n > left) n = 0;
    left -= n;
  }
  for (;;) {
    std::size_t best = jobs.size();
    std::uint32_t more = 0;
    double max = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const auto& curve = jobs[i].curve;
      const auto now = std::ranges::find(curve, shares[i], &scaling_point::gpus);
      const auto next = now == curve.end() ? curve.begin() : std::next(now);
      if (next == curve.end() || next->gpus - shares[i] > left) continue;
      const double rate = now == curve.end() ? 0 : now->rate;
      const double gain =
          (next->rate - rate) / curve.front().rate * curve.front().gpus / (next->gpus - shares[i]);
      if (gain <= max) continue;
      best = i;
      more = next->gpus - shares[i];
      max = gain;
    }
    TROUPE_INVARIANT(left <= gpus, "shares are of GPUs that are there");
    if (best == jobs.size()) return shares;
    shares[best] += more;
    left -= more;
  }
}

}  // namespace troupe::planners
