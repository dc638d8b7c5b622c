// Frenzy (docs/planners/has.md): MARP's plans (section IV.A of the paper), placed by HAS (Algorithm
// 1), for every waiting job in order. No preemption, no resizing and no reservation, as in the
// paper: a job that cannot be placed is passed over, and a stream of small ones can keep a large
// one waiting.

#include <set>

#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/has.hpp"
#include "planners/plans/places.hpp"
#include "planners/plans/shortage.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::planners {
namespace {

// Results of this pass by list of plans: identical jobs share their list, so that a queue of
// thousands has few different ones. A hash table with open addressing, since look-ups are most of
// the time of a pass that starts nothing: about 10 ns per waiting job. Never iterated: the order of
// pointers must not reach an output.
class verdicts {
 public:
  enum verdict : std::uint8_t { unknown, servable, refused };
  using list = const std::vector<plan>*;

  verdict& of(list l) {
    if (2 * used_ >= slots_.size()) grow();
    auto& s = slot_of(slots_, l);
    if (s.key == nullptr) {
      s.key = l;
      ++used_;
    }
    return s.value;
  }

 private:
  struct slot {
    list key = nullptr;
    verdict value = unknown;
  };
  static slot& slot_of(std::vector<slot>& slots, list l) {
    auto i = (reinterpret_cast<std::uintptr_t>(l) >> 4) * 0x9e3779b97f4a7c15ULL >> 32;
    for (;; ++i) {
      auto& s = slots[i % slots.size()];
      if (s.key == l || s.key == nullptr) return s;
    }
  }
  void grow() {
    std::vector<slot> larger(slots_.size() * 2);
    for (const auto& s : slots_)
      if (s.key != nullptr) slot_of(larger, s.key) = s;
    slots_ = std::move(larger);
  }
  std::vector<slot> slots_ = std::vector<slot>(64);
  std::size_t used_ = 0;
};

class frenzy : public queue_policy {
 public:
  std::string_view name() const override { return "frenzy"; }
  policy_traits traits() const override { return {.best_fit = true}; }

  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    std::vector<decision> out;
    verdicts known;
    auto jobs = worth_a_look(s, known, out);
    if (s.idle.total_idle() > 0) start_jobs(s, std::move(jobs), known, out);
    if (s.notes) note_waiting(s, out);
    return out;
  }

 private:
  static void start_jobs(const snapshot& s, std::vector<const job_view*> jobs, verdicts& known,
                         std::vector<decision>& out) {
    by_priority(jobs);
    remaining_idle idle{s.idle};
    auto taken = out.size();  // the decisions that `idle` already reflects
    for (const auto* j : jobs) {
      auto& verdict = known.of(j->plans.get());
      const bool alike = j->history.bytes_floor == 0 && j->spec->limits.required_gpu_type.empty();
      // Within a pass idle GPUs only decrease: a list that was refused once stays refused. A job
      // with a floor or a type of its own may be refused where others of its list are not.
      if (alike && verdict == verdicts::refused) continue;
      if (taken < out.size()) {
        idle.take(out.back().where);
        taken = out.size();
        if (idle->total_idle() == 0) break;
      }
      if (auto start = place(s, *idle, *j))
        out.push_back(std::move(*start));
      else if (alike)
        verdict = verdicts::refused;
    }
  }

  /// Alike jobs have one note. Whoever could be served by the idle GPUs has been looked at.
  static void note_waiting(const snapshot& s, const std::vector<decision>& out) {
    std::set<job_id> decided;
    remaining_idle idle{s.idle};
    for (const auto& d : out) {
      decided.insert(d.job);
      if (d.starts()) idle.take(d.where);
    }
    const std::vector<plan>* last = nullptr;
    auto code = wait_code::too_few;
    for (const auto& [id, j] : s.waiting) {
      if (decided.contains(id) || !has_plans(j)) continue;
      const double floor = j.history.bytes_floor;
      const bool alike = floor == 0 && j.spec->limits.required_gpu_type.empty();
      if (!alike || j.plans.get() != last) {
        std::optional<idle_index> allowed;
        const auto& own = allowed_idle(s.cluster, *idle, *j.spec, allowed);
        code = first_servable(own, *j.plans, floor) ? wait_code::too_far : wait_code::too_few;
        last = alike ? j.plans.get() : nullptr;
      }
      s.note(id, code);
    }
  }

  reason why_waits(const snapshot& s, const job_view& j) const override {
    if (!has_plans(j)) return why_none(j);
    const auto* note = s.note_of(j.id);
    if (!note) return not_decided_yet();
    std::optional<idle_index> allowed;
    const auto& idle = allowed_idle(s.cluster, s.idle, *j.spec, allowed);
    const double floor = j.history.bytes_floor;
    const auto choice = first_servable(idle, *j.plans, floor);
    if (!choice) return why_unserved(idle, *j.plans, floor);
    const auto& how = (*j.plans)[*choice];
    if (const auto apart = scatter_text(s.cluster, idle, j, how); !apart.empty())
      return because(reason::kind::insufficient,
                     "needs {} GPUs of at least {:.1f} GB{}; {} are idle", how.gpus(),
                     how.bytes_per_gpu / bytes_per_gb, apart, idle.idle_above(how.bytes_per_gpu));
    const char* what = note->code == wait_code::too_few
                           ? "they were not at the last decision"
                           : "they are too scattered for the job to run at a reasonable speed";
    return because(reason::kind::insufficient,
                   "needs {} GPUs of at least {:.1f} GB; {} are idle, but {}", how.gpus(),
                   how.bytes_per_gpu / bytes_per_gb, idle.idle_above(how.bytes_per_gpu), what);
  }

  // HAS as printed knows neither links nor speeds. On scattered idle GPUs it would spread a tensor
  // group over slow links, and the job would hold its GPUs many times longer than planned. So: HAS,
  // but skips a placement whose GPUs are too far apart: a tensor group over several nodes
  // (unless the cluster cannot keep it in one), or less than `min_share` of the speed that the plan
  // was ranked by. If nothing runs, there is nothing to wait for.
  static std::optional<decision> place(const snapshot& s, const idle_index& idle,
                                       const job_view& j) {
    ++searches_made;
    if (j.facts().exact_gpus) {
      auto p = place_exact(s.cluster, idle, j);
      if (!p) return {};
      return start_job(j.id, std::move(p->how), std::move(p->where));
    }
    const job_places places{s.cluster, *j.spec, *j.plans, j.history.bytes_floor};
    const job_rooms rooms{s.cluster, *j.spec, places, idle};
    for (const auto& how : *j.plans) {
      const double bytes = how.bytes_per_gpu;
      if (bytes <= j.history.bytes_floor || idle.idle_above(bytes) < how.gpus()) continue;
      auto where =
          rooms.first([&](const idle_index& some) { return placement_of(s, some, j, how); });
      if (where) return start_job(j.id, how, std::move(*where));
    }
    return {};
  }

  static std::optional<allocation> placement_of(const snapshot& s, const idle_index& idle,
                                                const job_view& j, const plan& how) {
    constexpr double min_share = 0.5;
    const auto group = how.tensor_in_node ? how.tensor_parallel : 1;
    auto where = best_fit(idle, how.gpus(), idle.types_above(how.bytes_per_gpu), group);
    if (where.empty()) return {};
    if (where.size() > 1 && !s.running.empty()) {
      const auto here = estimate_iteration(s.cluster, *j.spec, how, where);
      if (here.samples_per_s < min_share * how.samples_per_s) return {};
    }
    return where;
  }

  // The jobs that the idle GPUs could serve, each on its own, in order of arrival; gives up on
  // those without any plan. Most of a long queue is rejected here by comparing pointers.
  static std::vector<const job_view*> worth_a_look(const snapshot& s, verdicts& known,
                                                   std::vector<decision>& out) {
    std::vector<const job_view*> jobs;
    const std::vector<plan>* last = nullptr;
    auto verdict = verdicts::unknown;
    for (const auto& [id, j] : s.waiting) {
      if (!has_plans(j) || j.history.bytes_floor > 0) {
        if (auto never = why_never(j))
          out.push_back(give_up(id, std::move(*never)));
        else
          jobs.push_back(&j);
        continue;
      }
      if (j.plans.get() != last) {
        last = j.plans.get();
        auto& v = known.of(last);
        if (v == verdicts::unknown)
          v = first_servable(s.idle, *last) ? verdicts::servable : verdicts::refused;
        verdict = v;
      }
      if (verdict == verdicts::servable) jobs.push_back(&j);
    }
    return jobs;
  }
};

}  // namespace

std::unique_ptr<policy> make_frenzy() {
  return std::make_unique<frenzy>();
}

}  // namespace troupe::planners
