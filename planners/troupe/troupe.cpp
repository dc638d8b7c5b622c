// Troupe's own policy, the default (docs/planners/troupe.md): the shortest work first, each job on
// as many GPUs as are worth what the jobs behind it lose by them.

#include <algorithm>
#include <iterator>
#include <optional>
#include <ranges>
#include <tuple>
#include <utility>
#include <vector>

#include "messages/domain/device_kind.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/devices/guesses.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/shortage.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/progress.hpp"
#include "planners/troupe/arriving_load.hpp"
#include "planners/troupe/assignment.hpp"
#include "planners/troupe/fixed_trainings.hpp"
#include "planners/troupe/known_jobs.hpp"
#include "planners/troupe/pipelined_plans.hpp"
#include "planners/troupe/reasons.hpp"
#include "planners/troupe/troupe.hpp"

namespace troupe::planners {
namespace {

using kind = reason::kind;

bool same_shape(const plan& a, const plan& b) {
  return a.data_parallel == b.data_parallel && a.tensor_parallel == b.tensor_parallel &&
         a.pipeline_parallel == b.pipeline_parallel && a.stages.size() == b.stages.size();
}

/// The option that a running job has: same pool, number of GPUs and split. None for GPUs of several
/// pools, or for a split that is no longer the fastest.
std::optional<std::size_t> present_option(const configuration_table& table,
                                          const std::vector<std::uint32_t>& pool_of,
                                          const job_view& j) {
  const auto pool = pool_of[j.where.front().node];
  if (std::ranges::any_of(j.where, [&](const auto& share) { return pool_of[share.node] != pool; }))
    return {};
  const auto gpus = total_gpus(j.where);
  for (std::size_t i = 0; i < table.figures.size(); ++i)
    if (const auto& o = table.figures[i];
        o.gpus == gpus && o.pool == pool && same_shape(table.options[i].how, j.how))
      return i;
  return {};
}

/// The micro-batch of the fastest configuration, kept by all: whatever the number of pipelines, the
/// results of a training then change only by the order of summation.
job_spec with_fastest_rows(const cluster& c, const std::vector<gpu_pool>& pools, job_spec job,
                           planning_budget& budget) {
  const auto plans = pipelined_plans(c, pools, job, budget);
  if (plans.empty()) return job;
  job.pipeline.rows = std::ranges::max(plans, {}, &plan::samples_per_s).rows;
  return job;
}

// Those within the job's limits of time and cost. A budget is kept by the schedule, which may take
// longer than the closed form says.
std::vector<plan> configured_plans(const cluster& c, const job_spec& job, planning_budget& budget) {
  const auto pools = pools_of(c, idle_index{c});
  job_view j;
  j.spec = std::make_shared<const job_spec>(job);
  std::vector<plan> pipelined;
  if (is_elastic(job))
    pipelined = pipelined_plans(c, pools, with_fastest_rows(c, pools, job, budget), budget);
  else if (!facts_of(job).brings_layout && !job.memory)
    pipelined = pipelined_plans(c, pools, job, budget);
  j.plans = std::make_shared<const std::vector<plan>>(std::move(pipelined));
  std::vector<plan> plans;
  for (auto& o : configurations_of(c, pools, j)) {
    auto& p = o.how;
    if (job.limits.budget && !p.stages.empty())
      if (const auto e = evaluate(c, with_device(job, name_of(device_kind::sim)), p,
                                  pack(pools[o.pool], o.gpus), fidelity::simulated))
        set_figures(p, *e);
    const double s = job.global_batch / p.samples_per_s * static_cast<double>(job.iterations);
    if (within_limits(job, s, cost_of_run(job, p))) plans.push_back(std::move(o.how));
  }
  const bool own = facts_of(job).brings_layout;
  std::ranges::stable_sort(plans, std::greater{},
                           [&](const plan& p) { return !own ? p.samples_per_s : worth(job, p); });
  return plans;
}

/// Is Algorithm 1's pipeline, or the search's, which may use every pool, fast enough to give up
/// elasticity for it? The training would hold these GPUs to its end; 1.25 times the fastest pool's
/// speed must make up for that.
bool is_faster_across_pools(const cluster& c, const job_spec& job, const plan& elastic,
                            planning_budget& budget) {
  constexpr double min_speedup = 1.25;
  const auto across = place_training(c, idle_index{c}, job, true, &widest_space(), budget);
  if (!across || !spans_pools(pools_of(c, idle_index{c}), across->how)) return false;
  const auto e = evaluate(c, job, across->how, across->where, fidelity::closed);
  return e && e->samples_per_s > min_speedup * elastic.samples_per_s;
}

/// A program of unknown length comes neither before all others nor after them: it counts as much
/// work as the middle one of the jobs whose length is known.
void rank_unknown_lengths(std::vector<contender>& all) {
  if (std::ranges::all_of(all, &contender::has_known_length)) return;
  std::vector<double> known;
  for (const auto& x : all)
    if (x.has_known_length) known.push_back(x.work());
  const auto middle = known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2);
  if (!known.empty()) std::ranges::nth_element(known, middle);
  const double work = known.empty() ? 1 : *middle;
  for (auto& x : all)
    if (!x.has_known_length) {
      x.samples_left = work / x.table->sample_cost;
      x.assumed_work = work;
    }
}

/// Behind the search's, if it is for these that the user asks: those that span pools alone, since
/// the job then has no other.
/// `configured`: the first so many are its configurations.
std::vector<plan> with_faster(const cluster& c, const job_spec& job, std::vector<plan> plans,
                              std::size_t configured, planning_budget& budget) {
  const auto work = facts_of(job);
  if (job.objective != "fastest" || !work.simulated || !work.has_model || job.memory) return plans;
  const auto pools = pools_of(c, idle_index{c});
  double best = 0;
  for (std::size_t i = 0; i < configured; ++i) best = std::max(best, plans[i].samples_per_s);
  auto faster = faster_pipelines(c, pools, job, best, budget);
  if (faster.empty()) return plans;
  const bool spans = spans_pools(pools, faster.front());
  std::erase_if(faster, [&](const plan& p) { return spans_pools(pools, p) != spans; });
  if (!spans) std::ranges::move(plans, std::back_inserter(faster));
  return faster;
}

/// Does it keep the GPUs that it has, or wait on?
bool stays(const assigned& a) {
  if (!a.who->runs()) return !a.has_gpus();
  return a.option ? a.option == a.who->present
                  : a.mixed && same_nodes(a.mixed->where, a.who->job->where);
}

/// Rules 1 to 5 of docs/planners/troupe.md. Everything is decided from scratch at every call; that
/// the same state gives the same GPUs until something happens follows from snapshot::at_change(),
/// by which work left does not shrink while nothing happens.
class troupe_policy : public queue_policy {
 public:
  explicit troupe_policy(const troupe_options& options) : options_{options} {}
  std::string_view name() const override { return "troupe"; }
  policy_traits traits() const override { return {.any_parallelism = true}; }
  std::vector<parameter> parameters() override {
    auto& o = options_;
    return {{"price_factor", o.price_factor, 0, 1e6},   {"max_load", o.max_load, 0, 0.999},
            {"arriving", o.arriving, 0, 1e6},           {"hold_restarts", o.hold_restarts, 0, 1e6},
            {"min_saving", o.min_saving, 0, 1e6},       {"stop_cost", o.stop_cost, 1, 1e6},
            {"overdue_times", o.overdue_times, 0, 1e9}, {"settle_starts", o.settle_starts, 0, 1e6},
            {"settle_step", o.settle_step, 0, 1e6}};
  }
  /// Trainings may take the GPUs of running jobs that come after them.
  bool places(const job_spec&, bool) const override { return true; }

  /// Its configurations, best by its objective first, or fastest first if it can be stopped; then
  /// those of MARP's plans that none of them has. With `objective: fastest` before these what the
  /// search over all pools finds that is faster. Of a training that is not elastic, or much faster
  /// across pools, Algorithm 1's plan, or the search's.
  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    if (facts_of(job).pipelines) {
      auto plans = is_elastic(job) ? configured_plans(c, job, budget) : std::vector<plan>{};
      if (!plans.empty() && !is_faster_across_pools(c, job, plans.front(), budget)) return plans;
      auto fixed = plans_for(c, job, budget, &widest_space());
      // With what is left of the budget the search may have found another plan than before.
      const bool spans = fixed && spans_pools(pools_of(c, idle_index{c}), fixed->front());
      if (!plans.empty() && !spans) return plans;
      return fixed;
    }
    if (facts_of(job).exact_gpus) return policy::plans_of(c, job, budget);
    auto others = policy::plans_of(c, job, budget);
    if (!others && others.error().code != kind::infeasible) return others;
    auto plans = configured_plans(c, job, budget);
    if (plans.empty()) return others;
    const auto configured = plans.size();
    if (others)
      for (auto& p : *others)
        if (std::ranges::none_of(plans, [&](const plan& q) { return same_shape(p, q); }))
          plans.push_back(std::move(p));
    return with_faster(c, job, std::move(plans), configured, budget);
  }

  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    auto r = look(s);
    note_waiting(s, r);
    auto out = std::move(r.given_up);
    if (r.starts.empty() && std::ranges::all_of(r.all, stays)) return out;  // mostly
    place(s, std::move(r.all), std::move(r.free), out, r.starts);
    std::ranges::move(r.starts, std::back_inserter(out));  // after the stops that make room
    return out;
  }

  /// The time at which the next of the jobs that are left alone may be changed, or one that waits
  /// for GPUs of running jobs has waited long enough. Even if none waits and no GPU is idle, two of
  /// them may be better off with each other's GPUs.
  double decide_again_s(const snapshot& s) const override {
    if (s.waiting.empty() && s.running.size() < 2 && s.idle.total_idle() == 0) return 0;
    double again_s = 0;
    const auto ask_at = [&](double at_s) {
      const double left_s = at_s - s.now_s;
      if (left_s > 0 && (again_s == 0 || left_s < again_s)) again_s = left_s;
    };
    prepare(s);
    follow_running(s);
    for (const auto& j : running_.all())
      if (j.resumable) ask_at(j.settled_s);
    if (can_start_one(s)) {
      if (!last_.is_of(s)) look(s);
      ask_at(last_.patient_until_s);
    }
    return again_s;
  }

 private:
  /// The counts of GPUs of a decision, and what it is made from. `all` refers to `contenders`.
  struct round {
    std::vector<contender> contenders;
    free_gpus free;
    std::vector<decision> given_up, starts;  // starts: of start_fixed_trainings
    std::vector<assigned> all;
  };

  /// When the first of the last round's jobs that could start, and wait for GPUs of running
  /// ones, has waited long enough; 0: there is none. Kept because decide_again_s() asks for it
  /// right after decide(), about the same snapshot.
  struct last_round {
    double now_s = 0, changed_s = 0, patient_until_s = 0;
    std::vector<job_id> waiting;
    std::size_t running = 0, idle = 0;

    bool is_of(const snapshot& s) const {
      return now_s == s.now_s && changed_s == s.at_change().now_s && running == s.running.size() &&
             idle == s.idle.total_idle() &&
             std::ranges::equal(waiting, s.waiting | std::views::keys);
    }
  };

  static bool can_start_one(const snapshot& s) {
    return !s.waiting.empty() && s.idle.total_idle() > 0;
  }

  round look(const snapshot& s) const {
    prepare(s);
    round r{{}, free_gpus{s.cluster, s.idle}, {}, {}, {}};
    job_views trainings;
    r.contenders = contenders_of(s, r.given_up, trainings, r.free);
    start_fixed_trainings(s, trainings, r.contenders, options_, r.free, r.starts);
    const double load = arriving_load(s, cache_, running_, arrivals_);
    r.all = assign(s.cluster, cache_.pools(), cache_.speeds(), r.contenders, r.free, s.now_s, load,
                   options_);
    if (can_start_one(s)) remember(s, r.all);
    return r;
  }

  void remember(const snapshot& s, const std::vector<assigned>& all) const {
    const auto ids = s.waiting | std::views::keys;
    last_ = {s.now_s,          s.at_change().now_s, 0, {ids.begin(), ids.end()},
             s.running.size(), s.idle.total_idle()};
    for (const auto& a : all) {
      if (a.wait_s == 0) continue;
      const double until_s = patient_until_s(*a.who, options_);
      auto& first_s = last_.patient_until_s;
      if (first_s == 0 || until_s < first_s) first_s = until_s;
    }
  }

  reason why_waits(const snapshot& s, const job_view& j) const override {
    prepare(s);
    if (is_fixed(s.cluster, j)) return why_training_waits(s, j);
    if (auto never = why_never(j)) return std::move(*never);
    const auto* note = s.note_of(j.id);
    if (!note) return not_decided_yet();
    const auto x = contender_now(known(s.cluster, j), s.at_change().now_s);
    if (note->code == wait_code::soon_released) {
      const bool can_start = std::ranges::any_of(x.options(), [&](const configuration& o) {
        return has_room(s.cluster, s.idle, *j.spec, o.how);
      });
      if (can_start) return {kind::insufficient, why_patient(s, *note)};
      note = s.note_of(j.id, wait_code::outranked);  // others have started there since
    }
    return {kind::insufficient,
            why_behind(s, x, static_cast<std::size_t>(note->first),
                       static_cast<std::size_t>(note->second), settling_for(s, j))};
  }

  /// How many that will run come before each job that gets nothing, and how many others; then, of
  /// those that could start, which GPUs they wait for.
  void note_waiting(const snapshot& s, const round& r) const {
    if (!s.notes) return;
    const auto rank = [&](const contender& x) {
      return std::tuple(-x.priority, !is_overdue(x, s.now_s, options_), x.work());
    };
    // None for those that were not looked at, since the GPUs were gone.
    std::vector<const assigned*> given(r.contenders.size());
    std::vector<decltype(rank(r.contenders.front()))> served;
    for (const auto& a : r.all) {
      given[static_cast<std::size_t>(a.who - r.contenders.data())] = &a;
      if (a.has_gpus()) served.push_back(rank(*a.who));
    }
    std::ranges::sort(served);
    const auto running =
        static_cast<std::size_t>(std::ranges::count_if(r.contenders, &contender::runs));
    const auto others = s.running.size() - running + served.size() + r.starts.size();
    for (std::size_t i = 0; i < r.contenders.size(); ++i) {
      const auto& x = r.contenders[i];
      if (given[i] && given[i]->has_gpus()) continue;
      const auto before =
          static_cast<std::size_t>(std::ranges::upper_bound(served, rank(x)) - served.begin());
      s.note(x.id, wait_code::outranked, static_cast<double>(before),
             static_cast<double>(others - before));
      if (given[i] && given[i]->wait_s > 0)
        s.notes->add(note_patient(s, *given[i], patient_until_s(x, options_)));
    }
  }

  /// A job of a higher priority is served before they are.
  settling_jobs settling_for(const snapshot& s, const job_view& mine) const {
    settling_jobs out;
    for (const auto& [id, j] : s.running) {
      const double left_s = settled_s(s.cluster, j, options_) - s.now_s;
      if (!may_change(j) || is_fixed(s.cluster, j) || left_s <= 0) continue;
      if (j.spec->priority < mine.spec->priority) continue;
      out.left_s = out.jobs == 0 ? left_s : std::min(out.left_s, left_s);
      ++out.jobs;
    }
    return out;
  }

  /// An elastic program with an exact number of GPUs has no configurations to change to.
  static bool may_change(const job_view& j) { return j.facts().resizable; }

  /// Trainings that are not elastic, and simulated work whose limits only stages of several GPU
  /// types meet: start_fixed_trainings places them, and they run to their end. So do programs of
  /// the user's own that are not elastic, which might start over when they are stopped.
  bool is_fixed(const cluster& c, const job_view& j) const {
    if (j.facts().pipelines && !is_elastic(*j.spec)) return true;
    return j.training && (!j.plans || cache_.of(c, j).options.empty());
  }

  void prepare(const snapshot& s) const {
    if (!cache_.prepare(s)) return;
    running_.clear();
    waiting_.clear();
    arrivals_.clear();
  }

  /// See contender. GPUs of types that were measured alike with guessed ones say that it is the job
  /// that is slower than expected.
  static double guess_slowdown(const cluster& c, const job_view& j) {
    const double slowdown = measured_slowdown(j);
    if (slowdown == 1) return 1;
    const bool guess = std::ranges::all_of(j.where, [&](const node_share& share) {
      return rests_on_guess(*j.spec, c.gpu_of(share.node));
    });
    return guess ? slowdown : 1;
  }

  /// REQUIRES: prepare() of the cluster.
  known_job known(const cluster& c, const job_view& j) const {
    known_job k{j};
    k.fixed = is_fixed(c, j);
    k.may_change = !k.fixed && may_change(j);
    k.never = j.where.empty() && !k.fixed && why_never(j);
    if (!j.where.empty()) {
      k.settled_s = settled_s(c, j, options_);
      k.start_end_s = j.started_s + start_of(c, j);
    }
    if (k.fixed || k.never || (!j.where.empty() && !k.may_change)) return k;
    k.as_contender = contender_of(c, j, cache_.of(c, j), options_);
    k.pace = job_pace{c, j};
    if (j.where.empty()) return k;
    k.as_contender.guess_slowdown = guess_slowdown(c, j);
    k.as_contender.present = present_option(*k.as_contender.table, cache_.pools_of_nodes(), j);
    return k;
  }
  void follow_running(const snapshot& s) const {
    running_.follow(s, s.running, [&](const job_view& j) { return known(s.cluster, j); });
  }

  /// `fixed`: gets the waiting jobs that start_fixed_trainings places; `free`: the GPUs of the
  /// contenders.
  std::vector<contender> contenders_of(const snapshot& s, std::vector<decision>& out,
                                       job_views& fixed, free_gpus& free) const {
    const auto then_s = s.at_change().now_s;
    std::vector<contender> contenders;
    contenders.reserve(s.running.size() + s.waiting.size());
    follow_running(s);
    for (const auto& k : running_.all()) {
      if (!k.may_change) continue;
      contenders.push_back(contender_now(k, then_s));
      if (k.only.gpus > 0)  // mostly, and then without a look at its view
        free.give_back(k.only);
      else
        free.give_back(k.view->where);
    }
    waiting_.follow(s, s.waiting, [&](const job_view& j) { return known(s.cluster, j); });
    for (const auto& k : waiting_.all()) {
      if (k.fixed)
        fixed.emplace(k.id, *k.view);
      else if (k.never)
        out.push_back(give_up(k.id, *why_never(*k.view)));
      else
        contenders.push_back(contender_now(k, then_s));
    }
    rank_unknown_lengths(contenders);
    return contenders;
  }

  static contender contender_now(const known_job& k, double now_s) {
    auto x = k.as_contender;
    x.samples_left = k.pace.samples_left(now_s);
    x.waited_s = now_s - x.submitted_s;
    if (x.runs()) x.start_left_s = std::max(0.0, k.start_end_s - now_s);
    x.place = &k.place;
    return x;
  }

  // Counts become nodes, the largest first, and what differs from the present becomes decisions.
  void place(const snapshot& s, std::vector<assigned> all, free_gpus free,
             std::vector<decision>& stops, std::vector<decision>& starts) const {
    std::ranges::stable_sort(all, std::greater{}, [](const assigned& a) {
      return a.option ? a.who->table->figures[*a.option].gpus : 0;
    });
    std::vector<count_grant> grants;
    for (const auto& a : all) {
      if (a.mixed) free.take(a.mixed->where);
      if (!a.option) continue;
      const auto& o = a.who->table->figures[*a.option];
      grants.push_back({o.pool, o.gpus, &a.who->job->where, a.option == a.who->present});
    }
    place_counts(cache_.pools(), grants, free);

    std::size_t next = 0;
    for (auto& a : all) {
      const auto& j = *a.who->job;
      auto where =
          a.option ? std::move(grants[next++].where) : (a.mixed ? a.mixed->where : allocation{});
      const bool runs = !j.where.empty();
      const bool stays =
          runs && same_nodes(where, j.where) && (!a.option || a.option == a.who->present);
      if (stays) continue;
      if (where.empty() && runs && free.has(j.where)) {
        free.take(j.where);  // no room for its change, and no other job has its GPUs
        continue;
      }
      if (runs) stops.push_back(stop_job(j.id));
      if (where.empty()) continue;
      // Nobody reads it where nobody asks why jobs wait.
      const reason why{kind::unknown, s.notes ? why_assigned(s.cluster, a) : std::string{}};
      auto how = a.option ? a.who->options()[*a.option].how : a.mixed->how;
      starts.push_back({decision::kind::start, j.id, std::move(how), std::move(where), why});
    }
  }

  troupe_options options_;
  // Memory of a pure function.
  mutable configuration_cache cache_;
  mutable known_jobs running_, waiting_;
  mutable known_arrivals arrivals_;
  mutable last_round last_;
};

}  // namespace

std::unique_ptr<policy> make_troupe(const troupe_options& options) {
  return std::make_unique<troupe_policy>(options);
}
std::unique_ptr<policy> make_troupe() {
  return make_troupe(troupe_options{});
}

}  // namespace troupe::planners
