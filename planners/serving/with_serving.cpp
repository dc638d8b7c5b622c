#include "planners/serving/with_serving.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planners/cluster/queue_order.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/fits.hpp"
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
  return job.required_gpu_type.empty() ? "" : fmt::format(" of type {}", job.required_gpu_type);
}

/// The best GPU for a decoder among the idle ones; none: no GPU that it may use is idle.
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

/// Has it run out of memory with this plan?
bool too_small(const job_view& j, const plan& how) {
  return how.bytes_per_gpu <= j.bytes_floor;
}

reason why_too_small(const plan& how) {
  return {reason::kind::infeasible,
          fmt::format("ran out of memory where it had been predicted to need {:.2f} GB; a smaller "
                      "kv_gb or max_running may help",
                      how.bytes_per_gpu / bytes_per_gb)};
}

/// Parts of a snapshot with and without serve jobs.
class split_jobs {
 public:
  explicit split_jobs(const snapshot& s)
      : waiting_{s.waiting}, running_{s.running}, moving_{s.moving} {}

  bool any() const { return waiting_.any() || running_.any() || moving_.any(); }
  std::vector<const job_view*> waiting_decoders() const {
    auto all = waiting_.decoders();
    by_priority(all);
    return all;
  }
  snapshot rest(const snapshot& s, const idle_index& idle) const {
    return {s.now_s,          s.cluster,  idle,        waiting_.others(), running_.others(),
            moving_.others(), s.unusable, s.changed_s, s.arrivals};
  }

 private:
  /// A list, and a copy without its serve jobs if it has any.
  class list {
   public:
    explicit list(const job_views& all) : all_{all} {
      for (const auto& [id, j] : all)
        if (is_serving(*j.spec)) decoders_.push_back(&j);
      if (decoders_.empty()) return;
      for (const auto& [id, j] : all)
        if (!is_serving(*j.spec)) others_.emplace_hint(others_.end(), id, j);
    }
    bool any() const { return !decoders_.empty(); }
    const std::vector<const job_view*>& decoders() const { return decoders_; }
    const job_views& others() const { return any() ? others_ : all_; }

   private:
    const job_views& all_;
    std::vector<const job_view*> decoders_;
    job_views others_;
  };

  list waiting_, running_, moving_;
};

decision start_of(const cluster& c, const job_view& j, const plan& how, node_index n) {
  decision d{decision::kind::start, j.id, how, {{n, 1}}, {}};
  d.why = {reason::kind::invalid,
           fmt::format("a decoder takes the GPU with the smallest sufficient memory ({:.2f} of "
                       "{:g} GB), of the node with the fewest idle ones",
                       how.bytes_per_gpu / bytes_per_gb, c.gpu_of(n).memory_gb)};
  d.expected = start_estimate{0, how.bytes_per_gpu, false};
  return d;
}

class serving_policy final : public wrapped_policy {
 public:
  explicit serving_policy(std::shared_ptr<const policy> inner) : wrapped_policy{std::move(inner)} {}

  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    return is_serving(job) ? decoder_plans(c, job) : inner().plans_of(c, job, budget);
  }

  double decide_again_s(const snapshot& s) const override {
    const split_jobs jobs{s};
    return inner().decide_again_s(jobs.rest(s, s.idle));
  }

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    const split_jobs jobs{s};
    if (!jobs.any()) return inner().decide(s, random);
    auto idle = s.idle;
    std::vector<decision> all;
    for (const auto* j : jobs.waiting_decoders()) {
      if (!j->plans || j->plans->empty()) {
        all.push_back({decision::kind::give_up, j->id, {}, {}, why_none(*j)});
        continue;
      }
      const auto& how = j->plans->front();
      if (too_small(*j, how)) {
        all.push_back({decision::kind::give_up, j->id, {}, {}, why_too_small(how)});
        continue;
      }
      const auto n = best_fit(s.cluster, idle, *j->spec, how);
      if (!n || !fits(s.cluster, idle, how, {{*n, 1}})) continue;
      all.push_back(start_of(s.cluster, *j, how, *n));
      take(idle, all.back().where);
    }
    auto others = inner().decide(jobs.rest(s, idle), random);
    all.insert(all.end(), std::make_move_iterator(others.begin()),
               std::make_move_iterator(others.end()));
    return all;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto it = s.waiting.find(job);
    if (it != s.waiting.end() && is_serving(*it->second.spec))
      return why_decoder_waits(s, it->second);
    const split_jobs jobs{s};
    return inner().why_waiting(jobs.any() ? jobs.rest(s, s.idle) : s, job);
  }

 private:
  static reason why_decoder_waits(const snapshot& s, const job_view& j) {
    if (!j.plans || j.plans->empty()) return why_none(j);
    const auto& how = j.plans->front();
    const double gb = how.bytes_per_gpu / bytes_per_gb;
    if (best_fit(s.cluster, s.idle, *j.spec, how))
      return {reason::kind::insufficient, "a GPU is idle, and it is about to start"};
    return {reason::kind::insufficient,
            fmt::format("waits for an idle GPU{} with more than {:.2f} GB; decoders go before "
                        "other jobs as soon as one is idle, and stop none",
                        types_of(*j.spec), gb)};
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
    return refuse(reason::kind::infeasible,
                  fmt::format("no node has a GPU{}; known types: `troupe status`", types_of(job)));
  return refuse(
      reason::kind::infeasible,
      fmt::format("needs more than {:.2f} GB on one GPU ({}), and the largest{} has {:g}; "
                  "a smaller kv_gb may help",
                  how.bytes_per_gpu / bytes_per_gb, text_of(memory), types_of(job), max_gb));
}

std::shared_ptr<const policy> with_serving(std::shared_ptr<const policy> inner) {
  return std::make_shared<const serving_policy>(std::move(inner));
}

}  // namespace troupe::planners
