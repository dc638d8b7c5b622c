#include "actors/estimator.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "actors/last_words.hpp"
#include "messages/codec.hpp"
#include "planners/cost_model.hpp"
#include "planners/memory.hpp"
#include "planners/pipeline_placement.hpp"

namespace troupe::actors {

namespace {

/// Jobs with the same key have the same plans: the specification less what only names a job.
std::string key_of(job_spec spec) {
  spec.name.clear();
  spec.command.clear();
  spec.environment.clear();
  spec.working_directory.clear();
  spec.dataset_card.clear();
  spec.priority = 0;
  spec.gpus = 0;
  spec.gpu_type.clear();
  // Only a deadline or a budget makes the plans depend on how much there is to do.
  if (!spec.deadline_s && !spec.budget && !spec.slo_s) spec.iterations = 0;
  const auto bytes = encode(journal_entry{job_accepted{0, 0, 0, std::move(spec), {}}});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

plans_made estimator_state::plans_for(const plans_wanted& w) {
  auto [it, is_new] = known_.try_emplace(fmt::format("{} {}", w.memory_factor, key_of(*w.spec)));
  if (is_new) {
    // A job that ran out of memory is planned with as much more headroom as it has shown to need.
    auto c = *cluster_;
    c.settings.memory_headroom = (1 + c.settings.memory_headroom) * w.memory_factor - 1;
    it->second.memory_factor = w.memory_factor;
    auto plans = planners::plans_for(c, *w.spec);
    if (!plans) it->second.why = plans.error();
    it->second.plans =
        std::make_shared<const std::vector<plan>>(plans ? std::move(*plans) : std::vector<plan>{});
  }
  auto result = it->second;
  result.job = w.job;
  return result;
}

void estimator_state::appraise(proposal& p) const {
  const auto& c = *cluster_;
  for (std::size_t i = 0; i < p.decisions.size(); ++i) {
    const auto& d = p.decisions[i];
    proposal::expectation e;
    if (d.what == planners::decision::kind::start) {
      const auto& spec = *p.specs[i];
      const bool pipelines = planners::is_pipeline_job(spec);
      e.iteration_s = pipelines ? spec.global_batch / d.how.samples_per_s
                                : planners::estimate_iteration(c, spec, d.how, d.where).iteration_s;
      e.bytes = pipelines || d.how.bytes_per_gpu > 0
                    ? d.how.bytes_per_gpu
                    : planners::marp_bytes(spec.model, spec.global_batch, d.how.data_parallel,
                                           d.how.tensor_parallel);
      // Simulated work runs out of memory when the formula says so: nobody measured better.
      e.out_of_memory = std::any_of(d.where.begin(), d.where.end(), [&](const node_share& share) {
        return e.bytes >= c.gpu_of(share.node).memory_bytes();
      });
    }
    p.expected.push_back(e);
  }
}

estimator_actor::behavior_type estimator(estimator_actor::stateful_pointer<estimator_state> self,
                                         std::shared_ptr<const troupe::cluster> c,
                                         orchestrator_actor orchestrator) {
  auto& s = self->state;
  begin_actor(self, "estimator", [&] { s.start(std::move(c)); });
  return {
      [&s, self](const plans_wanted& w) { self->send(w.reply_to, s.plans_for(w)); },
      [&s, self, orchestrator](const proposal& p) {
        auto appraised = p;
        s.appraise(appraised);
        self->send(orchestrator, std::move(appraised));
      },
  };
}

}  // namespace troupe::actors
