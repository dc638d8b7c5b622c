#include "planners/crius/crius_round.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/crius/cell.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/progress.hpp"

// One scheduling decision (Algorithm 1; docs/planners/crius.md). The paper collects arrivals and
// departures for five minutes; here the policy is called at each, so that no job waits for a round,
// and what was just changed stays for ten restarts instead (stays_s), without which jobs would be
// moved at every event. Every change is virtual until the end: free_ and idle_ are copies that each
// allocation updates, and they agree after each: idle_[p] is the number of free GPUs of pool p.
// The policy has no memory: who overtook whom follows from the times in the snapshot. Cost: one
// search per waiting job with different Cells; max_steps limits all searches together, after which
// the best choices found so far are used.

namespace troupe::planners {

namespace {

std::uint32_t widest_group(const plan& p) {
  return max_of(p.stages, p.stages.empty() ? p.tensor_parallel : 1, &plan_stage::tensor_parallel);
}

/// N_G if the job has a plan with it, otherwise the smallest of its counts.
std::uint32_t own_gpus(const job_view& j) {
  const auto wanted = wanted_gpus(*j.spec);
  std::uint32_t fewest = 0;
  for (const auto& p : *j.plans) {
    if (p.gpus() == wanted) return wanted;
    if (fewest == 0 || p.gpus() < fewest) fewest = p.gpus();
  }
  return fewest;
}

/// The unit of normalized throughput: the largest samples/s of own_gpus() GPUs of any type. The
/// paper adds up samples/s, but those of different models are not comparable.
double own_rate(const job_view& j) {
  const auto own = own_gpus(j);
  double max = 0;
  for (const auto& p : *j.plans)
    if (p.gpus() == own) max = std::max(max, p.samples_per_s);
  return max;
}

/// Samples/s of a running job, by the list that its other Cells are of.
double present_rate(const cluster& c, const job_view& j) {
  if (!j.facts().elastic) return j.how.samples_per_s;
  TROUPE_INVARIANT(!j.where.empty(), "a running job has GPUs");
  const std::vector types{c.nodes[j.where.front().node].gpu};
  const auto at = std::ranges::find_if(*j.plans, [&](const plan& p) {
    return p.gpu_types == types && p.data_parallel == j.how.data_parallel &&
           p.gpus() == j.how.gpus();
  });
  return at == j.plans->end() ? j.how.samples_per_s : at->samples_per_s;
}

}  // namespace

crius_round::crius_round(const snapshot& s, const crius_options& options)
    : s_{s},
      o_{options},
      pools_{pools_of(s.cluster, s.idle)},
      free_{s.cluster, s.idle},
      idle_(pools_.size()),
      steps_{options.max_steps} {
  ++searches_made;
  for (std::size_t p = 0; p < pools_.size(); ++p)
    for (const auto n : pools_[p].nodes) idle_[p] += s.idle.idle(n);
  for (const auto& [id, j] : s.running) add_running(j);
}

void crius_round::add_running(const job_view& j) {
  placed_job x;
  x.job = &j;
  x.where = j.where;
  x.movable = j.facts().resumable && j.plans && !j.plans->empty();
  for (std::uint32_t p = 0; p < pools_.size(); ++p)
    if (pools_[p].contains(j.where)) x.present = {p, total_gpus(j.where), 0};
  if (x.present.gpus == 0) x.movable = false;  // over several pools, by an earlier policy
  if (x.movable) {
    x.options = options_of(j);
    x.present.value = present_rate(s_.cluster, j) / own_rate(j);
  }
  placed_.push_back(std::move(x));
}

bool crius_round::is_allowed(const job_view& j, const plan& p) const {
  const auto& job = *j.spec;
  if (!o_.adaptivity && p.gpus() != own_gpus(j)) return false;
  if (o_.heterogeneity || p.gpu_types.empty()) return true;
  const auto& own = job.request.type.empty() ? s_.cluster.gpus[j.plans->front().gpu_types[0]].name
                                             : job.request.type;
  return s_.cluster.gpus[p.gpu_types[0]].name == own;
}

bool crius_round::meets_deadline(const job_view& j, const option& o) const {
  constexpr double margin_s = 5, margin = 0.002;  // for orders, reports and estimates
  if (!o_.deadlines || !j.spec->limits.deadline_s) return true;
  return s_.now_s + o.run_s * (1 + margin) + margin_s <= j.submitted_s + *j.spec->limits.deadline_s;
}

std::vector<crius_round::option> crius_round::options_of(const job_view& j) const {
  std::vector<option> out;
  // Iterations that the job still has to do, times how much slower than planned it has run so far.
  const double left = std::ceil(iterations_left(s_, j)) * measured_slowdown(j);
  const double own = own_rate(j);
  for (const auto& p : *j.plans) {
    // More memory per GPU than the job has already run out of.
    const bool roomy = p.bytes_per_gpu > j.history.bytes_floor || j.history.bytes_floor == 0;
    if (!is_allowed(j, p) || !roomy) continue;
    for (std::uint32_t i = 0; i < pools_.size(); ++i) {
      const auto& pool = pools_[i];
      if (p.gpu_types.empty() || p.gpu_types[0] != pool.gpu) continue;
      if (widest_group(p) > pool.node_gpus || p.gpus() > pool.nodes.size() * pool.node_gpus)
        continue;
      const bool equal = j.facts().exact_gpus;
      if (equal && !pool.has_equal(p.gpus())) continue;
      const double run_s = left * j.spec->global_batch / p.samples_per_s;
      out.push_back({i, &p, p.samples_per_s / own, run_s + restart_of(s_.cluster, j), equal});
    }
  }
  return out;
}

/// Counts and values for the search. A change is charged to its value: the share that the restart
/// has of the job's remaining time, and change_cost, so that equal choices change nothing.
crius_round::rescaling_search crius_round::prepare() const {
  scheduling_problem p;
  p.idle = idle_;
  std::vector<std::vector<std::uint32_t>> options(placed_.size());
  for (std::size_t i = 0; i < placed_.size(); ++i) {
    const auto& x = placed_[i];
    auto& job = p.running.emplace_back();
    job.present = x.present;
    if (!x.movable) continue;
    const bool runs = !x.job->where.empty();
    if (runs && stays_s(s_, o_, *x.job) > 0) continue;
    for (std::uint32_t k = 0; k < x.options.size(); ++k) {
      const auto& o = x.options[k];
      if (o.pool == x.present.pool && o.how->gpus() == x.present.gpus) continue;
      if (!meets_deadline(*x.job, o)) continue;
      const double cost =
          runs ? o.value * restart_of(s_.cluster, *x.job) / o.run_s + o_.change_cost : 0;
      job.others.push_back({o.pool, o.how->gpus(), o.value - cost});
      options[i].push_back(k);
    }
  }
  return {std::move(options), scheduling_search{p, o_.search_depth}};
}

std::optional<scheduling_choice> crius_round::best_choice(const std::vector<option>& arrival) {
  if (!prepared_) prepared_ = prepare();
  return prepared_->search.best(mapped(arrival, &option::cell), steps_);
}

allocation crius_round::find(const option& o, const allocation& present) const {
  const auto& pool = pools_[o.pool];
  const auto gpus = o.how->gpus(), rest = gpus % pool.node_gpus;
  if (o.equal) return free_.find_equal(pool, gpus);
  if (gpus < pool.node_gpus || rest == 0) return free_.find(pool, gpus, present);
  auto where = free_.find(pool, gpus - rest, {});
  if (where.empty()) return {};
  auto left = free_;
  left.take(where);
  const auto more = left.find(pool, rest, {});
  if (more.empty()) return {};
  where.insert(where.end(), more.begin(), more.end());
  return where;
}

/// VIRTUALALLOC: finds nodes for a choice's counts, the largest first, since those fit least
/// anywhere. False, and nothing has changed: the free GPUs are too scattered.
bool crius_round::allocate(const scheduling_choice& choice, const job_view* arrival,
                           const std::vector<option>& options) {
  struct wish {
    std::size_t at;  // in placed_; its size: the arrival
    const option* o;
    allocation where;
  };
  std::vector<wish> wishes;
  const auto before = free_;
  for (const auto& r : choice.rescalings) {
    const auto& x = placed_[r.job];
    wishes.push_back({r.job, &x.options[prepared_->options[r.job][r.choice]], {}});
    free_.give_back(x.where);
  }
  if (choice.arrival) wishes.push_back({placed_.size(), &options[*choice.arrival], {}});
  std::ranges::stable_sort(wishes, std::greater{}, [](const wish& w) { return w.o->how->gpus(); });
  for (auto& w : wishes) {
    w.where = find(*w.o, w.at < placed_.size() ? placed_[w.at].where : allocation{});
    if (w.where.empty()) {
      free_ = before;
      return false;
    }
    free_.take(w.where);
  }
  for (auto& w : wishes) {
    if (w.at == placed_.size())
      placed_.push_back({arrival, options, {}, {}, nullptr, arrival->facts().resumable});
    else
      idle_[placed_[w.at].present.pool] += placed_[w.at].present.gpus;
    give(placed_[w.at], *w.o, std::move(w.where));
  }
  return true;
}

void crius_round::give(placed_job& x, const option& o, allocation where) {
  x.present = o.cell();
  idle_[o.pool] -= x.present.gpus;
  x.how = o.how;
  x.where = std::move(where);
  prepared_.reset();
}

/// Takes the best choice; if its GPUs are too scattered, the best without that Cell, and so on.
bool crius_round::schedule(const job_view& j, std::vector<option> options) {
  std::erase_if(options, [&](const option& o) { return !meets_deadline(j, o); });
  while (!options.empty()) {
    const auto best = best_choice(options);
    if (!best) return false;
    if (allocate(*best, &j, options)) return true;
    options.erase(options.begin() + *best->arrival);
  }
  return false;
}

/// Rescales running jobs as long as one gains; at most eight choices per decision, which later
/// events continue.
void crius_round::use_idle() {
  constexpr int max = 8;
  for (int i = 0; i < max; ++i) {
    const auto best = best_choice({});
    if (!best || !allocate(*best, nullptr, {})) return;
  }
}

/// It was submitted later and started while this one waited: the times of both show that.
bool crius_round::could_suspend(const job_view& j, const placed_job& x) const {
  const auto& other = *x.job;
  if (other.where.empty() || !x.movable || x.how) return false;
  if (stays_s(s_, o_, other) > 0) return false;
  if (o_.deadlines && other.spec->limits.deadline_s) return false;  // that was promised
  return other.submitted_s > j.submitted_s && other.started_s > j.submitted_s &&
         other.spec->priority <= j.spec->priority;
}

/// Opportunistic execution (section 6.1): later jobs may use GPUs that are too few for a waiting
/// one, so that it would starve. Once the GPUs of those and the idle ones suffice for its smallest
/// Cell, they are suspended.
bool crius_round::suspend_for(const job_view& j, std::vector<option> options) {
  auto reachable = idle_;
  for (const auto& x : placed_)
    if (could_suspend(j, x)) reachable[x.present.pool] += x.present.gpus;
  std::ranges::stable_sort(options, {}, [](const option& o) { return o.how->gpus(); });
  return std::ranges::any_of(options, [&](const option& o) {
    return o.how->gpus() <= reachable[o.pool] && suspend_for(j, o, options);
  });
}

/// Suspends jobs for one Cell, the youngest first, only as many as are needed.
bool crius_round::suspend_for(const job_view& j, const option& o,
                              const std::vector<option>& options) {
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < placed_.size(); ++i)
    if (placed_[i].present.pool == o.pool && could_suspend(j, placed_[i])) others.push_back(i);
  std::ranges::stable_sort(others, std::greater{},
                           [&](std::size_t i) { return placed_[i].job->submitted_s; });
  const auto before = free_;
  std::set<std::size_t> taken;
  auto where = find(o, {});
  for (const auto i : others) {
    if (!where.empty()) break;
    free_.give_back(placed_[i].where);
    taken.insert(i);
    where = find(o, {});
  }
  if (where.empty()) {
    free_ = before;
    return false;
  }
  free_.take(where);
  for (const auto i : taken) {
    idle_[placed_[i].present.pool] += placed_[i].present.gpus;
    suspended_.push_back(placed_[i].job);
  }
  for (auto i = taken.rbegin(); i != taken.rend(); ++i)
    placed_.erase(placed_.begin() + static_cast<std::ptrdiff_t>(*i));
  placed_.push_back({&j, options, {}, {}, nullptr, j.facts().resumable});
  give(placed_.back(), o, std::move(where));
  return true;
}

/// Waiting jobs by priority, then in order of arrival. A job whose choices all lose waits, and
/// later ones may pass it. Jobs that can never run are given up.
void crius_round::schedule_waiting(std::vector<decision>& out) {
  bool all = true;
  // Jobs with the same Cells have the same answer until something is allocated. Only looked up:
  std::set<const void*> failed;  // order never reaches an output
  for (const auto* j : in_order(s_.waiting, has_model)) {
    if (!j->plans || j->plans->empty()) {
      out.push_back(give_up(j->id, why_none(*j)));
      continue;
    }
    const bool known =
        !o_.deadlines && j->history.bytes_floor == 0 && failed.contains(j->plans.get());
    const auto options = known ? std::vector<option>{} : options_of(*j);
    const bool late = !options.empty() && std::ranges::none_of(options, [&](const option& o) {
      return meets_deadline(*j, o);
    });
    // The plans of programs with an exact number of GPUs may be of several pools.
    if (known || (options.empty() && j->facts().exact_gpus)) {
      all = false;
      continue;
    }
    if (options.empty() || late) {
      const auto why =
          late ? fmt::format("no Cell completes it by its deadline ({:g} s)",
                             *j->spec->limits.deadline_s)
               : std::string{"none of its Cells has enough memory, or GPUs of its own type"};
      out.push_back(give_up(j->id, {reason::kind::infeasible, why}));
      continue;
    }
    if (schedule(*j, options) || (!o_.deadlines && suspend_for(*j, options))) {
      failed.clear();
      continue;
    }
    all = false;
    failed.insert(j->plans.get());
  }
  if (all && suspended_.empty()) use_idle();
}

std::vector<decision> crius_round::decide() && {
  std::vector<decision> out;
  schedule_waiting(out);
  for (const auto* j : suspended_) out.push_back({decision::kind::stop, j->id, {}, {}, {}});
  for (const auto what : {decision::kind::move, decision::kind::start})
    for (auto& x : placed_)
      if (x.how && x.job->where.empty() == (what == decision::kind::start))
        out.push_back({what, x.job->id, *x.how, std::move(x.where), {}});
  note_waiting(out);
  return out;
}

void crius_round::note_waiting(const std::vector<decision>& out) const {
  if (!s_.notes) return;
  std::set<job_id> decided;
  for (const auto& d : out) decided.insert(d.job);
  std::vector<std::uint32_t> idle;
  for (const auto& pool : pools_) {
    auto& sum = idle.emplace_back(0);
    for (const auto n : pool.nodes) sum += free_.of(n);
  }
  auto left = in_order(s_.waiting,
                       [&](const job_view& j) { return has_model(j) && !decided.contains(j.id); });
  for (const auto& d : out)
    if (d.what == decision::kind::stop) left.push_back(&s_.running.at(d.job));
  for (const auto* j : left) {
    const auto options = options_of(*j);
    if (options.empty()) {
      s_.note(j->id, why_none(*j));
      continue;
    }
    const auto gpus = [](const option& o) { return o.how->gpus(); };
    const auto fewest = gpus(std::ranges::min(options, {}, gpus));
    std::uint32_t max = 0;  // of any pool that could hold it
    for (const auto& o : options)
      if (gpus(o) == fewest) max = std::max(max, idle[o.pool]);
    s_.note(j->id, wait_code::too_few, fewest, max);
  }
}

double stays_s(const snapshot& s, const crius_options& o, const job_view& running) {
  if (o.deadlines || o.solver) return 0;  // a deadline does not wait; the solver has its rounds
  const double until_s = running.started_s + o.stay_restarts * restart_of(s.cluster, running);
  return std::max(0.0, until_s - s.now_s);
}

}  // namespace troupe::planners
