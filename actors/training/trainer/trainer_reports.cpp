#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/training/device/stage_backend.hpp"
#include "actors/training/trainer/trainer.hpp"
#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"

// The trainer's part about what it reports: to the controller, and to people as events.

namespace troupe::actors {

namespace {

constexpr double replan_event_every_s = 60;
constexpr double skip_event_every_s = 60;

}  // namespace

/// A report that says nothing else: a checkpoint was written behind.
void trainer_state::on_files_written(std::size_t i, const stage_report& r) {
  if (!stages_.is_ready(i)) return;
  stages_.set_saved(i, r.saved);
  update_checkpoint();
  end_if_over();
}

// The curve is written first: a job that resumes from a checkpoint finds all iterations before it.
// A checkpoint needs the stages of one pipeline only, and reports are lost and repeated: its last
// iteration may not have been reported by all stages yet, and the curve must have it by then.
void trainer_state::update_checkpoint() {
  const auto complete_iterations = stages_.saved_by_all(done_);
  if (complete_iterations <= saved_) return;
  const auto before = std::exchange(saved_, complete_iterations);
  write_curve();
  if (!saves()) return;
  TROUPE_INVARIANT(saved_ >= first_, "a checkpoint is no older than the one that was resumed");
  if (auto ok = complete_checkpoint(plan_.stages, saved_, evaluations_.best()); !ok)
    return fail_by_file(ok.error());
  report_skipped(before);
}

/// Those that fell due while the files of another one were being written. At most one event per
/// skip_event_every_s.
void trainer_state::report_skipped(std::uint64_t before) {
  const std::uint64_t every = std::max(1U, o_.order.spec.train->checkpoint_every);
  unreported_skips_ += (saved_ - 1) / every - before / every;
  if (unreported_skips_ == 0 ||
      (last_skip_event_s_ && now_s() - *last_skip_event_s_ < skip_event_every_s))
    return;
  last_skip_event_s_ = now_s();
  const auto all = std::exchange(unreported_skips_, 0);
  add_event(fmt::format(
      "{} checkpoint{} up to iteration {} {} skipped, since {} fell due while "
      "another was being written",
      all, all == 1 ? "" : "s", saved_, all == 1 ? "was" : "were", all == 1 ? "it" : "they"));
}

/// With every report, and before a checkpoint from which the job may resume is complete.
void trainer_state::write_curve() {
  if (const auto ok = curve_.write(); !ok) add_event(ok.error().text);
}

// The whole state and not a change: a report that is lost is replaced by the next.
void trainer_state::report() {
  write_curve();
  training_report r;
  r.lease = o_.lease;
  r.job = o_.job;
  r.schedule = plan_.schedule_name;
  r.device = plan_.stages.empty() ? o_.backend : plan_.stages.front().backend;
  r.stages = plan_.stages_each();
  r.pipelines = plan_.pipelines();
  r.microbatches = plan_.shapes.front().microbatches;
  r.tensor_parallel = std::max(1U, o_.order.spec.pipeline.tensor_parallel);
  r.tokens_per_s = tokens_per_s();
  r.wan_bytes = wan_bytes_;
  r.wan_utilization =
      plan_.wan_gbps > 0 && iterations_s_ > 0
          ? static_cast<double>(wan_bytes_) * 8e-9 / (plan_.wan_gbps * iterations_s_)
          : 0;
  if (lender_.lends()) r.bubbles = bubbles_;
  r.program = program_.all();
  r.heals = healing_.heals_so_far();
  r.held_out = evaluations_.losses();
  TROUPE_INVARIANT(saved_ <= done_, "a report has no checkpoint of iterations that were not done");
  r.saved = saved_;
  r.planned_s = plan_.iteration_s;
  std::vector<stage_costs> measured;
  if (uses_real_devices(plan_)) measured = stages_.medians();
  r.lower_bound_s = lower_bound_s(plan_, std::move(measured));
  for (std::uint32_t s = 0; s < plan_.stages_each() && stages_.size() > 0; ++s) {
    r.max_in_flight.push_back(stages_.max_in_flight(s));
    r.measured.push_back(stages_.slowest(s));
    auto& m = r.measured.back();
    m.handling_s = handling_s(plan_, s, m);
  }
  unreported_.write(r);
  if (uses_real_devices(plan_)) r.timeline = times_.report(plan_);
  o_.messenger.send(controller_address, r);
}

// A controller that lags behind gets the next iterations as soon as it has the last ones.
void trainer_state::on(const inbound<training_report_ack>& m) {
  if (!unreported_.acknowledge(m.body.sequence)) return;
  if (ended_ && unreported_.empty()) return end_lease();
  if (unreported_.has_full_report() || (ended_ && unreported_.has_iterations())) report();
}

/// The event of a training that resumes: how many iterations are lost, and the new iteration time.
void trainer_state::report_resume() {
  auto sentence =
      fmt::format("resumed after iteration {} of {}, with {} stages in {} pipelines on {} GPUs",
                  first_, total(), plan_.stages_each(), plan_.pipelines(),
                  sum_of(plan_.stages, [](const auto& s) { return s.devices.size(); }));
  const auto earlier_s = o_.order.median_iteration_s;
  if (o_.order.reached > first_)
    sentence +=
        fmt::format("; {} iterations since are repeated ({:.4g} s lost)", o_.order.reached - first_,
                    static_cast<double>(o_.order.reached - first_) * earlier_s);
  sentence += fmt::format("; planned iteration time {:.4g} s", plan_.iteration_s);
  if (earlier_s > 0) sentence += fmt::format(", {:.4g} s before", earlier_s);
  add_event(sentence);
}

/// At most one event per replan_event_every_s.
void trainer_state::report_replan(const std::string& what, double kept_s) {
  ++unreported_replans_;
  if (last_replan_event_s_ && now_s() - *last_replan_event_s_ < replan_event_every_s) return;
  last_replan_event_s_ = now_s();
  const auto others = std::exchange(unreported_replans_, 0) - 1;
  add_event(fmt::format(
      "re-planned from iteration {} on: {} as long as planned; expected iteration time {:.4g} s, "
      "{:.4g} s with the old order{}",
      done_ + 1, what, plan_.iteration_s, kept_s,
      others > 0 ? fmt::format(" ({} such changes since the last message)", others + 1) : ""));
}

std::string trainer_state::stage_text(const stage_name& s) const {
  const auto& setup = plan_.stages[stages_.index(s)];
  return fmt::format("stage {} of pipeline {} on node {}", s.stage, s.pipeline,
                     o_.cluster->nodes[node_of(setup.neighbours[s.stage])].name);
}

double trainer_state::tokens_per_s() const {
  const auto& job = o_.order.spec;
  const double tokens = static_cast<double>(job.global_batch) * job.model.sequence;
  TROUPE_INVARIANT(done_ >= first_, "a training has not gone back behind where it resumed");
  return iterations_s_ > 0 ? tokens * static_cast<double>(done_ - first_) / iterations_s_ : 0;
}

}  // namespace troupe::actors
