// Gavel (Narayanan et al., OSDI 2020; docs/planners/baselines.md): every 360 s a linear program
// over all jobs and types (section 4), then jobs take turns by how far they are behind their share
// (the round-based mechanism of section 5). A share is a fraction of time, so that the turns
// realize over many rounds what no single round can.

#include "planners/baselines/gavel.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/baselines/data_parallel_options.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/plans/places.hpp"
#include "planners/policy/policy.hpp"
#include "planners/policy/progress.hpp"

namespace troupe::planners {
namespace {

/// A job, its plan on each pool, and its share of time there.
struct gavel_candidate {
  const job_view* job = nullptr;
  std::vector<const plan*> plans;  // by pool; null: it cannot run there
  std::vector<double> share;
  bool runs = false, settled = false;
};

class gavel_round {
 public:
  gavel_round(const snapshot& s, gavel_objective objective)
      : s_{s},
        pools_{pools_of(s.cluster, s.idle)},
        free_{s.cluster, s.idle},
        objective_{objective} {
    for (const auto& [id, j] : s.running)
      if (may_be_moved(j)) add(j, true);
    for (const auto& [id, j] : s.waiting) add(j, false);
  }

  std::vector<decision> decide() && {
    share_time();
    for (const auto& c : candidates_)
      if (c.runs) free_.give_back(c.job->where);
    for (const auto& [priority, i, pool] : turns()) take_turn(candidates_[i], pool);
    for (const auto& c : candidates_)
      if (c.runs && !c.settled) out_.insert(out_.begin(), stop_job(c.job->id));
    return std::move(out_);
  }

 private:
  using turn = std::tuple<double, std::size_t, std::uint32_t>;  // -priority, candidate, pool

  void add(const job_view& j, bool runs) {
    if (gives_up(j, out_)) return;
    gavel_candidate c{&j, std::vector<const plan*>(pools_.size()),
                      std::vector<double>(pools_.size()), runs, false};
    const auto wanted = requested(j);
    for (const auto& o : options_on(pools_, j))
      if (o.how->gpus() == wanted && o.how->bytes_per_gpu > j.history.bytes_floor &&
          !c.plans[o.pool])
        c.plans[o.pool] = o.how;
    candidates_.push_back(std::move(c));
  }

  /// Jobs with the same throughputs are one row of the program, weighted by their number: equal
  /// jobs have equal shares in some optimum, and the program stays small with thousands of jobs.
  void share_time() {
    std::vector<double> capacity;
    for (const auto& p : pools_) capacity.push_back(double{1} * p.nodes.size() * p.node_gpus);
    std::map<std::vector<double>, std::size_t> row_of;
    std::vector<gavel_job> rows;
    std::vector<std::size_t> row(candidates_.size());
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const auto& c = candidates_[i];
      std::vector<double> key{double{1} * requested(*c.job)};
      for (const auto* p : c.plans) key.push_back(p ? p->samples_per_s : 0);
      if (*std::max_element(key.begin() + 1, key.end()) <= 0) continue;
      const auto [at, fresh] = row_of.emplace(key, rows.size());
      if (fresh) rows.push_back({key[0], 0, {key.begin() + 1, key.end()}});
      rows[at->second].weight += 1;
      row[i] = at->second + 1;
    }
    const auto x = gavel_allocation(rows, capacity, objective_);
    TROUPE_INVARIANT(x.size() == rows.size(),
                     "the linear program gives each kind of job its shares");
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      if (row[i] > 0) candidates_[i].share = x[row[i] - 1];
  }

  /// Priority: a job's share of a type over the part of its share that it has received. The authors
  /// count the rounds of each job on each type; a policy here keeps no memory between calls, so
  /// that the part received is the job's progress, as a time at the rate of its share, over its
  /// age. Jobs furthest behind come first; a pair's present type counts a quarter more, so that
  /// jobs which are about as far behind do not swap GPUs in every round. 0.01 keeps new jobs
  /// finite.
  std::vector<turn> turns() const {
    std::vector<turn> all;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const auto& c = candidates_[i];
      const auto& spec = *c.job->spec;
      const double age_s = std::max(1.0, s_.now_s - c.job->submitted_s);
      const double done =
          1 - std::ceil(iterations_left(s_, *c.job)) / static_cast<double>(spec.iterations);
      double rate = 0;  // samples/s that its share gives
      for (std::size_t p = 0; p < pools_.size(); ++p)
        if (c.plans[p]) rate += c.share[p] * c.plans[p]->samples_per_s;
      const double whole_s = rate > 0 ? spec.global_batch * double(spec.iterations) / rate : 1;
      const double received = done * whole_s / age_s;  // 1: as much as its share
      for (std::uint32_t p = 0; p < pools_.size(); ++p) {
        if (!c.plans[p] || c.share[p] <= 1e-9) continue;
        const bool here = c.runs && pools_[p].contains(c.job->where);
        const double priority = c.share[p] / (received + 0.01) * (here ? 1.25 : 1);
        all.emplace_back(-priority, i, p);
      }
    }
    std::ranges::sort(all);
    return all;
  }

  void take_turn(gavel_candidate& c, std::uint32_t pool) {
    if (c.settled) return;
    TROUPE_INVARIANT(c.plans[pool], "a turn is on a pool where its job has a plan");
    const auto& how = *c.plans[pool];
    const bool here = c.runs && pools_[pool].contains(c.job->where);
    auto where = c.job->facts().exact_gpus
                     ? find_for_program(free_, pools_[pool], how.gpus(), *c.job->spec)
                     : free_.find(pools_[pool], how.gpus(), here ? c.job->where : allocation{});
    if (where.empty()) return;
    free_.take(where);
    c.settled = true;
    if (c.runs && where == c.job->where) return;
    const auto what = c.runs ? decision::kind::move : decision::kind::start;
    out_.push_back({what, c.job->id, how, std::move(where), {}});
  }

  const snapshot& s_;
  std::vector<decision> out_;
  std::vector<gpu_pool> pools_;
  free_gpus free_;
  gavel_objective objective_;
  std::vector<gavel_candidate> candidates_;
};

class gavel final : public data_parallel_policy {
 public:
  gavel(std::string name, gavel_objective objective)
      : name_{std::move(name)}, objective_{objective} {}

  std::string_view name() const override { return name_; }
  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    if (s.waiting.empty() && s.running.empty()) return {};
    return gavel_round{s, objective_}.decide();
  }

 private:
  double round_s() const override { return 360; }
  std::vector<std::uint32_t> counts_for(const job_spec& job) const override {
    return {job.request.gpus};
  }
  reason why_behind(const snapshot&, const job_view& j) const override {
    return because(reason::kind::insufficient,
                   "requests {} GPUs of one type; other jobs are further behind their share",
                   requested(j));
  }

  std::string name_;
  gavel_objective objective_;
};

}  // namespace

std::unique_ptr<policy> make_gavel() {
  return std::make_unique<gavel>("gavel", gavel_objective::max_sum);
}

std::unique_ptr<policy> make_gavel_fair() {
  return std::make_unique<gavel>("gavel-fair", gavel_objective::max_min);
}

}  // namespace troupe::planners
