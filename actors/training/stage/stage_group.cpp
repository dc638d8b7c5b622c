#include <optional>
#include <utility>

#include "actors/training/stage/stage.hpp"

// How the devices of a stage and its peers become a group, before the first step.

namespace troupe::actors {

/// GPUs of several pipelines may all-reduce their gradients directly. The stage reports whether its
/// device can; if all peers' devices can, the trainer sends them pipeline 0's group id.
void stage_state::request_group_id() {
  const bool alone = o_.setup.pipelines == 1 && o_.setup.devices.size() <= 1;
  if (alone || !executor_->may_join_group()) return report_ready();
  // Gateways carry no collectives of devices.
  if (o_.setup.sites) {
    stage_report ready;
    ready.fallback_reason = {reason::kind::infeasible, "its peers are in several datacenters"};
    return report_ready(std::move(ready));
  }
  phase_ = phase::communicator_id;
  submit({gpu::operations::make_communicator_id{me().pipeline, o_.setup.pipelines}});
}

/// Before the first step a group is joined, once; or left, if a peer's device could not join.
void stage_state::on_group(const stage_run& r) {
  auto& gradients = training_.gradients();
  const bool fresh = next_ == 0 && training_.iteration() == o_.setup.first_iteration;
  if (!fresh || failed_) return;
  if (r.communicator_id.empty() && r.until > training_.iteration()) return gradients.leave();
  if (r.communicator_id.empty() || busy_ || phase_ != phase::steps ||
      std::exchange(asked_to_join_, true))
    return;
  phase_ = phase::joining;
  gradients.join();
  submit({gpu::operations::join_communicator{payload{r.communicator_id}, me().pipeline,
                                             o_.setup.pipelines}});
}

void stage_state::end_join(std::optional<reason> refused) {
  phase_ = phase::steps;
  stage_report r;
  r.iteration = training_.iteration();
  r.saved = training_.saved();
  r.joined = !refused;
  if (refused) {
    training_.gradients().leave();
    r.fallback_reason = std::move(*refused);
  }
  report(std::move(r));
  advance();
}

/// Whether a device that could not join its group works without one. GPUs that share their stage
/// need theirs.
bool stage_state::may_go_on_alone(const reason& why) const {
  return o_.setup.devices.size() <= 1 &&
         (why.code == reason::kind::invalid || why.code == reason::kind::infeasible);
}

}  // namespace troupe::actors
