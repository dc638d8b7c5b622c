#include "actors/training/trainer/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "actors/training/device/stage_backend.hpp"
#include "actors/training/lending/bubble_sums.hpp"
#include "actors/training/stage/stage.hpp"
#include "actors/training/trainer/attempt_end.hpp"
#include "actors/training/trainer/resume_events.hpp"
#include "gpu/model/checkpoint.hpp"
#include "gpu/model/checkpoint_fence.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/replicas/heals.hpp"

namespace troupe::actors {

namespace {

constexpr std::uint64_t window = 100;           // iterations that stages run on their own
constexpr std::size_t profile_iterations = 64;  // whose median costs are the profile

}  // namespace

void trainer_state::start(trainer_actor::pointer self, trainer_options o) {
  self_ = self;
  o_ = std::move(o);
  wall_ahead_s_ = o_.messenger.wall_s() - now_s();
  prepare();
  send_later(self_, tick_length_s(), tick{});
}

// The controller's count of iterations decides for simulated trainings only. For real ones the
// checkpoints decide, which an earlier lease may have written after its last report.
void trainer_state::prepare() {
  auto made = plan_training(*o_.cluster, o_.lease, o_.order, o_.backend);
  if (!made) return fail(part_report::state::failed, made.error().text, end_word::start_failed);
  plan_ = std::move(*made);
  if (uses_real_devices(plan_))
    if (const auto sentence =
            smaller_than_asked(o_.order.spec.pipeline, plan_.stages_each(), plan_.pipelines());
        !sentence.empty())
      add_event(sentence);
  TROUPE_INVARIANT(plan_.stages.size() == std::size_t{plan_.stages_each()} * plan_.pipelines(),
                   "a training has a stage for each part of each pipeline");
  for (std::uint32_t p = 0; p < plan_.pipelines(); ++p) {
    const auto& s = plan_.stages[p * plan_.stages_each()];
    loss_divisors_.push_back(static_cast<double>(s.all_microbatches()) / s.microbatches);
  }
  stages_.begin(plan_, uses_real_devices(plan_) ? profile_iterations : 1);
  first_ = o_.order.iterations_done;
  if (uses_real_devices(plan_))
    if (const auto ok = find_checkpoint(); !ok) return fail_by_file(ok.error());
  first_ = done_ = saved_ = std::min(first_, total());
  if (o_.order.spec.train) evaluations_ = evaluations{*o_.order.spec.train};
  auto unreported = curve_.resume(first_, o_.order.reached,
                                  [&](const iteration_record& r) { evaluations_.add(r); });
  if (!unreported) return fail_by_file(unreported.error());
  if (evaluations_.reached(first_)) target_at_ = first_;
  // An earlier lease's trainer may have been killed after it saved and before it reported.
  if (o_.order.reached > 0) unreported_.restore(std::move(*unreported));
  for (auto& s : plan_.stages) {
    s.first_iteration = first_;
    s.iterations = total();
    s.incarnation = o_.incarnation;
  }
  stages_.resume_after(first_);
  signs_.assign(plan_.stages.size(), {now_s(), 0, {}, {}});
  ticked_s_ = now_s();
  watch_.begin(now_s());
  if (uses_real_devices(plan_) && !plan_.bare_wan.empty())
    add_event(fmt::format(
        "the WAN between {} is not emulated: tensors take what the network takes, and the lower "
        "bound counts no time for them",
        plan_.bare_wan));
  if (first_ > 0 || o_.order.reached > 0) report_resume();
  lend_bubbles();
  begin_healing();
  send_setups();
}

/// Stages without peers have their nodes keep copies of the state of their workers.
void trainer_state::begin_healing() {
  const auto& spec = o_.order.spec;
  if (!planners::heals(spec)) return;
  const bool has_peers = planners::heals(spec, o_.order.how) && plan_.pipelines() > 1 &&
                         !sums_on_devices(*spec.train, plan_.stages.front().backend);
  const bool keeps = plan_.pipelines() == 1 && spec.train->program && uses_real_devices(plan_);
  if (!has_peers && !keeps) return;
  healing_ = healing{plan_, [this](address a) { return datacenter_of_node(a); }};
  for (auto& s : plan_.stages)
    if (keeps) s.keeps = true;
}

/// Opens the checkpoint directory, and finds the iteration to resume after: that of the newest
/// checkpoint whose files are sound, whatever the controller knows of it.
expected<void> trainer_state::find_checkpoint() {
  const auto& directory = o_.order.spec.train->checkpoint;
  if (!directory.empty())
    if (auto ok = gpu::take_fence(directory, o_.lease); !ok) return ok;
  first_ = 0;
  if (!directory.empty() && gpu::newest_checkpoint(directory)) {
    const auto newest = gpu::newest_sound_checkpoint(directory, o_.order.spec.model);
    if (!newest) return refuse(newest.error());
    for (const auto& damaged : newest->damaged) add_event(damaged);
    first_ = newest->iteration;
    report_changes(gpu::checkpoint_directory(directory, first_));
  }
  curve_ = {directory, o_.lease};
  return {};
}

/// Values that the job has otherwise than the training that wrote its checkpoint.
void trainer_state::report_changes(const std::filesystem::path& checkpoint) {
  if (!o_.order.spec.train->program) return;
  const auto found = gpu::checkpoint::open(checkpoint);
  if (!found) return add_event(found.error().text);
  const auto origin = gpu::origin_of(*found);
  if (!origin) return add_event(origin.error().text);
  if (*origin)
    for (const auto& sentence : changes_since(**origin, o_.order.spec)) add_event(sentence);
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

/// Repeated until every stage has answered: setups may be lost, and a node may not have its orders
/// yet.
void trainer_state::send_setups() {
  for (std::size_t i = 0; i < stages_.size(); ++i)
    if (!stages_.is_ready(i)) {
      auto& s = plan_.stages[i];
      TROUPE_INVARIANT(stages_.index(s.name) == i, "a stage has the place that its name says");
      TROUPE_INVARIANT(s.name.stage < s.neighbours.size(),
                       "a stage knows its own host among its neighbours'");
      s.sent_s = now_s();
      o_.messenger.send(s.neighbours[s.name.stage], s);
    }
}

// -- running

/// One event for the training: the reason of one stage is that of the others.
void trainer_state::report_fallbacks() {
  for (std::uint32_t s = 0; s < plan_.stages_each(); ++s)
    if (const auto* why = stages_.fallback_reason(s))
      return add_event(fmt::format("stage {}: falling back to host all-reduce: {}", s, why->text));
}

std::uint64_t trainer_state::iterations_alone() const {
  const auto every = o_.order.spec.train ? o_.order.spec.train->replan_every : 0;
  return every > 0 ? every : window;
}

// Nothing is sent between two windows of a training: a window is as long as the trainer need not
// know, and a barrier costs one round trip.
void trainer_state::run_window() {
  const auto before = until_;
  until_ = evaluations_.next_end(done_, std::min(total(), done_ + iterations_alone()));
  TROUPE_INVARIANT(until_ >= before, "the window of iterations does not fall behind what was done");
  run_all();
}

void trainer_state::run_all() {
  for (std::size_t i = 0; i < stages_.size(); ++i) run(i);
}

void trainer_state::run(std::size_t i) {
  const auto& s = plan_.stages[i];
  TROUPE_INVARIANT(!last_ || until_ == *last_, "a training that stops runs to its last iteration");
  stage_run r{s.name,
              until_,
              stages_.done(i),
              {},
              {},
              {},
              stages_.communicator_id(s.name.stage),
              o_.incarnation,
              now_s(),
              stages_.clock(i).ahead_s()};
  r.halt = stopping_;
  r.save = last_.value_or(ending_ ? *target_at_ : 0);
  // Also when the message is repeated: the first one may be lost.
  if (replanned_) r.order = s.order, r.forward = s.forward, r.backward = s.backward;
  if (retimed_ && s.guest) r.guest_times = lender_.times_of(i);
  if (healing_.is_gathering())
    r.gather = healing_.view();
  else if (healing_.is_changing())
    r.begin = healing_.begin_of(plan_, i);
  o_.messenger.send(s.neighbours[s.name.stage], r);
}

// Every report counts as a sign of life and as a sample of its host's clock, also a repeated one;
// only the one of the stage's next iteration counts as progress.
void trainer_state::on(const inbound<stage_report>& m) {
  const auto& r = m.body;
  if (ended_ || r.incarnation != o_.incarnation || r.name.pipeline >= plan_.pipelines() ||
      r.name.stage >= plan_.stages_each())
    return;
  const double at_s = now_s();
  const auto i = stages_.index(r.name);
  TROUPE_INVARIANT(i < stages_.size(), "a report is of a stage of the training");
  if (r.standby) return on_standby(i, r, m.from);
  if (!is_from_its_host(i, m.from)) return;
  watch_.on_report(at_s);
  signs_[i].answered_s = at_s;
  signs_[i].asked_s.reset();
  if (r.request_sent_s > 0)
    signs_[i].longest_s = std::max(0.98 * signs_[i].longest_s,
                                   (at_s - r.request_sent_s) - (r.replied_s - r.received_s));
  if (r.starting) return on_starting(r);
  stages_.add_round_trip(i, r, at_s);
  if (r.why.text.empty() && r.iteration < r.saved) return on_files_written(i, r);
  if (!r.why.text.empty()) return on_stage_failed(i, r);
  if (!stages_.is_ready(i) || r.iteration > stages_.done(i)) watch_.on_progress(at_s);
  if (!stages_.is_ready(i)) on_ready(i, r);
  if (joining_ && r.joined) on_joined(i, r);
  // A stage that halts may still be saving this iteration, and report it afterwards.
  if (r.iteration == stages_.done(i) + 1 && r.iteration <= total() && !r.halts_at && !r.place &&
      !is_missing(r))
    add_report(i, r);
  if (r.place) on_place(i, *r.place, r.copies.value_or(std::vector<std::uint64_t>{}));
  if (ended_) return;
  stages_.set_saved(i, r.saved);
  if (stopping_ && r.halts_at) record_halt(i, *r.halts_at);
  if (ending_ && r.halts_at && stages_.halt(i, *r.halts_at)) ending_ = false;
  update_checkpoint();
  end_if_over();
}

/// Stages begin together: the first forward of one would wait for the others all the same.
void trainer_state::on_ready(std::size_t i, const stage_report& r) {
  program_.add(r);
  const bool last = stages_.set_ready(i, r);
  if (healing_.is_changing()) {
    run(i);
    if (healing_.on_begun(i, healing_.view(), now_s())) end_heal();
    return;
  }
  if (!last) return;
  TROUPE_INVARIANT(!joining_ && until_ <= done_,
                   "no iteration begins before the last stage is ready");
  joining_ = true;
  if (stages_.groups_are_settled()) return begin_iterations();
  until_ = done_;
  run_all();
}

void trainer_state::on_joined(std::size_t i, const stage_report& r) {
  TROUPE_INVARIANT(stages_.all_ready(), "devices join their groups when all stages are ready");
  stages_.set_joined(i, r);
  if (stages_.groups_are_settled()) begin_iterations();
}

void trainer_state::begin_iterations() {
  TROUPE_INVARIANT(stages_.groups_are_settled(),
                   "iterations begin when the groups of devices are settled");
  joining_ = false;
  report_fallbacks();
  run_window();
  lender_.send(o_.messenger, o_.cluster->settings.heartbeat_s);
}

/// Stops without losing an iteration: stages complete those that any of them has begun, and save.
void trainer_state::on(const stop_training&) {
  if (!ended_ && healing_.is_changing()) stop_healed_ = true;
  if (ended_ || ending_ || stop_healed_ || std::exchange(stopping_, true)) return;
  if (!stages_.all_ready() || joining_)
    return fail(part_report::state::stopped, "stopped before its first iteration");
  if (uses_real_devices(plan_) && !saves())
    return fail(
        part_report::state::stopped,
        fmt::format("stopped; the job has no checkpoint, so {} iterations are lost", done_));
  run_all();
}

// Stages halt at different iterations, since they run up to one apart. The furthest is the last for
// all, so that every stage saves the same one.
void trainer_state::record_halt(std::size_t i, std::uint64_t at) {
  if (last_) return;
  const auto furthest = stages_.halt(i, at);
  if (!furthest) return;
  last_ = until_ = *furthest;
  run_all();
}

/// All stages have done the iteration whose evaluation has reached the target, and wait.
void trainer_state::end_at_target() {
  const auto found = evaluations_.reached(done_);
  if (!found || stopping_ || done_ == total()) return;
  add_event(
      fmt::format("the held-out loss of {:.4g} is at most the target of {:.4g}: the training "
                  "ends after iteration {} of {}",
                  found->loss, *o_.order.spec.train->target_loss, done_, total()));
  target_at_ = until_ = done_;
  ending_ = true;
  run_all();
}

void trainer_state::on_starting(const stage_report& r) {
  if (!watch_.on_starting(now_s())) return;
  add_event(fmt::format("{} is still being set up, after {:.3g} s", stage_text(r.name),
                        watch_.setup_s()));
}

void trainer_state::add_report(std::size_t i, const stage_report& r) {
  stages_.add(i, r);
  program_.add(r);
  wan_bytes_ += r.sent_bytes;
  if (!r.tasks.empty()) trace_.add(r), times_.add(r);
  auto [it, fresh] = pending_.try_emplace(r.iteration);
  auto& p = it->second;
  TROUPE_INVARIANT(r.iteration > done_,
                   "a report counts for an iteration that not all stages have done");
  TROUPE_INVARIANT(p.stages < stages_.size(), "each stage counts once for an iteration");
  TROUPE_INVARIANT(fresh == (p.stages == 0), "an iteration is begun by the first report of it");

  auto& record = p.record;
  record.iteration = r.iteration;
  record.begin_s = fresh ? r.begin_s : std::min(record.begin_s, r.begin_s);
  record.end_s = std::max(record.end_s, r.end_s);
  record.busy_s += r.busy_s;
  if (r.bubbles) {
    record.guest_s = record.guest_s.value_or(0) + r.bubbles->guest_s;
    add_use(bubbles_, *r.bubbles);
  }
  p.sums.add(r);
  signs_[i].report = r;
  signs_[i].report.tasks.clear();
  if (++p.stages < stages_.size()) return add_missing_reports(r);
  p.sums.add_to(record, loss_divisors_);
  complete(record);
  pending_.erase(it);
}

void trainer_state::complete(const iteration_record& r) {
  // Neither in the curve nor in a report: the training has got no further than the one before.
  if (const auto wrong = not_finite(r); !wrong.empty())
    return fail(part_report::state::failed,
                saved_ > 0
                    ? fmt::format("{}; the newest checkpoint is after iteration {}", wrong, saved_)
                    : wrong,
                end_word::diverged);
  TROUPE_INVARIANT(r.iteration == done_ + 1, "iterations are completed one by one");
  done_ = r.iteration;
  TROUPE_INVARIANT(done_ <= total(), "a training does no more iterations than it has");
  longest_s_ = std::max(longest_s_, r.end_s - r.begin_s);
  auto record = r;
  // Consecutive iterations overlap: each counts from the end of the one before, except for slot
  // jobs, which study single iterations.
  const double begin_s = std::clamp(last_end_s_, r.begin_s, r.end_s);
  if (facts_of(o_.order.spec).has_model) record.begin_s = begin_s;
  iterations_s_ += r.end_s - begin_s;
  last_end_s_ = r.end_s;
  record.begin_s += wall_ahead_s_;
  record.end_s += wall_ahead_s_;
  program_.complete(record);
  unreported_.add(with_few_values(record));
  curve_.add(record);
  evaluations_.add(record);
  times_.complete(r.iteration, begin_s, r.end_s);
  if (unreported_.fills_report()) report();
  end_at_target();
  if (stopping_ || done_ < until_ || done_ == total()) return;
  replan_if_drifted();
  run_window();
}

/// Between windows, when no stage runs.
void trainer_state::replan_if_drifted() {
  replanned_ = retimed_ = false;
  // Stages that share a device take longer than any plan says.
  if (healing_.heals_so_far()) return;
  if (!o_.order.spec.train || o_.order.spec.train->replan_every == 0) return;
  const auto measured = stages_.take_means();
  replan(measured);
  if (lender_.lends()) retimed_ = lender_.update(plan_, with_measured(plan_, measured));
}

void trainer_state::replan(const std::vector<stage_costs>& measured) {
  const auto drifted = drift_of(plan_, measured);
  if (drifted.relative <= o_.order.spec.train->replan_drift) return;
  auto made = replan_training(std::move(plan_), measured);
  plan_ = std::move(made.plan);
  replanned_ = made.changed;
  TROUPE_INVARIANT(plan_.stages.size() == stages_.size(),
                   "a training keeps its stages when it is planned again");
  if (made.changed) report_replan(drifted.what, made.kept_s);
}

// -- ticks

void trainer_state::on(const tick&) {
  if (!ended_) {
    if (healing_.heals()) suspect_silent();
    if (healing_.is_changing()) ask_stages();
    call_back();
    if (!stages_.all_ready()) send_setups();
    const bool silent = watch_.silent_s(now_s()) > longest_tick_s;
    for (std::size_t i = 0; stages_.all_ready() && i < stages_.size(); ++i)
      if (silent && (stopping_ || joining_ || ending_ || stages_.done(i) < until_)) run(i);
    for (std::size_t i = 0; stages_.all_ready() && i < stages_.size(); ++i)
      if (stages_.clock(i).due(now_s())) run(i);
    check_limits();
  }
  lender_.send(o_.messenger, o_.cluster->settings.heartbeat_s);
  if (!lease_ended_) report();
  send_later(self_, tick_length_s(), tick{});
}

/// Stages that are not ready may still be starting, stragglers more slowly.
void trainer_state::check_limits() {
  const double start_s = stages_.all_ready() && !joining_ ? 0 : 4 * o_.cluster->settings.restart_s;
  TROUPE_INVARIANT(saved_ <= done_, "no checkpoint has more iterations than were done");
  const training_watch::pace pace{longest_s_, plan_.iteration_s, start_s, done_ - saved_};
  if (const auto why = watch_.no_report(now_s(), pace)) fail(part_report::state::stopped, *why);
  if (const auto why = watch_.no_progress(now_s(), pace)) fail(part_report::state::stopped, *why);
}

// -- the end

void trainer_state::end_if_over() {
  TROUPE_INVARIANT(first_ <= done_ && done_ <= total(),
                   "a training is between the iteration that it resumed after and its last");
  // Also when no iteration is left to do: the node waits for every stage to report its end.
  if (ended_ || !stages_.all_ready()) return;
  if (last_ && *last_ < total() && done_ >= *last_ && saved_ >= *last_)
    return fail(
        part_report::state::stopped,
        fmt::format("stopped after iteration {} of {}; no iteration is lost", *last_, total()));
  if (done_ < total() || ending_) return;
  if (saves() && saved_ < total()) return;
  if (const auto& file = o_.order.spec.train ? o_.order.spec.train->timeline : std::string{};
      !file.empty())
    if (auto ok = trace_.write(file, *o_.cluster, plan_, o_.order.spec); !ok)
      add_event(ok.error().text);
  finish(part_report::state::succeeded, {});
}

void trainer_state::fail(part_report::state how, const std::string& why,
                         std::optional<end_word> word) {
  add_event(why);
  finish(how, why, word);
}

void trainer_state::fail_by_file(const reason& why) {
  fail(part_report::state::failed, why.text, end_word::start_failed);
}

void trainer_state::finish(part_report::state how, const std::string& why,
                           std::optional<end_word> word) {
  if (std::exchange(ended_, true)) return;
  how_ = how;
  why_ = why;
  word_ = word;
  lender_.withdraw();
  lender_.send(o_.messenger, o_.cluster->settings.heartbeat_s);
  report();
}

/// Only after the controller has acknowledged everything: the trainer does not outlive the lease.
void trainer_state::end_lease() {
  if (std::exchange(lease_ended_, true)) return;
  TROUPE_INVARIANT(ended_ && unreported_.empty(),
                   "a trainer ends when the controller has all of its reports");
  TROUPE_INVARIANT(how_ != part_report::state::running, "a training that has ended says how");
  caf::anon_send(o_.messenger.node(),
                 training_over{o_.lease, {}, true, how_, why_, program_.peak_bytes(), word_});
}

void trainer_state::fail_work(const std::string& why) {
  caf::anon_send(
      o_.messenger.node(),
      training_over{o_.lease, {}, true, part_report::state::failed, why, program_.peak_bytes()});
}

void trainer_state::add_event(const std::string& sentence) {
  unreported_.add_event(sentence);
  caf::anon_send(o_.messenger.node(), training_event{o_.lease, sentence});
}

}  // namespace troupe::actors
