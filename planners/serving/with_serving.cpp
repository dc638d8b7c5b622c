#include "planners/serving/with_serving.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/fits.hpp"
#include "planners/policy/split_views.hpp"
#include "planners/policy/wrapped_policy.hpp"
#include "planners/serving/decoder_memory.hpp"

namespace troupe::planners {

namespace {

/// "weights 0.1 GB, cache 1 GB, ..." for people.
std::string text_of(const decoder_memory& m) {
  return fmt::format("weights {:.2f} GB, cache {:.2f} GB, scratch {:.2f} GB",
                     m.weights / bytes_per_gb, m.cache / bytes_per_gb, m.scratch / bytes_per_gb);
}

std::string types_of(const job_spec& job) {
  return job.limits.required_gpu_type.empty()
             ? ""
             : fmt::format(" of type {}", job.limits.required_gpu_type);
}

/// The best GPU for a decoder among the idle ones; none: no GPU that it may use is idle. Types with
/// enough memory come by memory, the smallest first, and the index has the nodes of a type with the
/// fewest idle GPUs first: large GPUs and whole nodes stay free for jobs that need them.
std::optional<node_index> best_fit(const cluster& c, const idle_index& idle, const job_spec& job,
                                   const plan& how) {
  for (const auto g : idle.types_above(how.bytes_per_gpu)) {
    const bool exists =
        std::ranges::any_of(c.nodes, [g](const node& n) { return n.gpu == g && n.gpus > 0; });
    if (!exists || max_of_type(c, job, g) == 0) continue;
    // Types of the same memory follow each other in the file's order.
    if (const auto p = idle.first_with(g, 1); p != idle_index::none) return idle.node_at(g, p);
  }
  return {};
}

/// Has it run out of memory with this plan? A decoder has one plan: there is no larger one to try.
bool too_small(const job_view& j, const plan& how) {
  return how.bytes_per_gpu <= j.history.bytes_floor;
}

reason why_too_small(const plan& how) {
  return because(reason::kind::infeasible,
                 "ran out of memory where it had been predicted to need {:.2f} GB; a smaller "
                 "kv_gb or max_running may help",
                 how.bytes_per_gpu / bytes_per_gb);
}

/// Parts of a snapshot with and without serve jobs. Policies of the papers do not know jobs without
/// an end; they see a cluster from which the decoders' GPUs are missing.
class split_jobs {
 public:
  explicit split_jobs(const snapshot& s)
      : waiting_{s.waiting, is_decoder},
        running_{s.running, is_decoder},
        moving_{s.moving, is_decoder} {}

  bool any() const { return waiting_.any_own() || running_.any_own() || moving_.any_own(); }
  std::vector<const job_view*> waiting_decoders() const { return all_in_order(waiting_.own()); }
  snapshot rest(const snapshot& s, const idle_index& idle) const {
    snapshot others{s.now_s,        s.cluster,  idle,        waiting_.seen(), running_.seen(),
                    moving_.seen(), s.unusable, s.changed_s, s.arrivals};
    others.notes = s.notes;
    return others;
  }

 private:
  static bool is_decoder(const job_view& j) { return !j.facts().has_end; }

  split_views waiting_, running_, moving_;
};

/// The reason names the rule and its figures, for `troupe explain`.
decision start_of(const cluster& c, const job_view& j, const plan& how, node_index n) {
  auto d = start_job(j.id, how, {{n, 1}});
  d.why = because(reason::kind::invalid,
                  "a decoder takes the GPU with the smallest sufficient memory ({:.2f} of "
                  "{:g} GB), of the node with the fewest idle ones",
                  how.bytes_per_gpu / bytes_per_gb, c.gpu_of(n).memory_gb);
  d.expected = start_estimate{0, how.bytes_per_gpu, false};
  return d;
}

class serving_policy final : public wrapped_policy {
 public:
  explicit serving_policy(std::shared_ptr<const policy> inner) : wrapped_policy{std::move(inner)} {}

  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    return !facts_of(job).has_end ? decoder_plans(c, job) : inner().plans_of(c, job, budget);
  }

  double decide_again_s(const snapshot& s) const override {
    const split_jobs jobs{s};
    return inner().decide_again_s(jobs.rest(s, s.idle));
  }

  /// Decoders first: people wait for their answers, and a decoder takes one GPU. They stop no job,
  /// so that one that was submitted to a full cluster waits for the next GPU that is released.
  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    const split_jobs jobs{s};
    if (!jobs.any()) return inner().decide(s, random);
    auto idle = s.idle;
    std::vector<decision> all;
    for (const auto* j : jobs.waiting_decoders()) {
      if (gives_up(*j, all)) continue;
      const auto& how = j->plans->front();
      if (too_small(*j, how)) {
        all.push_back(give_up(j->id, why_too_small(how)));
        continue;
      }
      const auto n = best_fit(s.cluster, idle, *j->spec, how);
      if (!n || !fits(s.cluster, idle, how, {{*n, 1}})) {
        s.note(j->id, wait_code::too_few, 1, 0);
        continue;
      }
      all.push_back(start_of(s.cluster, *j, how, *n));
      take(idle, all.back().where);
    }
    auto others = inner().decide(jobs.rest(s, idle), random);
    std::ranges::move(others, std::back_inserter(all));
    return all;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto it = s.waiting.find(job);
    if (it != s.waiting.end() && !it->second.facts().has_end)
      return why_decoder_waits(s, it->second);
    const split_jobs jobs{s};
    return inner().why_waiting(jobs.any() ? jobs.rest(s, s.idle) : s, job);
  }

 private:
  static reason why_decoder_waits(const snapshot& s, const job_view& j) {
    if (!has_plans(j)) return why_none(j);
    const auto& how = j.plans->front();
    const double gb = how.bytes_per_gpu / bytes_per_gb;
    if (!s.note_of(j.id)) return {reason::kind::insufficient, "it is about to start"};
    return because(reason::kind::insufficient,
                   "waits for an idle GPU{} with more than {:.2f} GB; decoders go before "
                   "other jobs as soon as one is idle, and stop none",
                   types_of(*j.spec), gb);
  }
};

}  // namespace

expected<std::vector<plan>> decoder_plans(const cluster& c, const job_spec& job) {
  const auto memory = decoder_memory_of(*job.serve);
  plan how;
  how.bytes_per_gpu = memory.total() * (1 + c.settings.memory_headroom);
  double max_gb = 0;
  for (gpu_index g = 0; g < c.gpus.size(); ++g) {
    const auto& gpu = c.gpus[g];
    if (max_of_type(c, job, g) == 0) continue;
    max_gb = std::max(max_gb, gpu.memory_gb);
    if (!(gpu.memory_bytes() > how.bytes_per_gpu)) continue;
    how.cost_per_hour = how.gpu_types.empty() ? gpu.price_per_hour
                                              : std::min(how.cost_per_hour, gpu.price_per_hour);
    how.gpu_types.push_back(g);
  }
  if (!how.gpu_types.empty()) return std::vector<plan>{std::move(how)};
  if (max_gb == 0)
    return refuse(reason::kind::infeasible, "no node has a GPU{}; known types: `troupe status`",
                  types_of(job));
  return refuse(reason::kind::infeasible,
                "needs more than {:.2f} GB on one GPU ({}), and the largest{} has {:g}; "
                "a smaller kv_gb may help",
                how.bytes_per_gpu / bytes_per_gb, text_of(memory), types_of(job), max_gb);
}

std::shared_ptr<const policy> with_serving(std::shared_ptr<const policy> inner) {
  return std::make_shared<const serving_policy>(std::move(inner));
}

}  // namespace troupe::planners
