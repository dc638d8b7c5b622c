#include "actors/node/node.hpp"

#include <algorithm>
#include <cmath>

#include "actors/protocol/follow_cluster.hpp"
#include "actors/protocol/messenger.hpp"
#include "actors/training/device/stage_backend.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

namespace {

// Some program ends come without an event. Simulated work has its own timers.
constexpr double poll_s = 0.5;

/// A training's parts are on nodes of a cluster that may be newer than this host's.
bool knows_hosts(const cluster& c, const work_order& w) {
  if (!w.train) return true;
  return w.train->trainer < c.nodes.size() &&
         std::ranges::all_of(w.train->parts,
                             [&](const lease_part& p) { return p.node < c.nodes.size(); });
}

constexpr const char* simulated_out_of_memory =
    "out of memory (simulated: the memory formula says so)";

bool is_over(const part_report& r) {
  return r.now != part_report::state::running;
}

}  // namespace

/// The lease begins now, without any contact: a node that restarts reports at once, and has nothing
/// to stop before it gets orders.
void node_state::start(node_actor::pointer self, runtime::host h, node_options options) {
  self_ = self;
  host_ = std::move(h);
  options_ = std::move(options);
  lease_until_s_ = now() + settings().lease_s;
  if (options_.process_runner) {
    options_.process_runner->renew(lease_until_s_);
    ports_ = options_.process_runner->free_ports();
    options_.process_runner->watch(
        [to = node_actor{self}] { caf::anon_send(to, programs_changed{}); });
  }
  guard_ = frame_guard{host_, options_.cluster};
  on(tick{});
}

void node_state::on(const arrived& a) {
  on_frame(a.what);
  host_.net->handled(a.what);
}

void node_state::on_frame(const frame& f) {
  const auto seen = peek(f.header.bytes());
  if (!seen || seen->to != host_.self || !guard_.admits(*seen)) return;
  auto decoded = decode(f.header.bytes());
  if (!decoded) return;
  auto& [envelope, m] = *decoded;
  // Orders come from the controller alone and renewals from the own gateway: the guard has checked
  // the roles.
  if (const auto* orders = std::get_if<node_orders>(&m))
    on_node_orders(*orders);
  else if (const auto* renewal = std::get_if<lease_renewal>(&m);
           renewal && envelope.from == me_.gateway())
    on_lease_renewal(*renewal);
  else if (const auto* changed = std::get_if<cluster_update>(&m))
    on_cluster_update(*changed);
  else if (const auto* log = std::get_if<read_log>(&m))
    on_read_log(envelope.from, *log);
  else if (!serving_.on_message(envelope.from, m, f.body))
    training_.on_message(envelope.from, m, f.body);
}

/// Orders are the complete desired state: whatever is not in them is stopped, whatever is new in
/// them begins. Older ones than the last may arrive late and are ignored, by epoch (of the
/// controller's start) and then by sequence.
void node_state::on_node_orders(const node_orders& o) {
  if (o.incarnation != host_.incarnation) return;
  if (o.journal != journal_ && !change_journal(o.journal)) return;
  if (std::pair{o.epoch, o.sequence} <= std::pair{epoch_, orders_}) return;
  TROUPE_INVARIANT(journal_ == o.journal, "a node follows orders of the journal that it works for");
  epoch_ = o.epoch;
  orders_ = o.sequence;
  renew(o.acknowledged);
  // Mark, then sweep: parts that this loop does not find again are stopped below.
  for (auto& [id, p] : parts_) p.ordered = false;
  // After the lease has expired, new work may already be another node's.
  const bool may_begin = now() <= lease_until_s_;
  followed_ = orders_;
  std::vector<const work_order*> fresh;
  for (const auto& w : o.work) {
    if (auto* p = find_in(parts_, w.lease)) {
      p->ordered = true;
      if (w.stop_within_s > 0) training_.stop_gracefully(w.lease);
    } else if (w.stop_within_s > 0)
      continue;
    else if (w.incarnation == host_.incarnation && may_begin && knows_hosts(*options_.cluster, w))
      fresh.push_back(&w);
    else if (w.incarnation == host_.incarnation)
      followed_ = 0;  // request the orders again
  }
  // Stopped before anything begins, since the new work may have their GPUs.
  for_each_running([&](part& p) {
    if (!p.ordered) stop(p, false);
  });
  forget_ended();
  for (const auto* w : fresh) begin(*w);
  if (changed_ || o.answer) report();
}

/// Its own place stays as it is. The controller acknowledges nothing before it has this report.
void node_state::on_cluster_update(const cluster_update& u) {
  if (follow_cluster(options_.cluster, u.cluster, host_.self)) send_report(make_report());
  if (options_.cluster->nodes[me_.index()].removed) say_what_is_awaited();
}

void node_state::on_lease_renewal(const lease_renewal& r) {
  if (r.incarnation != host_.incarnation) return;
  if (r.acknowledged == 0) return send_report(make_report());
  // It confirms orders that this node has followed. If it names others, the ordered state and the
  // actual one differ, and only orders settle that.
  if (r.journal != journal_ || r.epoch != epoch_ || r.orders != followed_) return;
  renew(r.acknowledged);
  forget_ended();
}

/// Forgets parts that are no longer ordered and whose end the controller has acknowledged.
void node_state::forget_ended() {
  for (auto it = parts_.begin(); it != parts_.end();) {
    const auto& p = it->second;
    const bool done =
        !p.ordered && is_over(p.report) && p.end_report != 0 && p.end_report <= acknowledged_;
    if (done && p.training) training_.release(it->first);
    it = done ? parts_.erase(it) : std::next(it);
  }
}

/// The controller has received this node's statements up to that sequence number: the lease counts
/// from when that one was sent.
void node_state::renew(std::uint64_t acknowledged) {
  acknowledged_ = std::max(acknowledged_, acknowledged);
  while (!sent_.empty() && sent_.front().first <= acknowledged) {
    TROUPE_INVARIANT(sent_.front().second <= now(),
                     "a node's lease counts from a statement that it has sent");
    TROUPE_INVARIANT(sent_.front().first <= sequence_,
                     "a statement that is acknowledged was numbered");
    lease_until_s_ = sent_.front().second + settings().lease_s;
    sent_.pop_front();
  }
  if (options_.process_runner) options_.process_runner->renew(lease_until_s_);
}

/// The controller has another journal, which does not know the work of the old one. False: that
/// work is still being stopped; until it has ended the node keeps reporting the old journal and
/// gets no new work. True: nothing is left of it.
/// Leases, epochs and sequence numbers of two journals cannot be compared, so nothing of the old
/// one may run when the first order of the new one begins.
bool node_state::change_journal(std::uint64_t journal) {
  bool gone = true;
  for_each_running([&](part& p) {
    p.report.detail = "the controller has another journal";
    stop(p, true);
    gone = gone && is_over(p.report);
  });
  if (!gone) return false;
  if (journal_ != 0)
    runtime::log(runtime::log_level::warn, "node",
                 "the controller has another journal than before; stopped all work of the old one",
                 {{"parts", parts_.size()}});
  for (auto& [id, p] : parts_) {
    if (p.training) training_.stop(id);
    if (p.serving) serving_.stop(id);
  }
  TROUPE_INVARIANT(
      std::ranges::all_of(parts_, [](const auto& p) { return is_over(p.second.report); }),
      "nothing of the old journal runs when the new one's work begins");
  parts_.clear();
  journal_ = journal;
  epoch_ = orders_ = followed_ = 0;
  changed_ = true;
  return true;
}

void node_state::begin(const work_order& w) {
  TROUPE_INVARIANT(!parts_.contains(w.lease), "a lease begins once while its node knows it");
  TROUPE_INVARIANT(w.incarnation == host_.incarnation,
                   "a node begins work that was given to this process");
  auto& p = parts_[w.lease];
  p.order = w;
  p.report.lease = w.lease;
  p.started_s = now();
  // A lease may begin twice here: CAF timers of the first time still fire.
  p.start = ++starts_;
  p.training = w.train.has_value();
  p.serving = w.serve.has_value();
  p.simulated = !p.training && !p.serving && (w.command.empty() || !options_.process_runner);
  if (options_.slowdown) p.slowdown = options_.slowdown();
  changed_ = true;
  const auto* before = w.after ? find_in(parts_, *w.after) : nullptr;
  p.held = before && !is_over(before->report);
  if (!p.held) run(p);
}

void node_state::run_successors(lease_id ended) {
  for (auto& [id, p] : parts_)
    if (p.held && p.order.after == ended && !is_over(p.report)) run(p);
}

void node_state::run(part& p) {
  TROUPE_INVARIANT(!is_over(p.report), "a part that is over does not begin");
  const auto& w = p.order;
  p.held = false;
  p.started_s = now();
  if (end_by_s_) {  // these orders and the report of it have passed each other
    p.report.now = part_report::state::not_started;
    p.report.detail = lost();
    return notify_end(p);
  }
  if (options_.observer) options_.observer->on_begin(w);
  if (p.training) {
    training_.begin(w);
  } else if (p.serving) {
    serving_.begin(w);
  } else if (p.simulated) {
    const double work_s = w.out_of_memory ? 0 : static_cast<double>(w.iterations) * w.iteration_s;
    const double end_s = (w.start_s + work_s) * p.slowdown;
    if (simulated_program::runs(w)) {
      const auto done = w.out_of_memory ? 0 : w.iterations;
      p.program_end = {end_s, done, w.program->iterations_done + done};
    }
    send_later(self_, end_s, work_done{w.lease, p.start});
    // A start that fails is an end that is reported, so that the controller frees the GPUs; for
    // what other machines may have the job is queued again (not_started).
  } else if (auto ok = options_.process_runner->start(w); !ok) {
    using state = part_report::state;
    const bool taken = ok.error().code == reason::kind::stale;
    // Another machine may have what this one lacks.
    const bool lacks = ok.error().code == reason::kind::unavailable;
    p.report.now = taken || lacks ? state::not_started : state::failed;
    if (p.report.now == state::failed) p.report.word = end_word::start_failed;
    p.report.exit_code = taken ? 0 : 127;
    p.report.detail = ok.error().text;
    if (taken) ports_ = options_.process_runner->free_ports();
    notify_end(p);
  }
}

/// The GPUs of an ended part are its successor's.
void node_state::notify_end(const part& p) {
  TROUPE_INVARIANT(is_over(p.report), "an end that is noted is one");
  if (options_.observer && !p.held) options_.observer->on_end(p.order, p.report);
  run_successors(p.order.lease);
}

void node_state::report_end(const part& p) {
  notify_end(p);
  report();
}

void node_state::on(const work_done& w) {
  auto* p = find_in(parts_, w.lease);
  if (!p || p->start != w.start || is_over(p->report)) return;
  if (simulated_program::runs(p->order)) return end_program(*p, *p->program_end);
  const bool out_of_memory = p->order.out_of_memory;
  p->report.now = out_of_memory ? part_report::state::out_of_memory : part_report::state::succeeded;
  p->report.iterations = out_of_memory ? 0 : p->order.iterations;
  if (out_of_memory) p->report.detail = simulated_out_of_memory;
  report_end(*p);
}

/// A lost device is remembered although its part may have ended already: the GPU stays unusable,
/// whatever the job did.
void node_state::on(training_over over) {
  if (is_lost_device(over) && lost_.empty()) {
    lost_ = over.detail;
    changed_ = true;
  }
  auto* p = find_in(parts_, over.lease);
  if (!p || is_over(p->report) || !training_.on_training_over(over)) return;
  p->report.now = over.how;
  p->report.iterations = p->order.iterations;
  p->report.detail = over.detail;
  p->report.peak_bytes = over.peak_bytes;
  // That this node's end has stopped it says more than the trainer.
  if (over.how != part_report::state::stopped) p->report.word = over.word;
  if (over.how != part_report::state::succeeded) training_.stop(over.lease);
  report_end(*p);
}

void node_state::on(const training_event& e) {
  if (options_.process_runner && parts_.contains(e.lease))
    options_.process_runner->append_log(e.lease, e.sentence);
}

void node_state::on(const serving_over& over) {
  auto* p = find_in(parts_, over.lease);
  if (!p || is_over(p->report) || !p->serving) return;
  serving_.stop(over.lease);
  const bool drained = over.detail.empty();
  p->report.now = drained ? part_report::state::stopped : part_report::state::failed;
  p->report.exit_code = drained ? 0 : 1;
  p->report.detail = over.detail;
  report_end(*p);
  end_when_done();
}

/// Simulated work makes progress by the clock alone.
std::uint64_t node_state::iterations_by_now(const part& p) const {
  const double worked_s = now() - p.started_s - p.order.start_s * p.slowdown;
  if (p.held || worked_s <= 0 || p.order.iteration_s <= 0) return 0;
  const auto done =
      static_cast<std::uint64_t>(std::floor(worked_s / (p.order.iteration_s * p.slowdown)));
  return std::min(done, p.order.iterations);
}

/// An elastic program's part is over, as it was to be: at its last iteration, or after a stop.
void node_state::end_program(part& p, const simulated_program::end& e) {
  using state = part_report::state;
  TROUPE_INVARIANT(!is_over(p.report), "a program ends once");
  p.report.program = p.program().progress(e);
  p.report.iterations = e.iterations;
  p.report.now = p.order.out_of_memory        ? state::out_of_memory
                 : p.report.program->finished ? state::succeeded
                                              : state::stopped;
  if (p.order.out_of_memory) p.report.detail = simulated_out_of_memory;
  report_end(p);
}

/// It goes on until it has saved, and its node reports it as running.
void node_state::stop_program(part& p, bool at_once) {
  const double at_s = now() - p.started_s;
  if (at_once) {
    const auto killed = p.program().killed(at_s);
    p.report.program = p.program().progress(killed);
    p.report.iterations = killed.iterations;
    p.report.now = part_report::state::stopped;
    notify_end(p);
    changed_ = true;
  } else if (!p.asked_s) {
    p.asked_s = at_s;
    p.program_end = p.program().stopped();
    p.start = ++starts_;  // the timer of its last iteration counts no more
    send_later(self_, p.program_end->at_s - at_s, work_done{p.order.lease, p.start});
  }
}

/// Programs end later, by a report of their keeper, and so do decoders that drain because this
/// process is to end. Trainings, other decoders and simulated work end with this call: their actors
/// release the devices, and nothing of theirs outlives the process.
void node_state::stop(part& p, bool at_once) {
  if (p.held) {
    p.report.now = part_report::state::stopped;
    changed_ = true;
    return;
  }
  if (!p.simulated && !p.training && !p.serving)
    return options_.process_runner->stop(p.order.lease, at_once);
  if (p.simulated && simulated_program::runs(p.order)) return stop_program(p, at_once);
  if (p.training) training_.stop(p.order.lease);
  if (p.serving && end_by_s_ && !at_once) return serving_.drain(p.order.lease);
  if (p.serving) serving_.stop(p.order.lease);
  p.report.now = part_report::state::stopped;
  p.report.iterations = p.simulated ? iterations_by_now(p) : 0;
  notify_end(p);
  changed_ = true;
}

void node_state::poll_programs() {
  if (!options_.process_runner) return;
  for (auto& r : options_.process_runner->poll()) {
    auto* p = find_in(parts_, r.lease);
    if (!p || is_over(p->report)) continue;
    // The reason for which this node stopped it says more than its exit status.
    if (r.detail.empty()) r.detail = std::move(p->report.detail);
    if (!is_over(r) || r.now == part_report::state::stopped) r.word = p->report.word;
    p->report = std::move(r);
    if (!is_over(p->report)) continue;
    changed_ = true;
    notify_end(*p);
  }
  if (lost() != last_report_.lost) changed_ = true;
}

void node_state::on(const programs_changed&) {
  poll_programs();
  if (changed_) report();
  end_when_done();
}

/// The lease is checked by the node's own clock, also without any message. A tick that comes late,
/// as in a process that was stopped, is covered by the keepers, which measure the lease themselves.
void node_state::on(const tick&) {
  poll_programs();
  if (options_.on_removed && options_.cluster->nodes[me_.index()].removed && parts_.empty())
    options_.on_removed();
  training_.remove_released();
  training_.return_memory();
  if (now() > lease_until_s_) {
    // The controller may have granted this work to another node.
    for_each_running([&](part& p) {
      p.report.detail = lease_expired;
      stop(p, true);
    });
  }
  if (changed_ || now() >= report_due_s_) report();
  end_when_done();
  const double wait_s =
      options_.process_runner ? std::min(poll_s, settings().heartbeat_s) : settings().heartbeat_s;
  send_later(self_, wait_s, tick{});
}

/// Why nothing can be started here: it may not last, unless a device is lost.
std::string node_state::lost() const {
  if (end_by_s_) return "the node is being stopped";
  return lost_.empty() && options_.process_runner ? options_.process_runner->unable() : lost_;
}

/// The present state, without a sequence number.
/// Built from scratch each time: a report needs no memory of earlier ones, so none can be lost.
node_report node_state::make_report() {
  node_report r;
  r.incarnation = host_.incarnation;
  r.epoch = epoch_;
  TROUPE_INVARIANT(followed_ == 0 || followed_ == orders_,
                   "a node has followed its latest orders, or none");
  r.orders = followed_;
  r.journal = journal_;
  r.lost = lost();
  r.new_state = options_.new_state;
  if (!ports_.empty()) r.ports = ports_;
  if (options_.process_runner) r.python = options_.process_runner->python();
  if (options_.cluster->version > 0) r.cluster = options_.cluster->version;
  for (auto& [id, p] : parts_) {
    if (!is_over(p.report) && p.simulated)
      p.report.iterations =
          p.asked_s ? p.program().iterations(now() - p.started_s) : iterations_by_now(p);
    if (!is_over(p.report) && p.simulated && !p.held && simulated_program::runs(p.order))
      p.report.program = p.program().progress(now() - p.started_s);
    r.parts.push_back(p.report);
  }
  return r;
}

/// The sequence number of the statement that is being sent to the controller.
std::uint64_t node_state::next_sequence() {
  // Which of the statements is acknowledged decides when the lease began, so the times of all of
  // them are kept; the oldest is dropped, which only makes the lease end earlier.
  constexpr std::size_t max_unacknowledged = 64;
  TROUPE_INVARIANT(sent_.empty() || sent_.back().second <= now(),
                   "a node's statements are sent in their order");
  sent_.emplace_back(++sequence_, now());
  if (sent_.size() > max_unacknowledged) sent_.pop_front();
  changed_ = false;
  // A timer may fire a rounding error early.
  report_due_s_ = now() + settings().heartbeat_s * 0.999;
  return sequence_;
}

/// Sends a heartbeat if the state is unchanged since the last report and the controller has that.
void node_state::report() {
  auto r = make_report();
  r.sequence = last_report_.sequence;
  if (r != last_report_ || r.sequence == 0 || acknowledged_ < r.sequence)
    return send_report(std::move(r));
  send_message(host_, me_.gateway(),
               node_heartbeat{me_.index(), host_.incarnation, next_sequence(), r.sequence});
}

void node_state::send_report(node_report r) {
  r.sequence = next_sequence();
  TROUPE_INVARIANT(r.sequence > last_report_.sequence,
                   "a node's reports are numbered in their order");
  // Parts are forgotten only when the controller has acknowledged this number (forget_ended).
  for (auto& [id, p] : parts_)
    if (is_over(p.report) && p.end_report == 0) p.end_report = r.sequence;
  last_report_ = std::move(r);
  send_message(host_, controller_address, last_report_);
}

}  // namespace troupe::actors
