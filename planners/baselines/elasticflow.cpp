// ElasticFlow (Gu et al., ASPLOS 2023; docs/planners/baselines.md): on each type the minimum
// satisfactory share of every admitted job (Algorithm 1), then marginal throughput (Algorithm 2).
// Counts are elastic; types are the users', so that each pool is decided on its own. A deadline is
// a promise: a job is admitted only if all admitted jobs can still meet theirs, and dropped
// otherwise.

#include "planners/baselines/elasticflow.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "messages/base/time.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/baselines/data_parallel_options.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/policy.hpp"
#include "planners/policy/progress.hpp"

namespace troupe::planners {
namespace {

/// A job on its pool.
struct elastic_candidate {
  const job_view* job = nullptr;
  std::vector<const plan*> plans;  // as its curve
  elastic_job shape;
};

/// One pool's decision.
class elastic_pool {
 public:
  elastic_pool(const snapshot& s, const gpu_pool& pool, bool deadlines)
      : s_{s}, pool_{pool}, deadlines_{deadlines}, free_{s.cluster, s.idle} {}

  void add(const job_view& j) {
    elastic_candidate c{&j, {}, {}};
    for (const auto& p : *j.plans)
      if (p.gpu_types[0] == pool_.gpu && p.bytes_per_gpu > j.history.bytes_floor)
        c.plans.push_back(&p);
    // The fastest of each count.
    std::ranges::sort(c.plans, {},
                      [](const plan* p) { return std::pair(p->gpus(), -p->samples_per_s); });
    const auto same = [](const plan* a, const plan* b) { return a->gpus() == b->gpus(); };
    c.plans.erase(std::unique(c.plans.begin(), c.plans.end(), same), c.plans.end());
    for (const auto* p : c.plans) c.shape.curve.push_back({p->gpus(), p->samples_per_s});
    c.shape.work = std::ceil(iterations_left(s_, j)) * j.spec->global_batch * measured_slowdown(j);
    // A reserve before the deadline, beside the restart that a change of the share costs.
    constexpr double margin_s = 10;
    c.shape.deadline_s = deadlines_ && j.spec->limits.deadline_s
                             ? j.submitted_s + *j.spec->limits.deadline_s - s_.now_s - margin_s -
                                   restart_of(s_.cluster, j)
                             : never;
    if (!j.facts().has_known_length) c.shape.work = work_to_deadline(c.shape);
    jobs_.push_back(std::move(c));
  }

  void decide(std::vector<decision>& out) {
    admit(out);
    const auto shapes = shapes_of(jobs_);
    auto minimum = minimum_shares(shapes, capacity());
    // After the loss of a node the promises may be impossible to keep: shares then follow marginal
    // throughput alone.
    if (!minimum) minimum.emplace(jobs_.size(), 0);
    const auto shares = elastic_shares(shapes, std::move(*minimum), capacity());
    place(shares, out);
  }

 private:
  std::uint32_t capacity() const {
    std::uint32_t gpus = 0;
    for (const auto n : pool_.nodes) gpus += s_.idle.idle(n);
    for (const auto& c : jobs_) gpus += total_gpus(c.job->where);
    return gpus;
  }

  static std::vector<elastic_job> shapes_of(const std::vector<elastic_candidate>& jobs) {
    std::vector<elastic_job> shapes;
    for (const auto& j : jobs) shapes.push_back(j.shape);
    return shapes;
  }

  /// A program of unknown length may need all of its time on its smallest count: none of it is
  /// promised to others.
  static double work_to_deadline(const elastic_job& j) {
    constexpr double rounding = 1 - 1e-9;
    if (j.deadline_s == never || j.curve.empty()) return j.work;
    return std::max(0.0, j.deadline_s) * j.curve.front().rate * rounding;
  }

  /// In the order of arrival, those whose deadline can be met beside all admitted before. Jobs that
  /// have had GPUs were admitted; the others are dropped.
  void admit(std::vector<decision>& out) {
    const auto by_deadline = [](const elastic_candidate& c) { return c.shape.deadline_s; };
    if (!deadlines_) return;
    const auto gpus = capacity();
    std::vector<elastic_candidate> admitted;
    std::ranges::stable_sort(jobs_, {}, [](const elastic_candidate& c) {
      return std::pair(c.job->progress.attempts == 0, c.job->submitted_s);
    });
    for (auto& c : jobs_) {
      admitted.push_back(c);
      std::ranges::stable_sort(admitted, {}, by_deadline);
      if (c.job->progress.attempts > 0) continue;
      if (minimum_shares(shapes_of(admitted), gpus)) continue;
      std::erase_if(admitted, [&](const elastic_candidate& a) { return a.job == c.job; });
      out.push_back(
          give_up(c.job->id, {reason::kind::infeasible,
                              "its deadline cannot be met beside those of the jobs admitted "
                              "before"}));
    }
    jobs_ = std::move(admitted);
  }

  /// Where the idle GPUs are too scattered, the pool is packed anew, as by their buddy allocation:
  /// else jobs would take each other's GPUs in turn, without end.
  void place(const std::vector<std::uint32_t>& shares, std::vector<decision>& out) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      free_.give_back(jobs_[i].job->where);
      if (plan_for(jobs_[i], shares[i]) != nullptr) order.push_back(i);
    }
    std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return shares[i]; });
    std::vector<count_grant> grants;
    for (const auto i : order) {
      const auto& where = jobs_[i].job->where;
      grants.push_back(
          {0, shares[i], &where, total_gpus(where) == shares[i], jobs_[i].job->facts().exact_gpus});
    }
    place_counts({pool_}, grants, free_);
    std::vector<allocation> places(jobs_.size());
    for (std::size_t k = 0; k < order.size(); ++k) places[order[k]] = std::move(grants[k].where);
    std::vector<decision> starts;
    for (std::size_t i = 0; i < jobs_.size(); ++i)
      carry_out(jobs_[i], shares[i], places[i], out, starts);
    std::ranges::move(starts, std::back_inserter(out));
  }

  static const plan* plan_for(const elastic_candidate& c, std::uint32_t gpus) {
    const auto at = std::ranges::find(c.shape.curve, gpus, &scaling_point::gpus);
    if (at == c.shape.curve.end()) return nullptr;
    return c.plans[static_cast<std::size_t>(at - c.shape.curve.begin())];
  }

  /// Stops come first, then moves, then starts: what one leaves may be another's.
  void carry_out(const elastic_candidate& c, std::uint32_t gpus, allocation& where,
                 std::vector<decision>& out, std::vector<decision>& starts) {
    const auto& j = *c.job;
    if (where == j.where) return;
    if (where.empty() && free_.has(j.where))
      free_.take(j.where);  // no other job needs its GPUs
    else if (where.empty())
      out.insert(out.begin(), stop_job(j.id));
    else if (j.where.empty())
      starts.push_back(start_job(j.id, *plan_for(c, gpus), std::move(where)));
    else
      out.push_back({decision::kind::move, j.id, *plan_for(c, gpus), std::move(where), {}});
  }

  const snapshot& s_;
  const gpu_pool& pool_;
  bool deadlines_;
  free_gpus free_;
  std::vector<elastic_candidate> jobs_;
};

class elasticflow final : public data_parallel_policy {
 public:
  elasticflow(std::string name, bool deadlines) : name_{std::move(name)}, deadlines_{deadlines} {}

  std::string_view name() const override { return name_; }
  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    std::vector<decision> out;
    const auto pools = pools_of(s.cluster, s.idle);
    std::vector<elastic_pool> all;
    for (const auto& p : pools) all.emplace_back(s, p, deadlines_);
    for (const auto& [id, j] : s.running)
      if (const auto p = pool_of(pools, j.where); may_be_moved(j) && p < pools.size())
        all[p].add(j);
    for (const auto* j : all_in_order(s.waiting))
      if (!gives_up(*j, out)) all[home_of(s.cluster, pools, *j)].add(*j);
    for (auto& p : all) p.decide(out);
    return out;
  }

 private:
  /// Deadlines come nearer while nothing happens.
  double round_s() const override { return deadlines_ ? 60 : 0; }
  std::vector<std::uint32_t> counts_for(const job_spec& job) const override {
    std::vector<std::uint32_t> counts;
    for (std::uint32_t n = 1; n <= std::max(8U, 4 * job.request.gpus); n *= 2)
      if (!job.limits.max_gpus || n <= *job.limits.max_gpus) counts.push_back(n);
    return counts;
  }
  reason why_behind(const snapshot&, const job_view&) const override {
    return {reason::kind::insufficient, "its minimum share is not free on its type"};
  }

  /// The pool of the type that its user has in mind; where that cannot hold it, of its best plan.
  static std::size_t home_of(const cluster& c, const std::vector<gpu_pool>& pools,
                             const job_view& j) {
    const auto options = options_on(pools, j);
    for (const auto& o : options)
      if (c.gpus[pools[o.pool].gpu].name == j.spec->request.type) return o.pool;
    return options.empty() ? 0 : options.front().pool;
  }

  std::string name_;
  bool deadlines_;
};

}  // namespace

std::unique_ptr<policy> make_elasticflow() {
  return std::make_unique<elasticflow>("elasticflow", true);
}

std::unique_ptr<policy> make_elasticflow_ls() {
  return std::make_unique<elasticflow>("elasticflow-ls", false);
}

}  // namespace troupe::planners
