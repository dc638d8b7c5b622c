#include "actors/training/trainer.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "actors/protocol/actor_failure.hpp"
#include "actors/protocol/timing.hpp"
#include "actors/training/stage.hpp"
#include "actors/training/stage_backend.hpp"
#include "actors/training/stage_times.hpp"
#include "gpu/model/checkpoint.hpp"
#include "messages/base/statistics.hpp"

namespace troupe::actors {

namespace {

constexpr double tick_s = 1;
constexpr double silence_limit_s = 20;       // plus that many times the longest iteration
constexpr double no_progress_limit_s = 600;  // before the first iteration is complete,
constexpr double setup_limit_s = 3600;       // and while a stage is being set up
constexpr double starting_event_after_s = 10;
constexpr std::uint64_t window = 100;           // iterations that stages run on their own
constexpr std::size_t profile_iterations = 64;  // whose median costs are the profile

/// The end of an attempt in which a stage has failed. `progress`: this attempt has got further than
/// earlier ones.
part_report::state end_after(const reason& why, bool progress) {
  using enum part_report::state;
  switch (why.code) {
    case reason::kind::out_of_memory:  // it is planned again with more headroom
      return out_of_memory;
    case reason::kind::stale:        // a newer lease has the job
    case reason::kind::device_lost:  // the device will not be granted again
      return stopped;
    case reason::kind::unavailable:  // peers may come back
      return progress ? stopped : failed;
    default:
      return failed;
  }
}

/// If a newer lease has the job, this one's end says nothing about the job.
part_report::state fenced(const reason& why) {
  return why.code == reason::kind::stale ? part_report::state::stopped : part_report::state::failed;
}

/// Sums; of the guard and the worst delay the largest.
void add(bubble_use& all, const bubble_use& one) {
  all.guest_steps += one.guest_steps;
  all.guest_s += one.guest_s;
  all.delayed_steps += one.delayed_steps;
  all.delay_s += one.delay_s;
  all.worst_delay_s = std::max(all.worst_delay_s, one.worst_delay_s);
  all.guard_s = std::max(all.guard_s, one.guard_s);
  all.paused = all.paused || one.paused;
  all.idle_s = all.idle_s.value_or(0) + one.idle_s.value_or(0);
  if (!one.delays) return;
  if (!all.delays) all.delays.emplace();
  all.delays->add(*one.delays);
}

/// Empty: loss and norm are finite.
std::string not_finite(const iteration_record& r) {
  const auto sentence = [&](const char* what, double value) {
    return fmt::format(
        "iteration {}: the {} is {}, expected a finite number; the learning rate may be too high",
        r.iteration, what, value);
  };
  if (!std::isfinite(r.loss)) return sentence("loss", r.loss);
  if (!std::isfinite(r.gradient_norm)) return sentence("gradient norm", r.gradient_norm);
  return {};
}

}  // namespace

void trainer_state::means::add(const stage_costs& k) {
  ++iterations;
  for (const auto time : measured_costs) sum.*time += k.*time;
}

stage_costs trainer_state::means::mean() const {
  auto k = sum;
  for (const auto time : measured_costs) k.*time /= std::max(1U, iterations);
  return k;
}

void trainer_state::start(trainer_actor::pointer self, trainer_options o) {
  self_ = self;
  o_ = std::move(o);
  wall_ahead_s_ = o_.messenger.wall_s() - o_.messenger.now_s();
  prepare();
  self_->delayed_send(trainer_actor{self_}, nanoseconds_of(tick_s), tick{});
}

void trainer_state::prepare() {
  auto made = plan_training(*o_.cluster, o_.lease, o_.order, o_.backend);
  if (!made) return fail(part_report::state::failed, made.error().text);
  plan_ = std::move(*made);
  stages_.resize(plan_.stages.size());
  first_ = o_.order.iterations_done;
  if (uses_real_devices(plan_)) {
    const auto& directory = o_.order.spec.train->checkpoint;
    if (!directory.empty())
      if (const auto ok = open_checkpoints(directory, o_.lease); !ok)
        return fail(fenced(ok.error()), ok.error().text);
    first_ = 0;
    if (!directory.empty() && newest_saved(directory) > 0) {
      const auto newest = gpu::newest_sound_checkpoint(directory, o_.order.spec.model);
      if (!newest) return fail(part_report::state::failed, newest.error().text);
      for (const auto& damaged : newest->damaged) add_event(damaged);
      first_ = newest->iteration;
    }
    curve_ = {directory, o_.lease};
  }
  first_ = done_ = saved_ = std::min(first_, total());
  const auto unreported = curve_.resume(first_, o_.order.reached);
  if (!unreported) return fail(fenced(unreported.error()), unreported.error().text);
  // An earlier lease's trainer may have been killed after it saved and before it reported.
  if (o_.order.reached > 0) unacknowledged_ = *unreported;
  for (auto& s : plan_.stages) {
    s.first_iteration = first_;
    s.iterations = total();
    s.incarnation = o_.incarnation;
  }
  for (auto& s : stages_) s.done = s.saved = first_;
  last_report_s_ = last_progress_s_ = o_.messenger.now_s();
  if (first_ > 0 || o_.order.reached > 0) report_resume();
  lend_bubbles();
  send_setups();
}

/// A training whose bubbles cannot be lent is none the worse for it.
void trainer_state::lend_bubbles() {
  if (!o_.order.spec.pipeline.bubbles || plan_.stages.empty()) return;
  auto made = bubble_lender::of(*o_.cluster, o_.order.spec, plan_, o_.incarnation,
                                o_.messenger.self(), iterations_alone(), first_);
  if (!made) return add_event("its bubbles are not lent: " + made.error().text);
  lender_ = std::move(*made);
  lender_.add_guests(plan_);
}

void trainer_state::send_setups() {
  for (std::size_t i = 0; i < stages_.size(); ++i)
    if (!stages_[i].ready) {
      auto& s = plan_.stages[i];
      s.sent_s = o_.messenger.now_s();
      o_.messenger.send(s.neighbours[s.name.stage], s);
    }
}

// -- running

/// Stages whose peers' devices can all all-reduce directly get pipeline 0's group id.
void trainer_state::distribute_group_ids() {
  group_ids_.assign(plan_.shape.stages, {});
  bool reported = false;
  for (std::uint32_t s = 0; s < plan_.shape.stages; ++s) {
    const reason* fallback_reason = nullptr;
    for (auto p = plan_.shape.pipelines; p-- > 0;)
      if (const auto& x = stages_[p * plan_.shape.stages + s]; !x.fallback_reason.text.empty())
        fallback_reason = &x.fallback_reason;
    if (!fallback_reason) group_ids_[s] = stages_[s].group_id;
    if (fallback_reason && !std::exchange(reported, true))
      add_event(
          fmt::format("stage {}: falling back to host all-reduce: {}", s, fallback_reason->text));
  }
}

/// So many iterations stages run on their own.
std::uint64_t trainer_state::iterations_alone() const {
  const auto every = o_.order.spec.train ? o_.order.spec.train->replan_every : 0;
  return every > 0 ? every : window;
}

void trainer_state::run_window() {
  until_ = std::min(total(), done_ + iterations_alone());
  for (std::size_t i = 0; i < stages_.size(); ++i) run(i);
}

void trainer_state::run(std::size_t i) {
  const auto& s = plan_.stages[i];
  stage_run r{s.name,
              until_,
              stages_[i].done,
              {},
              {},
              {},
              group_ids_[s.name.stage],
              o_.incarnation,
              o_.messenger.now_s(),
              stages_[i].clock.ahead_s()};
  r.halt = stopping_;
  r.save = last_.value_or(0);
  // Also when the message is repeated: the first one may be lost.
  if (replanned_) r.order = s.order, r.forward = s.forward, r.backward = s.backward;
  if (retimed_ && s.guest) r.guest_times = lender_.times_of(i);
  o_.messenger.send(s.neighbours[s.name.stage], r);
}

void trainer_state::on_stage_report(const stage_report& r) {
  if (ended_ || r.incarnation != o_.incarnation || r.name.pipeline >= plan_.shape.pipelines ||
      r.name.stage >= plan_.shape.stages)
    return;
  last_report_s_ = o_.messenger.now_s();
  if (r.starting) return on_starting(r);
  const auto i = index(r.name);
  if (r.request_sent_s > 0)
    stages_[i].clock.sample(r.request_sent_s, r.received_s, r.replied_s, last_report_s_);
  if (!r.why.text.empty())
    return fail(
        end_after(r.why, done_ > std::max(first_, o_.order.reached)),
        fmt::format("stage {} of pipeline {}: {}", r.name.stage, r.name.pipeline, r.why.text));
  auto& s = stages_[i];
  if (!s.ready || r.iteration > s.done) last_progress_s_ = last_report_s_;
  if (!s.ready) {
    s.ready = true;
    s.group_id = r.group_id;
    s.fallback_reason = r.fallback_reason;
    if (++ready_ == stages_.size()) {
      distribute_group_ids();
      run_window();
      lender_.send(o_.messenger, o_.cluster->settings.heartbeat_s);
    }
  }
  // A stage that halts may still be saving this iteration, and report it afterwards.
  if (r.iteration == s.done + 1 && !r.halts_at) add_report(i, r);
  if (ended_) return;
  s.saved = std::max(s.saved, r.saved);
  if (stopping_ && r.halts_at) record_halt(i, *r.halts_at);
  update_checkpoint();
  end_if_over();
}

/// Stops without losing an iteration: stages complete those that any of them has begun, and save.
void trainer_state::on_stop_training() {
  if (ended_ || std::exchange(stopping_, true)) return;
  if (ready_ < stages_.size())
    return fail(part_report::state::stopped, "stopped before its first iteration");
  if (uses_real_devices(plan_) && o_.order.spec.train->checkpoint.empty())
    return fail(
        part_report::state::stopped,
        fmt::format("stopped; the job has no checkpoint, so {} iterations are lost", done_));
  for (std::size_t i = 0; i < stages_.size(); ++i) run(i);
}

void trainer_state::record_halt(std::size_t i, std::uint64_t at) {
  if (last_) return;
  stages_[i].halts_at = at;
  std::uint64_t furthest = 0;
  for (const auto& s : stages_) {
    if (!s.halts_at) return;
    furthest = std::max(furthest, *s.halts_at);
  }
  last_ = until_ = furthest;
  for (std::size_t k = 0; k < stages_.size(); ++k) run(k);
}

void trainer_state::on_starting(const stage_report& r) {
  last_starting_s_ = last_report_s_;
  if (last_starting_s_ - last_progress_s_ < starting_event_after_s ||
      std::exchange(starting_reported_, true))
    return;
  const auto& s = plan_.stages[index(r.name)];
  add_event(fmt::format("stage {} of pipeline {} is still being set up on node {}, after {:.3g} s",
                        r.name.stage, r.name.pipeline,
                        o_.cluster->nodes[node_of(s.neighbours[r.name.stage])].name,
                        last_starting_s_ - last_progress_s_));
}

void trainer_state::add_report(std::size_t i, const stage_report& r) {
  auto& s = stages_[i];
  s.done = r.iteration;
  s.saved = std::max(s.saved, r.saved);
  s.measured.push_back(r.measured);
  if (s.measured.size() > (uses_real_devices(plan_) ? profile_iterations : 1))
    s.measured.pop_front();
  s.window.add(r.measured);
  s.max_in_flight = std::max(s.max_in_flight, r.max_in_flight);
  wan_bytes_ += r.sent_bytes;
  if (!r.tasks.empty()) trace_.add(r), times_.add(r);
  auto [it, fresh] = pending_.try_emplace(r.iteration);
  auto& p = it->second;
  auto& record = p.record;
  record.iteration = r.iteration;
  record.begin_s = fresh ? r.begin_s : std::min(record.begin_s, r.begin_s);
  record.end_s = std::max(record.end_s, r.end_s);
  record.busy_s += r.busy_s;
  if (r.bubbles) {
    record.guest_s = record.guest_s.value_or(0) + r.bubbles->guest_s;
    add(bubbles_, *r.bubbles);
  }
  record.loss += r.loss / plan_.shape.pipelines;  // only last stages have one
  if (r.name.pipeline == 0) record.gradient_norm += r.squared_norm;
  if (++p.stages < stages_.size()) return;
  record.gradient_norm = std::sqrt(record.gradient_norm);
  complete(record);
  pending_.erase(it);
}

void trainer_state::complete(const iteration_record& r) {
  // Neither in the curve nor in a report: the training has got no further than the one before.
  if (const auto wrong = not_finite(r); !wrong.empty())
    return fail(part_report::state::failed,
                saved_ > 0
                    ? fmt::format("{}; the newest checkpoint is after iteration {}", wrong, saved_)
                    : wrong);
  done_ = r.iteration;
  longest_s_ = std::max(longest_s_, r.end_s - r.begin_s);
  unacknowledged_.push_back(r);
  auto& record = unacknowledged_.back();
  // Consecutive iterations overlap: each counts from the end of the one before, except for slot
  // jobs, which study single iterations.
  const double begin_s = std::clamp(last_end_s_, r.begin_s, r.end_s);
  if (!o_.order.spec.slots) record.begin_s = begin_s;
  iterations_s_ += r.end_s - begin_s;
  last_end_s_ = r.end_s;
  record.begin_s += wall_ahead_s_;
  record.end_s += wall_ahead_s_;
  curve_.add(record);
  times_.complete(r.iteration, begin_s, r.end_s);
  // Every max_report_iterations, not for each further one while the controller does not answer.
  if (unacknowledged_.size() % max_report_iterations == 0) report();
  if (stopping_ || done_ < until_ || done_ == total()) return;
  replan_if_drifted();
  run_window();
}

/// Between windows, when no stage runs.
void trainer_state::replan_if_drifted() {
  replanned_ = retimed_ = false;
  if (!o_.order.spec.train || o_.order.spec.train->replan_every == 0) return;
  std::vector<stage_costs> measured;
  for (auto& s : stages_) measured.push_back(std::exchange(s.window, {}).mean());
  replan(measured);
  if (lender_.lends()) retimed_ = lender_.update(plan_, with_measured(plan_, measured));
}

void trainer_state::replan(const std::vector<stage_costs>& measured) {
  const auto drifted = drift_of(plan_, measured);
  if (drifted.relative <= o_.order.spec.train->replan_drift) return;
  auto made = replan_training(std::move(plan_), measured);
  plan_ = std::move(made.plan);
  replanned_ = made.changed;
  if (made.changed) report_replan(drifted.what, made.kept_s);
}

/// The maximum of each time over the pipelines.
stage_costs trainer_state::slowest_of_stage(std::uint32_t stage) const {
  stage_costs result;
  for (std::uint32_t p = 0; p < plan_.shape.pipelines; ++p) {
    const auto m = median(stages_[p * plan_.shape.stages + stage].measured);
    result.forward_s = std::max(result.forward_s, m.forward_s);
    result.recompute_s = std::max(result.recompute_s, m.recompute_s);
    result.backward_s = std::max(result.backward_s, m.backward_s);
    result.update_s = std::max(result.update_s, m.update_s);
    result.gradients_s = std::max(result.gradients_s, m.gradients_s);
    result.wan_s = std::max(result.wan_s, m.wan_s);
    result.activation_bytes = std::max(result.activation_bytes, m.activation_bytes);
    result.gradient_bytes = std::max(result.gradient_bytes, m.gradient_bytes);
    result.tied_bytes = std::max(result.tied_bytes, m.tied_bytes);
  }
  return result;
}

void trainer_state::update_checkpoint() {
  std::uint64_t complete_iterations = total();
  for (std::uint32_t s = 0; s < plan_.shape.stages; ++s)
    complete_iterations = std::min(complete_iterations, stages_[s].saved);
  // A checkpoint needs the stages of one pipeline only, and reports are lost and repeated: its last
  // iteration may not have been reported by all stages yet, and the curve must have it by then.
  if (complete_iterations <= saved_ || complete_iterations > done_) return;
  saved_ = complete_iterations;
  write_curve();
  if (!uses_real_devices(plan_) || o_.order.spec.train->checkpoint.empty()) return;
  if (auto ok = complete_checkpoint(plan_.stages, saved_); !ok)
    fail(fenced(ok.error()), ok.error().text);
}

// -- ticks

void trainer_state::on_tick() {
  if (!ended_) {
    if (ready_ < stages_.size()) send_setups();
    const double silent_s = o_.messenger.now_s() - last_report_s_;
    if (ready_ == stages_.size() && silent_s > tick_s)
      for (std::size_t i = 0; i < stages_.size(); ++i)
        if (stopping_ || stages_[i].done < until_) run(i);
    if (ready_ == stages_.size())
      for (std::size_t i = 0; i < stages_.size(); ++i)
        if (stages_[i].clock.due(o_.messenger.now_s())) run(i);
    // Stages that are not ready may still be starting, stragglers more slowly.
    const double start_s = ready_ < stages_.size() ? 4 * o_.cluster->settings.restart_s : 0;
    if (silent_s > silence_limit_s + start_s + silence_limit_s * longest_s_ + plan_.iteration_s * 2)
      fail(part_report::state::stopped, fmt::format("no report from any stage for {:.3g} s; {} "
                                                    "iterations since the last checkpoint are lost",
                                                    silent_s, done_ - saved_));
    // Stages answer but make no progress, although they request lost tensors.
    const double still_s = o_.messenger.now_s() - last_progress_s_,
                 unknown_s = last_starting_s_ + silence_limit_s > o_.messenger.now_s()
                                 ? setup_limit_s
                                 : no_progress_limit_s,
                 known_s = longest_s_ > 0 ? 3 * silence_limit_s : unknown_s;
    if (still_s > start_s + known_s + silence_limit_s * std::max(longest_s_, plan_.iteration_s))
      fail(part_report::state::stopped, fmt::format("no stage made progress for {:.3g} s; {} "
                                                    "iterations since the last checkpoint are lost",
                                                    still_s, done_ - saved_));
  }
  lender_.send(o_.messenger, o_.cluster->settings.heartbeat_s);
  if (!lease_ended_) report();
  self_->delayed_send(trainer_actor{self_}, nanoseconds_of(tick_s), tick{});
}

// -- the end

void trainer_state::end_if_over() {
  // Also when no iteration is left to do: the node waits for every stage to report its end.
  if (ended_ || ready_ < stages_.size()) return;
  if (last_ && *last_ < total() && done_ >= *last_ && saved_ >= *last_)
    return fail(
        part_report::state::stopped,
        fmt::format("stopped after iteration {} of {}; no iteration is lost", *last_, total()));
  if (done_ < total()) return;
  const bool saves = uses_real_devices(plan_) && !o_.order.spec.train->checkpoint.empty();
  if (saves && saved_ < total()) return;
  if (const auto& file = o_.order.spec.train ? o_.order.spec.train->timeline : std::string{};
      !file.empty())
    if (auto ok = trace_.write(file, *o_.cluster, plan_, o_.order.spec); !ok)
      add_event(ok.error().text);
  finish(part_report::state::succeeded, {});
}

void trainer_state::fail(part_report::state how, const std::string& why) {
  add_event(why);
  finish(how, why);
}

void trainer_state::finish(part_report::state how, const std::string& why) {
  if (std::exchange(ended_, true)) return;
  how_ = how;
  why_ = why;
  lender_.withdraw();
  lender_.send(o_.messenger, o_.cluster->settings.heartbeat_s);
  report();
}

/// Only after the controller has acknowledged everything: the trainer does not outlive the lease.
void trainer_state::end_lease() {
  if (std::exchange(lease_ended_, true)) return;
  caf::anon_send(o_.messenger.node(), training_over{o_.lease, {}, true, how_, why_});
}

void trainer_state::add_event(const std::string& sentence) {
  unacknowledged_events_.push_back(sentence);
  caf::anon_send(o_.messenger.node(), training_event{o_.lease, sentence});
}

trainer_actor::behavior_type trainer(trainer_actor::stateful_pointer<trainer_state> self,
                                     trainer_options o) {
  auto& s = self->state;
  begin_actor(self, "trainer", [&] { s.start(self, std::move(o)); });
  return {
      [&s](const inbound<stage_report>& m) { s.on_stage_report(m.body); },
      [&s](const inbound<training_report_ack>& m) { s.on_training_report_ack(m.body); },
      [&s](const stop_training&) { s.on_stop_training(); },
      [&s](const tick&) { s.on_tick(); },
  };
}

}  // namespace troupe::actors
