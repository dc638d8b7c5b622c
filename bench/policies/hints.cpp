#include "policies/hints.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>
#include <vector>

#include "messages/base/random.hpp"
#include "planners/policy/wrapped_policy.hpp"

namespace troupe::bench {

namespace {

using namespace planners;
using spec_ptr = std::shared_ptr<const job_spec>;

class misinformed final : public wrapped_policy {
 public:
  misinformed(std::shared_ptr<const policy> inner, const hints& h)
      : wrapped_policy{std::move(inner)}, hints_{h}, random_{h.seed} {}

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    const auto waiting = seen(s.waiting), running = seen(s.running), moving = seen(s.moving);
    std::vector<planners::recent_arrival> arrivals(s.arrivals.begin(), s.arrivals.end());
    for (auto& a : arrivals) a.spec = seen(a.spec, 0);
    const snapshot wrong{s.now_s, s.cluster,  s.idle,      waiting, running,
                         moving,  s.unusable, s.changed_s, arrivals};
    return inner().decide(wrong, random);
  }

 private:
  job_views seen(const job_views& all) const {
    auto out = all;
    for (auto& [id, j] : out) j.spec = seen(j.spec, j.progress.iterations_done);
    return out;
  }

  /// Later there must be something left of it.
  spec_ptr seen(const spec_ptr& real, std::uint64_t done) const {
    auto& known = known_[real];
    if (!known) known = changed(*real, hinted(*real));
    if (known->iterations > done) return known;
    return changed(*real, done + 1);
  }

  std::uint64_t hinted(const job_spec& real) const {
    if (hints_.iterations > 0) return hints_.iterations;
    const double normal = std::sqrt(-2 * std::log(1 - random_.uniform())) *
                          std::cos(2 * std::numbers::pi * random_.uniform());
    const double n = static_cast<double>(real.iterations) * std::exp(hints_.sigma * normal);
    return static_cast<std::uint64_t>(std::max(1.0, std::round(n)));
  }

  static spec_ptr changed(job_spec job, std::uint64_t iterations) {
    job.iterations = iterations;
    return std::make_shared<const job_spec>(std::move(job));
  }

  const hints hints_;
  mutable random_source random_;
  mutable std::map<spec_ptr, spec_ptr> known_;  // drawn in the order in which jobs are seen
};

}  // namespace

std::shared_ptr<const policy> with_hints(std::shared_ptr<const policy> inner, const hints& h) {
  if (h.are_exact()) return inner;
  return std::make_shared<misinformed>(std::move(inner), h);
}

}  // namespace troupe::bench
