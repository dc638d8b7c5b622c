#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/training/collectives/gradient_all_reduce.hpp"
#include "actors/training/stage/evaluation_share.hpp"
#include "actors/training/trainer/attempt_end.hpp"
#include "actors/training/trainer/trainer.hpp"
#include "messages/base/invariant.hpp"

// The trainer's part about views: how it notices that a stage is lost, and goes on without it.

namespace troupe::actors {

namespace {

using iterations_list = std::vector<std::uint64_t>;

/// Such a failure ends the work of a stage, and not of the training, if a peer takes it over.
bool is_loss(const reason& why) {
  return why.code == reason::kind::unavailable || why.code == reason::kind::device_lost ||
         why.code == reason::kind::out_of_memory || why.code == reason::kind::worker_lost;
}

}  // namespace

double trainer_state::tick_length_s() const {
  return healing_.heals() ? std::min(longest_tick_s, o_.cluster->settings.heartbeat_s)
                          : longest_tick_s;
}

std::uint32_t trainer_state::datacenter_of_node(address a) const {
  return o_.cluster->nodes[node_of(a)].datacenter;
}

/// A stage may be reported by a host that it has been taken from.
bool trainer_state::is_from_its_host(std::size_t i, address from) const {
  const auto& s = plan_.stages[i];
  return !healing_.heals() || s.neighbours[s.name.stage] == from;
}

/// False: the training cannot go on without the stage.
bool trainer_state::heal(std::size_t i, const std::string& why) {
  const bool running = stages_.all_ready() || healing_.is_changing();
  if (!running || joining_ || stopping_ || done_ == total() || !healing_.can_lose(i)) return false;
  for (const auto j : healing_.sharing(i))
    add_event(fmt::format("{} is lost: {}; another pipeline's stage takes it over",
                          stage_text(plan_.stages[j].name), why));
  healing_.lose(i, now_s());
  ask_stages();
  return true;
}

/// A stage that no peer can take over, and whose node has a copy of its state. False: there is
/// none.
bool trainer_state::await_copy(std::size_t i, const stage_report& r) {
  const bool running = stages_.all_ready() || healing_.is_changing();
  if (!running || joining_ || stopping_ || done_ == total() || !healing_.can_await(i) ||
      r.why.code != reason::kind::worker_lost || r.copies.value_or(iterations_list{}).empty())
    return false;
  add_event(fmt::format("{} is lost: {}; it begins again from the copy of its state on its node",
                        stage_text(r.name), r.why.text));
  healing_.await(i, now_s());
  signs_[i].answered_s = now_s();
  ask_stages();
  call_back();
  return true;
}

/// It stands by, and can take a copy of an iteration that it has reported.
void trainer_state::on_copies(std::size_t i, const stage_report& r) {
  auto copies = r.copies.value_or(iterations_list{});
  std::erase_if(copies, [&](std::uint64_t at) { return at > stages_.done(i); });
  if (healing_.on_copies(i, std::move(copies))) begin_view();
  if (healing_.has_failed() && !ended_)
    fail(part_report::state::stopped,
         fmt::format("{} has no copy of its state from which all stages can go on",
                     stage_text(r.name)));
}

/// A sample on which a worker ends would end those of all replicas, one after the other.
bool trainer_state::is_in_every_replica(std::size_t i, const reason& why) {
  constexpr std::uint32_t max_workers = 3;
  if (why.code != reason::kind::worker_lost || std::ranges::count(healing_.lost(), i) > 0)
    return false;
  if (std::exchange(workers_lost_at_, done_ + 1) != done_ + 1) workers_lost_ = 0;
  return ++workers_lost_ == max_workers;
}

void trainer_state::on_stage_failed(std::size_t i, const stage_report& r) {
  // Its actor before the one that is waited for repeats its reason.
  if (healing_.awaits(i) && !healing_.returning().contains(i)) return;
  const auto text = fmt::format("{}: {}", stage_text(r.name), r.why.text);
  if (healing_.heals() && is_in_every_replica(i, r.why))
    return fail(part_report::state::failed,
                text + (plan_.pipelines() > 1 ? ", as those of two other replicas in this iteration"
                                              : ", for the third time in this iteration"));
  if (is_loss(r.why) && (heal(i, r.why.text) || await_copy(i, r))) return;
  // A training whose stage no peer can take over begins again from its checkpoint.
  const bool taken_over = plan_.stages[i].shares_with && !stages_.is_ready(i);
  fail(taken_over ? part_report::state::stopped
                  : end_after(r.why, done_ > std::max(first_, o_.order.reached)),
       text);
}

void trainer_state::on_place(std::size_t i, const view_place& at,
                             const std::vector<std::uint64_t>& copies) {
  if (at.begun) {
    if (healing_.on_begun(i, at.view, now_s())) end_heal();
    return;
  }
  if (healing_.on_place(i, at, copies)) begin_view();
  if (healing_.has_failed())
    fail(part_report::state::stopped,
         "stages that are left have done different numbers of iterations");
}

/// All that are left stand at one boundary.
void trainer_state::begin_view() {
  if (healing_.lacks_update())
    return fail(
        part_report::state::stopped,
        fmt::format("no stage that is left knows the update of iteration {}", healing_.from()));
  const auto lost = healing_.lost();
  healing_.place(plan_, [this](std::size_t i) { return stages_.done(i); });
  if (!note_missing_reports(lost)) return;
  for (const auto i : lost) {
    stages_.begin_again(i);
    signs_[i].answered_s = now_s();
    signs_[i].asked_s.reset();
  }
  for (const auto i : healing_.returning()) {
    stages_.set_moved(i);
    signs_[i].answered_s = now_s();
    signs_[i].longest_s = 0;
    signs_[i].asked_s.reset();
  }
  send_setups();
  ask_stages();
}

// -- devices that come back

/// Asks those that were lost, and whose parts of the lease may still be held, to stand by.
void trainer_state::call_back() {
  if (!healing_.heals() || ended_ || stopping_ || done_ == total()) return;
  const auto& settings = o_.cluster->settings;
  const double held_s = settings.lease_s + std::max(2 * settings.heartbeat_s, 1.0);
  for (const auto& d : healing_.take_absent(now_s(), settings.heartbeat_s, held_s)) {
    auto s = healing_.standby_of(plan_, d);
    s.sent_s = now_s();
    o_.messenger.send(d.node, s);
  }
}

void trainer_state::on_standby(std::size_t i, const stage_report& r, address from) {
  using answer = healing::answer;
  const auto what = r.starting           ? answer::starting
                    : r.why.text.empty() ? answer::ready
                                         : answer::failed;
  if (!healing_.on_standby(i, *r.standby, from, what)) return;
  watch_.on_report(now_s());
  if (healing_.awaits(i)) {
    // The others wait for nothing else; its node limits how long a worker may take.
    signs_[i].answered_s = now_s();
    watch_.on_progress(now_s());
  }
  if (what == answer::failed) {
    const auto text = fmt::format("a device that was lost did not come back: {}", r.why.text);
    if (healing_.awaits(i)) return fail(part_report::state::stopped, text);
    add_event(text);
  }
  if (what == answer::ready && healing_.awaits(i)) return on_copies(i, r);
  if (what == answer::ready) rejoin();
}

/// A stage that others run goes back to its own device, unless the training is about to end. Each
/// view begins an iteration anew, so that one is done between two of them.
void trainer_state::rejoin() {
  if (healing_.is_changing() || !healing_.can_rejoin() || !stages_.all_ready() || joining_ ||
      stopping_ || ending_ || done_ == total() || done_ <= healing_.from())
    return;
  // Stages that evaluate stop only after that, and would take a slow one for a lost one.
  const auto held_out = evaluations_of(plan_.stages.front());
  if (held_out.is_due(done_ + 1, total()) || held_out.is_due(done_ + 2, total())) return;
  healing_.rejoin(now_s());
  ask_stages();
}

/// A stage that has updated and was lost before it said so. All that have updated know the losses
/// and values of all pipelines, and its peers have its norm.
bool trainer_state::note_missing_reports(const std::vector<std::size_t>& lost) {
  const auto from = healing_.from();
  const auto each = plan_.stages_each();
  for (const auto i : lost) {
    if (stages_.done(i) >= from) continue;
    stage_report r;
    r.name = plan_.stages[i].name;
    r.iteration = from;
    const auto* record = healing_.record_of(r.name.pipeline);
    const bool ends = r.name.stage + 1 == each;
    // Each pipeline has a part of the held-out samples that no other stage has seen.
    const bool evaluates = evaluations_of(plan_.stages[i]).is_due(from, total());
    if (stages_.done(i) + 1 != from || evaluates || (ends && !record)) {
      fail(part_report::state::stopped,
           fmt::format("stage {} of pipeline {} was lost after iteration {}, which no other stage "
                       "can report",
                       r.name.stage, r.name.pipeline, from));
      return false;
    }
    if (ends) r.loss = record->loss;
    if (ends && o_.order.spec.train->program) r.worker.emplace().values = record->values;
    missing_.push_back(std::move(r));
  }
  for (std::size_t i = 0; i < signs_.size() && !ended_; ++i)
    if (const auto r = signs_[i].report; r.iteration == from) add_missing_reports(r);
  return !ended_;
}

/// A stage that takes over a lost one is ready after an iteration that it has not done itself.
bool trainer_state::is_missing(const stage_report& r) const {
  return std::ranges::any_of(missing_, [&](const stage_report& m) {
    return m.name == r.name && m.iteration == r.iteration;
  });
}

/// Those of the same stage and iteration.
void trainer_state::add_missing_reports(const stage_report& of_peer) {
  const auto is_its = [&](const stage_report& r) {
    return r.iteration == of_peer.iteration && r.name.stage == of_peer.name.stage;
  };
  for (auto at = missing_.begin();
       (at = std::find_if(at, missing_.end(), is_its)) != missing_.end();) {
    auto r = *at;
    at = missing_.erase(at);
    r.squared_norm = of_peer.squared_norm;
    r.begin_s = of_peer.begin_s, r.end_s = of_peer.end_s;
    r.measured = of_peer.measured;
    if (of_peer.worker && of_peer.worker->skipped) {
      if (!r.worker) r.worker.emplace();
      r.worker->skipped = true;
    }
    const auto i = stages_.index(r.name);
    add_report(i, r);
    if (ended_) return;
    at = missing_.begin();
  }
}

void trainer_state::end_heal() {
  const auto& all = *healing_.heals_so_far();
  if (const auto joined = healing_.joined_now(); joined > 0)
    add_event(fmt::format("{} device{} that had been lost {} joined", joined,
                          joined == 1 ? "" : "s", joined == 1 ? "has" : "have"));
  add_event(fmt::format("goes on after iteration {} in view {}: healed {} time{}, {:.3g} s in all",
                        healing_.from(), healing_.view(), all.count, all.count == 1 ? "" : "s",
                        all.seconds));
  watch_.on_progress(now_s());
  run_all();
  if (std::exchange(stop_healed_, false)) on(stop_training{});
}

/// Once for each that has not answered; repeated on every tick.
void trainer_state::ask_stages() {
  // A joiner asks a peer for its state, which has to have begun.
  const auto all = healing_.unanswered();
  for (const bool joins : {false, true})
    for (const auto i : all)
      if (healing_.returning().contains(i) == joins &&
          (healing_.is_gathering() || stages_.is_ready(i)))
        run(i);
}

/// A stage answers although its device is busy, so a host that does not is lost, or cannot be
/// reached. One in this datacenter is given up after two heartbeats. Over the WAN it may come back,
/// and a training without it would be slower to its end: it has as long as the controller gives it.
void trainer_state::suspect_silent() {
  const auto& settings = o_.cluster->settings;
  const double now = now_s(), late_s = now - std::exchange(ticked_s_, now) - tick_length_s();
  // Where everything stalls, nobody's silence says anything.
  if (late_s > settings.heartbeat_s)
    for (auto& s : signs_) s.answered_s += late_s;
  const double lease_s = settings.lease_s + std::max(2 * settings.heartbeat_s, 1.0);
  const double start_s = stages_.all_ready() ? 0 : 4 * settings.restart_s;
  for (std::size_t i = 0; i < signs_.size() && !ended_; ++i) {
    const auto host = plan_.stages[i].neighbours[plan_.stages[i].name.stage];
    const double silent_s = now - signs_[i].answered_s;
    if (silent_s < settings.heartbeat_s || std::ranges::count(healing_.lost(), i) > 0) continue;
    if (!signs_[i].asked_s) signs_[i].asked_s = now;
    // A question takes its time to the host and back.
    const bool asked = now - *signs_[i].asked_s >= std::min(settings.heartbeat_s, 0.5 * silent_s);
    const bool near = datacenter_of_node(host) == datacenter_of_node(o_.messenger.self());
    const double limit_s =
        near ? std::max(2 * settings.heartbeat_s, 4 * signs_[i].longest_s) : lease_s;
    const auto why = fmt::format("no answer for {:.3g} s", silent_s);
    if (asked && silent_s > limit_s && heal(i, why)) continue;
    if (asked && silent_s > lease_s + start_s)
      return fail(part_report::state::stopped,
                  fmt::format("{}: {}", stage_text(plan_.stages[i].name), why));
    if (stages_.is_ready(i)) run(i);
  }
}

}  // namespace troupe::actors
