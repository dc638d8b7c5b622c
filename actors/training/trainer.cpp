#include "actors/training/trainer.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "actors/protocol/actor_failure.hpp"
#include "actors/protocol/timing.hpp"
#include "actors/training/stage.hpp"
#include "actors/training/stage_backend.hpp"
#include "messages/statistics.hpp"

namespace troupe::actors {

namespace {

constexpr double look_every_s = 1;
constexpr double stalled_s = 20;         // and as many of the longest iterations
constexpr double stuck_s = 600;          // the same, while no iteration says how long one takes
constexpr double setting_up_s = 3600;    // the same, while a stage says that it is being set up
constexpr double tell_starting_s = 10;   // then people are told
constexpr std::uint64_t window = 100;    // iterations that stages run by themselves
constexpr std::size_t max_untold = 256;  // iterations in one report
constexpr std::size_t remembered = 64;   // iterations whose costs make up a profile
constexpr double replan_news_every_s = 60;

bool real(const training_plan& p) {
  return !p.stages.empty() && p.stages.front().backend != "sim";
}

/// A newer lease has the job: this one's end says nothing about it.
part_report::state fenced(const reason& why) {
  return why.code == reason::kind::stale ? part_report::state::stopped : part_report::state::failed;
}

}  // namespace

void trainer_state::means::add(const stage_costs& k) {
  ++iterations;
  sum.forward_s += k.forward_s;
  sum.recompute_s += k.recompute_s;
  sum.backward_s += k.backward_s;
  sum.wan_s += k.wan_s;
}

stage_costs trainer_state::means::mean() const {
  auto k = sum;
  for (auto* s : {&k.forward_s, &k.recompute_s, &k.backward_s, &k.wan_s})
    *s /= std::max(1U, iterations);
  return k;
}

void trainer_state::start(trainer_actor::pointer self, trainer_options o) {
  self_ = self;
  o_ = std::move(o);
  wall_ahead_s_ = o_.via.wall_s() - o_.via.now_s();
  prepare();
  self_->delayed_send(trainer_actor{self_}, nanoseconds_of(look_every_s), tick{});
}

void trainer_state::prepare() {
  auto made = plan_training(*o_.cluster, o_.lease, o_.order, o_.backend);
  if (!made) return fail(part_report::state::failed, made.error().text);
  plan_ = std::move(*made);
  stages_.resize(plan_.stages.size());
  first_ = o_.order.iterations_done;
  if (real(plan_)) {
    const auto& directory = o_.order.spec.train->checkpoint;
    if (!directory.empty())
      if (const auto ok = open_checkpoints(directory, o_.lease); !ok)
        return fail(fenced(ok.error()), ok.error().text);
    first_ = directory.empty() ? 0 : newest_saved(directory);
    curve_ = {directory, o_.lease};
  }
  first_ = done_ = saved_ = std::min(first_, total());
  if (const auto ok = curve_.resume(first_); !ok) return fail(fenced(ok.error()), ok.error().text);
  for (auto& s : plan_.stages) {
    s.first_iteration = first_;
    s.iterations = total();
    s.incarnation = o_.incarnation;
  }
  for (auto& s : stages_) s.done = s.saved = first_;
  heard_s_ = moved_s_ = o_.via.now_s();
  if (first_ > 0 || o_.order.reached > 0) say_what_it_costs();
  set_up_missing();
}

/// The job goes on elsewhere, or otherwise.
void trainer_state::say_what_it_costs() {
  auto sentence =
      fmt::format("resumed after iteration {} of {}, with {} stages in {} pipelines on {} GPUs",
                  first_, total(), plan_.shape.stages, plan_.shape.pipelines,
                  plan_.stages.size() * std::max(1U, o_.order.spec.pipeline.tensor_parallel));
  const auto took_s = o_.order.took_s;
  if (o_.order.reached > first_)
    sentence +=
        fmt::format("; {} iterations since are repeated ({:.4g} s lost)", o_.order.reached - first_,
                    static_cast<double>(o_.order.reached - first_) * took_s);
  sentence += fmt::format("; planned iteration time {:.4g} s", plan_.iteration_s);
  if (took_s > 0) sentence += fmt::format(", {:.4g} s before", took_s);
  news(sentence);
}

void trainer_state::set_up_missing() {
  for (std::size_t i = 0; i < stages_.size(); ++i)
    if (!stages_[i].ready) {
      auto& s = plan_.stages[i];
      s.sent_s = o_.via.now_s();
      o_.via.send(s.neighbours[s.name.stage], s);
    }
}

// -- running

/// Where all peers of a stage can sum among themselves, they are told what they meet by.
void trainer_state::introduce_devices() {
  group_ids_.assign(plan_.shape.stages, {});
  bool said = false;
  for (std::uint32_t s = 0; s < plan_.shape.stages; ++s) {
    const reason* fallback_reason = nullptr;
    for (auto p = plan_.shape.pipelines; p-- > 0;)
      if (const auto& x = stages_[p * plan_.shape.stages + s]; !x.fallback_reason.text.empty())
        fallback_reason = &x.fallback_reason;
    if (!fallback_reason) group_ids_[s] = stages_[s].group_id;
    if (fallback_reason && !std::exchange(said, true))
      news(fmt::format("stage {}: falling back to host all-reduce: {}", s, fallback_reason->text));
  }
}

void trainer_state::run_window() {
  const auto every = o_.order.spec.train ? o_.order.spec.train->replan_every : 0;
  until_ = std::min(total(), done_ + (every > 0 ? every : window));
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
              o_.via.now_s(),
              stages_[i].clock.ahead_s()};
  r.halt = stopping_;
  r.save = last_.value_or(0);
  // Also when it is asked again: it may not have heard the first time.
  if (replanned_) r.order = s.order, r.forward = s.forward, r.backward = s.backward;
  o_.via.send(s.neighbours[s.name.stage], r);
}

void trainer_state::hear(const stage_report& r) {
  if (ended_ || r.incarnation != o_.incarnation || r.name.pipeline >= plan_.shape.pipelines ||
      r.name.stage >= plan_.shape.stages)
    return;
  heard_s_ = o_.via.now_s();
  if (r.starting) return hear_starting(r);
  const auto i = index(r.name);
  if (r.asked_s > 0) stages_[i].clock.sample(r.asked_s, r.came_s, r.left_s, heard_s_);
  if (!r.why.text.empty()) {
    // What cannot be reached may be there again: worth another attempt, if this one got further
    // than any before. A lost device is not given out again, as a lost node.
    const bool again =
        r.why.code == reason::kind::stale || r.why.code == reason::kind::device_lost ||
        (r.why.code == reason::kind::unavailable && done_ > std::max(first_, o_.order.reached));
    return fail(
        again ? part_report::state::stopped : part_report::state::failed,
        fmt::format("stage {} of pipeline {}: {}", r.name.stage, r.name.pipeline, r.why.text));
  }
  auto& s = stages_[i];
  if (!s.ready || r.iteration > s.done) moved_s_ = heard_s_;
  if (!s.ready) {
    s.ready = true;
    s.group_id = r.group_id;
    s.fallback_reason = r.fallback_reason;
    if (++ready_ == stages_.size()) {
      introduce_devices();
      run_window();
    }
  }
  // Where a stage halts it may still be saving the iteration, of which its next report tells.
  if (r.iteration == s.done + 1 && !r.halts_at) note(i, r);
  s.saved = std::max(s.saved, r.saved);
  if (stopping_ && r.halts_at) note_halt(i, *r.halts_at);
  look_at_checkpoint();
  end_if_over();
}

/// The job is to stop with nothing lost: no stage begins another iteration but those that one of
/// them has begun.
void trainer_state::stop() {
  if (ended_ || std::exchange(stopping_, true)) return;
  if (ready_ < stages_.size())
    return fail(part_report::state::stopped, "stopped before its first iteration");
  if (real(plan_) && o_.order.spec.train->checkpoint.empty())
    return fail(
        part_report::state::stopped,
        fmt::format("stopped; the job has no checkpoint, so {} iterations are lost", done_));
  for (std::size_t i = 0; i < stages_.size(); ++i) run(i);
}

void trainer_state::note_halt(std::size_t i, std::uint64_t at) {
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

void trainer_state::hear_starting(const stage_report& r) {
  starting_s_ = heard_s_;
  if (starting_s_ - moved_s_ < tell_starting_s || std::exchange(said_starting_, true)) return;
  const auto& s = plan_.stages[index(r.name)];
  news(fmt::format("stage {} of pipeline {} is still being set up on node {}, after {:.3g} s",
                   r.name.stage, r.name.pipeline,
                   o_.cluster->nodes[node_of(*o_.cluster, s.neighbours[r.name.stage])].name,
                   starting_s_ - moved_s_));
}

void trainer_state::note(std::size_t i, const stage_report& r) {
  auto& s = stages_[i];
  s.done = r.iteration;
  s.saved = std::max(s.saved, r.saved);
  s.measured.push_back(r.measured);
  if (s.measured.size() > (real(plan_) ? remembered : 1)) s.measured.pop_front();
  s.window.add(r.measured);
  s.max_in_flight = std::max(s.max_in_flight, r.max_in_flight);
  wan_bytes_ += r.sent_bytes;
  if (!r.tasks.empty()) trace_.add(r);
  auto [it, fresh] = pending_.try_emplace(r.iteration);
  auto& p = it->second;
  auto& record = p.record;
  record.iteration = r.iteration;
  record.begin_s = fresh ? r.begin_s : std::min(record.begin_s, r.begin_s);
  record.end_s = std::max(record.end_s, r.end_s);
  record.busy_s += r.busy_s;
  record.loss += r.loss / plan_.shape.pipelines;  // only last stages have one
  if (r.name.pipeline == 0) record.gradient_norm += r.squared_norm;
  if (++p.stages < stages_.size()) return;
  record.gradient_norm = std::sqrt(record.gradient_norm);
  complete(record);
  pending_.erase(it);
}

void trainer_state::complete(const iteration_record& r) {
  done_ = r.iteration;
  longest_s_ = std::max(longest_s_, r.end_s - r.begin_s);
  untold_.push_back(r);
  auto& told = untold_.back();
  // Stages that are through begin the next iteration: that counts from where this one ends. A study
  // in slots is of single ones.
  const double begin_s = std::clamp(last_end_s_, r.begin_s, r.end_s);
  if (!o_.order.spec.slots) told.begin_s = begin_s;
  worked_s_ += r.end_s - begin_s;
  last_end_s_ = r.end_s;
  told.begin_s += wall_ahead_s_;
  told.end_s += wall_ahead_s_;
  curve_.add(told);
  // Not for every further one while the controller has not answered.
  if (untold_.size() % max_untold == 0) report();
  if (stopping_ || done_ < until_ || done_ == total()) return;
  replan_if_drifted();
  run_window();
}

/// Looked at between windows, when no stage runs.
void trainer_state::replan_if_drifted() {
  replanned_ = false;
  if (!o_.order.spec.train || o_.order.spec.train->replan_every == 0) return;
  std::vector<stage_costs> measured;
  for (auto& s : stages_) measured.push_back(std::exchange(s.window, {}).mean());
  const auto drifted = drift_of(plan_, measured);
  if (drifted.share <= o_.order.spec.train->replan_drift) return;
  auto made = replan_training(std::move(plan_), measured);
  plan_ = std::move(made.plan);
  replanned_ = made.changed;
  if (made.changed) say_replanned(drifted.what, made.kept_s);
}

/// Costs that drift change little by little: people need not hear of every step.
void trainer_state::say_replanned(const std::string& what, double kept_s) {
  ++replans_unsaid_;
  if (replan_said_s_ && o_.via.now_s() - *replan_said_s_ < replan_news_every_s) return;
  replan_said_s_ = o_.via.now_s();
  const auto others = std::exchange(replans_unsaid_, 0) - 1;
  news(fmt::format(
      "re-planned from iteration {} on: {} as long as planned; expected iteration time {:.4g} s, "
      "{:.4g} s with the old order{}",
      done_ + 1, what, plan_.iteration_s, kept_s,
      others > 0 ? fmt::format(" ({} such changes since the last message)", others + 1) : ""));
}

/// Over the pipelines.
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

void trainer_state::look_at_checkpoint() {
  std::uint64_t whole = total();
  for (std::uint32_t s = 0; s < plan_.shape.stages; ++s) whole = std::min(whole, stages_[s].saved);
  if (whole <= saved_) return;
  saved_ = whole;
  write_curve();
  if (!real(plan_) || o_.order.spec.train->checkpoint.empty()) return;
  if (auto ok = complete_checkpoint(plan_.stages, saved_); !ok)
    fail(fenced(ok.error()), ok.error().text);
}

/// Iterations that are done and in no checkpoint. A checkpoint needs the stages of one pipeline,
/// and may be whole before the others have told of its last iteration.
std::uint64_t trainer_state::unsaved() const {
  return done_ - std::min(done_, saved_);
}

// -- telling

void trainer_state::on_tick() {
  if (!ended_) {
    if (ready_ < stages_.size()) set_up_missing();
    const double silent_s = o_.via.now_s() - heard_s_;
    if (ready_ == stages_.size() && silent_s > look_every_s)
      for (std::size_t i = 0; i < stages_.size(); ++i)
        if (stopping_ || stages_[i].done < until_) run(i);
    if (ready_ == stages_.size())
      for (std::size_t i = 0; i < stages_.size(); ++i)
        if (stages_[i].clock.due(o_.via.now_s())) run(i);
    // Until all are there they may be starting still, a straggler more slowly.
    const double start_s = ready_ < stages_.size() ? 4 * o_.cluster->settings.restart_s : 0;
    if (silent_s > stalled_s + start_s + stalled_s * longest_s_ + plan_.iteration_s * 2)
      fail(part_report::state::stopped, fmt::format("no report from any stage for {:.3g} s; {} "
                                                    "iterations since the last checkpoint are lost",
                                                    silent_s, unsaved()));
    // They answer, but get no further, although they request again what was lost.
    const double still_s = o_.via.now_s() - moved_s_,
                 unknown_s = starting_s_ + stalled_s > o_.via.now_s() ? setting_up_s : stuck_s,
                 known_s = longest_s_ > 0 ? 3 * stalled_s : unknown_s;
    if (still_s > start_s + known_s + stalled_s * std::max(longest_s_, plan_.iteration_s))
      fail(part_report::state::stopped, fmt::format("no stage made progress for {:.3g} s; {} "
                                                    "iterations since the last checkpoint are lost",
                                                    still_s, unsaved()));
  }
  if (!told_all_) report();
  self_->delayed_send(trainer_actor{self_}, nanoseconds_of(look_every_s), tick{});
}

/// Little by little, and before a checkpoint is whole, with which the job may go on.
void trainer_state::write_curve() {
  if (const auto ok = curve_.write(); !ok) news(ok.error().text);
}

void trainer_state::report() {
  write_curve();
  training_report r;
  r.lease = o_.lease;
  r.job = o_.job;
  r.sequence = ++sequence_;
  r.schedule = plan_.schedule_name;
  r.device = plan_.stages.empty() ? o_.backend : plan_.stages.front().backend;
  r.stages = plan_.shape.stages;
  r.pipelines = plan_.shape.pipelines;
  r.microbatches = plan_.shape.microbatches;
  r.tensor_parallel = std::max(1U, o_.order.spec.pipeline.tensor_parallel);
  r.tokens_per_s = tokens_per_s();
  r.wan_bytes = wan_bytes_;
  r.wan_utilization = plan_.wan_gbps > 0 && worked_s_ > 0
                          ? static_cast<double>(wan_bytes_) * 8e-9 / (plan_.wan_gbps * worked_s_)
                          : 0;
  r.saved = saved_;
  r.planned_s = plan_.iteration_s;
  std::vector<stage_costs> measured;
  if (real(plan_))
    for (const auto& s : stages_) measured.push_back(median(s.measured));
  r.lower_bound_s = lower_bound_s(plan_, std::move(measured));
  for (std::uint32_t s = 0; s < plan_.shape.stages && !stages_.empty(); ++s) {
    std::uint32_t most = 0;
    for (std::uint32_t p = 0; p < plan_.shape.pipelines; ++p)
      most = std::max(most, stages_[p * plan_.shape.stages + s].max_in_flight);
    r.max_in_flight.push_back(most);
    r.measured.push_back(slowest_of_stage(s));
    auto& m = r.measured.back();
    m.handling_s = handling_s(plan_, s, m);
  }
  const auto told = std::min(untold_.size(), max_untold);
  r.iterations.assign(untold_.begin(), untold_.begin() + static_cast<std::ptrdiff_t>(told));
  r.news = untold_news_;
  on_the_way_.emplace_back(r.sequence, std::pair{told, untold_news_.size()});
  o_.via.send(controller_address, r);
}

/// The controller has a report: what it held need not be said again.
void trainer_state::heard(const training_report_ack& h) {
  while (!on_the_way_.empty() && on_the_way_.front().first < h.sequence) on_the_way_.pop_front();
  if (on_the_way_.empty() || on_the_way_.front().first != h.sequence) return;
  const auto [iterations, sentences] = on_the_way_.front().second;
  untold_.erase(untold_.begin(), untold_.begin() + static_cast<std::ptrdiff_t>(iterations));
  untold_news_.erase(untold_news_.begin(),
                     untold_news_.begin() + static_cast<std::ptrdiff_t>(sentences));
  on_the_way_.clear();  // later ones held these too, and would count them twice
  if (ended_ && untold_.empty() && untold_news_.empty()) return told_all();
  if (untold_.size() >= max_untold || (ended_ && !untold_.empty())) report();
}

double trainer_state::tokens_per_s() const {
  const auto& job = o_.order.spec;
  const double tokens = static_cast<double>(job.global_batch) * job.model.sequence;
  return worked_s_ > 0 ? tokens * static_cast<double>(done_ - first_) / worked_s_ : 0;
}

// -- the end

void trainer_state::end_if_over() {
  // A stage that is not set up has no end to tell of, though nothing is left to do.
  if (ended_ || ready_ < stages_.size()) return;
  if (last_ && *last_ < total() && done_ >= *last_ && saved_ >= *last_)
    return fail(
        part_report::state::stopped,
        fmt::format("stopped after iteration {} of {}; no iteration is lost", *last_, total()));
  if (done_ < total()) return;
  const bool keeps = real(plan_) && !o_.order.spec.train->checkpoint.empty();
  if (keeps && saved_ < total()) return;
  if (const auto& file = o_.order.spec.train ? o_.order.spec.train->timeline : std::string{};
      !file.empty())
    if (auto ok = trace_.write(file, *o_.cluster, plan_, o_.order.spec); !ok) news(ok.error().text);
  finish(part_report::state::succeeded, {});
}

void trainer_state::fail(part_report::state how, const std::string& why) {
  news(why);
  finish(how, why);
}

void trainer_state::finish(part_report::state how, const std::string& why) {
  if (std::exchange(ended_, true)) return;
  how_ = how;
  why_ = why;
  report();
}

/// The lease ends only when the controller knows all: after that nobody can ask us.
void trainer_state::told_all() {
  if (std::exchange(told_all_, true)) return;
  training_over over{o_.lease, {}, true, how_, saved_ - std::min(saved_, first_), why_};
  if (how_ == part_report::state::succeeded) over.iterations = done_ - first_;
  caf::anon_send(o_.via.node(), over);
}

void trainer_state::news(const std::string& sentence) {
  untold_news_.push_back(sentence);
  caf::anon_send(o_.via.node(), training_said{o_.lease, sentence});
}

trainer_actor::behavior_type trainer(trainer_actor::stateful_pointer<trainer_state> self,
                                     trainer_options o) {
  auto& s = self->state;
  begin_actor(self, "trainer", [&] { s.start(self, std::move(o)); });
  return {
      [&s](const inbound<stage_report>& m) { s.hear(m.body); },
      [&s](const inbound<training_report_ack>& m) { s.heard(m.body); },
      [&s](const stop_training&) { s.stop(); },
      [&s](const tick&) { s.on_tick(); },
  };
}

}  // namespace troupe::actors
