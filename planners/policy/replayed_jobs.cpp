#include "planners/policy/replayed_jobs.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/places.hpp"
#include "planners/plans/user_request.hpp"
#include "planners/policy/with_exact_gpus.hpp"
#include "planners/policy/wrapped_policy.hpp"

namespace troupe::planners {

namespace {

using kind = reason::kind;

// A replayed job has no model: its trace gives the time of an iteration on its number of GPUs,
// maybe for each GPU type. Policies know programs with an exact number of GPUs, which have plans by
// type and are not resized either, so a replayed job is shown to them as one of these. The word in
// its command contains a zero byte, which no file or command line can have.

/// Nothing is known of their memory; policies leave out plans that need none.
constexpr double any_bytes = 1;

job_spec program_like(job_spec job) {
  job.program.command = {std::string{replayed_word}};
  job.request.exact = job.assumed.model = true;
  return job;
}

/// The same without equal numbers of its nodes. A gang of 11 was 8 and 3 in the cluster whose trace
/// it is; one that can be even is, as programs are.
job_spec with_unequal_nodes(job_spec program) {
  program.request.unequal = true;
  return program;
}

const replayed_time* time_on(const replayed_job& job, const gpu_type& gpu) {
  const auto at = std::ranges::find_if(job.times, [&](const replayed_time& t) {
    return t.gpu_type.empty() || t.gpu_type == gpu.name;
  });
  return at == job.times.end() ? nullptr : &*at;
}

/// Its plans, one for each type with a time and enough nodes, the fastest first. Of `program` they
/// are those with as many GPUs of each node.
class replay_planner {
 public:
  replay_planner(const cluster& c, const job_spec& program, const replayed_job& job)
      : c_{c}, program_{program}, job_{job}, whole_{c} {}

  std::vector<plan> plans() const {
    std::vector<plan> out;
    for (const auto g : fastest_first(c_)) {
      const auto* t = time_on(job_, c_.gpus[g]);
      if (!t || whole_.idle_of(g) == 0) continue;
      plan p;
      p.data_parallel = program_.request.gpus;
      p.bytes_per_gpu = any_bytes;
      p.samples_per_s = program_.global_batch / t->planned_s;
      p.gpu_types = {g};
      const auto where = place_exact(c_, whole_, program_, p);
      if (where.empty()) continue;
      for (const auto& share : where)
        p.cost_per_hour += share.gpus * price_per_hour(c_, share.node);
      out.push_back(std::move(p));
    }
    std::ranges::stable_sort(out, std::greater{}, &plan::samples_per_s);
    return out;
  }

  reason why_none() const {
    if (!job_.why_none.empty()) return {kind::infeasible, job_.why_none};
    std::vector<std::string> types;
    std::uint32_t max = 0;
    for (gpu_index g = 0; g < c_.gpus.size(); ++g) {
      if (!time_on(job_, c_.gpus[g]) || whole_.idle_of(g) == 0) continue;
      types.push_back(c_.gpus[g].name);
      max = std::max(max, whole_.idle_of(g));
    }
    if (types.empty())
      return because(kind::infeasible, "the cluster has no {}, which its time is for",
                     named_types());
    const auto apart = unlinked_text(c_);
    if (max < program_.request.gpus || apart.empty())
      return because(kind::infeasible, "needs {} {}; the cluster has {} of one type",
                     program_.request.gpus, fmt::join(types, " or "), max);
    return because(kind::infeasible,
                   "needs {} {}, and a program is never spread over datacenters without a link: "
                   "these GPUs are in {}",
                   program_.request.gpus, fmt::join(types, " or "), apart);
  }

 private:
  std::string named_types() const {
    std::string names;
    for (const auto& t : job_.times) names += (names.empty() ? "" : " or ") + t.gpu_type;
    return names;
  }

  const cluster& c_;
  const job_spec& program_;
  const replayed_job& job_;
  idle_index whole_;
};

class replayed_policy final : public wrapped_policy {
 public:
  replayed_policy(std::shared_ptr<const policy> inner, std::shared_ptr<const replayed_times> times)
      : wrapped_policy{with_exact_gpus(std::move(inner))}, times_{std::move(times)} {}

  policy_traits traits() const override {
    auto t = inner().traits();
    t.plans_by_request = true;
    return t;
  }

  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    const auto at = times_->find(job.name);
    if (at == times_->end()) return inner().plans_of(c, job, budget);
    const auto program = replay_program(c, job, at->second);
    const replay_planner planner{c, program, at->second};
    auto plans = planner.plans();
    if (plans.empty()) return refuse(planner.why_none());
    return plans;
  }

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    const auto seen = seen_by_inner(s);
    auto decisions = inner().decide(seen, random);
    for (auto& d : decisions)
      if (const auto* j = d.starts() ? view_of(seen, d.job) : nullptr) expect(s.cluster, *j, d);
    return decisions;
  }

  double decide_again_s(const snapshot& s) const override {
    return inner().decide_again_s(seen_by_inner(s));
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    return inner().why_waiting(seen_by_inner(s), job);
  }

 private:
  /// Views as the inner policy sees them. Between two calls few entries of a long list change, and
  /// making them all anew would take longer than the policy itself: the copies of the last call are
  /// kept and compared with the present list, in one pass over both.
  struct followed_views {
    job_views seen;
    std::map<job_id, job_view> original;  // the same jobs as they were given
  };

  snapshot seen_by_inner(const snapshot& s) const {
    if (version_ != s.cluster.version) {
      version_ = s.cluster.version;
      waiting_ = running_ = moving_ = {};
      programs_.clear();
      lists_.clear();
    }
    follow(s.cluster, s.waiting, waiting_);
    follow(s.cluster, s.running, running_);
    follow(s.cluster, s.moving, moving_);
    snapshot seen{s.now_s,       s.cluster,    s.idle,    waiting_.seen,
                  running_.seen, moving_.seen, s.unusable};
    seen.notes = s.notes;
    return seen;
  }

  void follow(const cluster& c, const job_views& now, followed_views& views) const {
    auto seen = views.seen.begin();
    auto original = views.original.begin();
    const auto drop = [&] {
      seen = views.seen.erase(seen);
      original = views.original.erase(original);
    };
    for (const auto& [id, j] : now) {
      while (seen != views.seen.end() && seen->first < id) drop();
      const bool known = seen != views.seen.end() && seen->first == id;
      if (!known || !is_same(j, original->second)) {
        if (known) drop();
        seen = views.seen.emplace_hint(seen, id, as_program(c, j));
        original = views.original.emplace_hint(original, id, j);
      }
      ++seen;
      ++original;
    }
    while (seen != views.seen.end()) drop();
  }

  static bool is_same(const job_view& a, const job_view& b) {
    const auto figures = [](const job_view& j) {
      return std::tuple(j.spec.get(), j.plans.get(), j.submitted_s, j.progress.iterations_done,
                        j.progress.attempts, j.history, j.started_s, j.iteration_s,
                        j.reported ? j.reported->at_s : -1, j.reported ? j.reported->iteration : 0,
                        j.elastic.get());
    };
    return figures(a) == figures(b) && a.where == b.where && a.how == b.how;
  }

  void expect(const cluster& c, const job_view& j, decision& d) const {
    const auto at = times_->find(j.spec->name);
    if (at == times_->end() || d.where.empty()) return;
    const auto* t = time_on(at->second, c.gpu_of(d.where.front().node));
    if (t) d.expected = start_estimate{t->iteration_s, any_bytes, false};
  }

  job_view as_program(const cluster& c, const job_view& j) const {
    auto seen = j;
    const auto at = times_->find(j.spec->name);
    if (at == times_->end()) return seen;
    const auto& p = program_of(c, j, at->second);
    seen.number = 0;
    seen.spec = p.spec;
    if (has_plans(j)) seen.plans = p.plans;
    return seen;
  }

  /// With unequal nodes only where no nodes of the cluster, idle or not, have equal numbers.
  static job_spec replay_program(const cluster& c, const job_spec& job, const replayed_job& times) {
    auto program = program_like(job);
    if (replay_planner{c, program, times}.plans().empty())
      program = with_unequal_nodes(std::move(program));
    return program;
  }

  struct known_program {
    std::shared_ptr<const job_spec> original, spec;
    std::shared_ptr<const std::vector<plan>> plans;
  };

  const known_program& program_of(const cluster& c, const job_view& j,
                                  const replayed_job& job) const {
    auto& p = programs_[j.spec->name];
    if (p.original == j.spec) return p;
    p.original = j.spec;
    p.spec = std::make_shared<const job_spec>(replay_program(c, *j.spec, job));
    p.plans = shared(replay_planner{c, *p.spec, job}.plans());
    return p;
  }

  /// Alike jobs share a list (job_view::plans).
  std::shared_ptr<const std::vector<plan>> shared(std::vector<plan> plans) const {
    list_key key;
    for (const auto& p : plans) key.emplace_back(p.gpus(), p.gpu_types.front(), p.samples_per_s);
    auto& list = lists_[key];
    if (!list) list = std::make_shared<const std::vector<plan>>(std::move(plans));
    return list;
  }

  using list_key = std::vector<std::tuple<std::uint32_t, gpu_index, double>>;

  std::shared_ptr<const replayed_times> times_;
  // Caches of pure functions: no answer depends on earlier questions.
  mutable followed_views waiting_, running_, moving_;
  mutable std::uint64_t version_ = 0;
  mutable std::map<std::string, known_program, std::less<>> programs_;
  mutable std::map<list_key, std::shared_ptr<const std::vector<plan>>> lists_;
};

}  // namespace

std::shared_ptr<const policy> with_replayed_times(std::shared_ptr<const policy> inner,
                                                  std::shared_ptr<const replayed_times> times) {
  return std::make_shared<const replayed_policy>(std::move(inner), std::move(times));
}

}  // namespace troupe::planners
