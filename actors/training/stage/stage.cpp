#include "actors/training/stage/stage.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "actors/training/device/device_stage.hpp"
#include "actors/training/device/simulated_stage.hpp"
#include "actors/training/device/stage_backend.hpp"
#include "actors/training/stage/stage_checks.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::actors {

namespace {

using step_kind = stage_step::kind;

/// Libraries of devices throw; the node must learn that the maker has returned either way.
expected<stage_backend> create_backend(stage_options& o) {
  expected<stage_backend> made = refuse(reason::kind::unavailable, "");
  try {
    made = std::exchange(o.create, nullptr)();
  } catch (const std::exception& e) {
    made = refuse(reason::kind::unavailable, "setup failed: {}", e.what());
  }
  if (o.created) *o.created = true;
  return made;
}

}  // namespace

// -- setting up

void stage_state::start(stage_actor::pointer self, stage_options o) {
  self_ = self;
  o_ = std::move(o);
  reports_ = {o_.messenger, o_.trainer, o_.setup, o_.received_s};
  view_ = o_.setup.view.value_or(0);
  training_.begin(o_.setup);
  tensors_.begin({self_, &o_, &training_, &reports_, [this] { return waits_for(); }});
  if (!create_device()) return;
  lending_ = stage_lending{{o_.messenger, o_.gateway, o_.executor, executor_->times_vary()}};
  lending_.on_plan(o_.setup);
  load();
}

/// Nothing else here distinguishes real devices from simulated ones. False: there is no device.
bool stage_state::create_device() {
  if (!o_.create) {
    executor_ = std::make_unique<simulated_stage>(
        self_, o_, [this](expected<gpu::outcome> r) { on_device_done(std::move(r)); });
  } else if (auto backend = create_backend(o_)) {
    if (o_.replica) o_.replica->set_backend(*backend);
    executor_ = std::make_unique<device_stage>(self_, o_.setup, std::move(*backend));
  } else {
    fail(backend.error());
    return false;
  }
  tensors_.set_executor(*executor_);
  return true;
}

// A stage that has nothing to load goes on at once, without a message to itself.
void stage_state::load() {
  busy_ = executor_->start(training_.iteration());
  if (!busy_) request_group_id();
}

void stage_state::report_ready(stage_report ready) {
  TROUPE_INVARIANT(!busy_, "a stage is ready when its device is idle");
  if (o_.setup.standby) {
    phase_ = phase::standby;
    return answer_standby();
  }
  phase_ = phase::steps;
  begin_iteration();
  ready.iteration = training_.iteration();
  ready.saved = training_.saved();
  ready.worker = executor_->worker();
  report(std::move(ready));
  advance();
}

// -- messages

// The trainer repeats this message whenever it misses a report, so that each part of it must be
// harmless a second time: acknowledgements and limits only grow, an order counts only when it
// allows more iterations, and a group id only before the first step.
void stage_state::on(const inbound<stage_run>& m) {
  const auto& r = m.body;
  if (r.incarnation != 0 && r.incarnation != o_.setup.incarnation) return;
  reports_.on_run(r);
  if (failed_ || device_released_ || on_join(r) || on_view(r)) return;
  if (r.halt) return halt(r);
  if (training_.halted()) return;  // this message is older than the halt
  if (r.save > 0) return end_after(r.save);
  if (auto ok = check_order(r.order, o_.setup.microbatches); !ok) return fail(ok.error());
  // The message is repeated: an order counts once, between two windows.
  if (!r.order.empty() && r.until > training_.until() &&
      training_.iteration() == training_.until() && !busy_)
    take_plan(r);
  if (r.order.empty()) take_times(r);
  training_.run_until(r.until);
  on_group(r);
  advance();
}

/// No iteration is under way, so that all stages change to the new order in the same one.
void stage_state::take_plan(const stage_run& r) {
  TROUPE_INVARIANT(next_ == 0 && phase_ == phase::steps,
                   "a stage takes a new order between two iterations");
  o_.setup.order = r.order;
  o_.setup.forward = r.forward;
  o_.setup.backward = r.backward;
  take_times(r);
  lending_.on_plan(o_.setup);
  begin_iteration();
}

void stage_state::take_times(const stage_run& r) {
  if (!o_.setup.guest || !r.guest_times) return;
  o_.setup.guest->times = *r.guest_times;
  lending_.on_times(o_.setup);
}

/// Completes the iteration that has begun and begins no other until the trainer names the last one.
void stage_state::halt(const stage_run& r) {
  const bool under_way = busy_ || next_ > 0 || phase_ != phase::steps;
  training_.halt(under_way);
  if (r.save > 0) training_.halt_after(r.save);
  if (r.save > 0 && !under_way && training_.iteration() == r.save && training_.saved() < r.save)
    return save();
  report_halted();
  advance();
}

/// A target is reached: the iteration that all stages have done, and saved, is the training's last.
void stage_state::end_after(std::uint64_t last) {
  if (training_.iteration() != last) return;
  o_.setup.iterations = last;
  report_halted();
  notify_of_end();
}

void stage_state::report_halted() {
  stage_report r;
  r.iteration = training_.iteration();
  r.saved = training_.saved();
  r.halts_at = training_.until();
  reports_.send(std::move(r));
}

// A tensor from another datacenter takes time in the hosts. A real transfer includes it; a
// simulated one waits for it here.
void stage_state::on(const inbound<tensor>& m) {
  const double handling_s = executor_ ? executor_->handling_s(m.body) : 0;
  if (handling_s <= 0) return accept(m.body, m.raw);
  send_later(self_, handling_s, call_now{[this, t = m.body, body = m.raw] { accept(t, body); }});
}

// A tensor may be the last that the next step or the exchange waits for.
void stage_state::accept(const tensor& t, const payload& body) {
  if (failed_ || device_released_ || !is_word_of_view(t) || !tensors_.accept(t)) return;
  switch (t.what) {
    case tensor::kind::activation:
    case tensor::kind::gradient:
      tensors_.received().add(t, body);
      return phase_ == phase::evaluating ? advance_evaluation() : advance();
    case tensor::kind::partial:
    case tensor::kind::sum:
    case tensor::kind::running:
    case tensor::kind::running_sum:
    case tensor::kind::tied_partial:
    case tensor::kind::tied_sum:
    case tensor::kind::ready:
    case tensor::kind::commit:
      send_all(training_.gradients().receive(t, body));
      if (phase_ == phase::exchange) advance_exchange();
      if (phase_ == phase::commit) advance_commit();
      return;
    case tensor::kind::state:
      return take_part(t, body);
  }
}

void stage_state::on(const inbound<tensor_request>& m) {
  if (m.body.what == tensor::kind::state) return send_part(m.body);
  if (m.body.what == tensor::kind::tied_sum && !first()) return give_tied_sum(m.body);
  tensors_.resend(m.body);
}

/// The actor remains, without its device, to resend its last tensors should they be lost.
void stage_state::on(const release_device&) {
  device_released_ = true;
  if (executor_) executor_->release();
}

// -- steps

void stage_state::begin_iteration() {
  next_ = 0;
  if (training_.iteration() > given_at_) given_.reset();
  training_.begin_iteration();
  recomputes_.assign(o_.setup.microbatches, false);
  for (const auto& s : o_.setup.order)
    if (s.what == step_kind::recompute) {
      TROUPE_INVARIANT(s.microbatch < recomputes_.size(),
                       "a step is of a micro-batch that the stage has");
      recomputes_[s.microbatch] = true;
    }
}

/// Begins the next step if it can begin; called after every event that may have made it ready.
/// Steps are never taken out of order: the order is the plan's decision, by which memory was
/// counted.
void stage_state::advance() {
  if (busy_ || failed_ || stopped_ || phase_ != phase::steps) return;
  if (gather_) return gather(*gather_);
  if (!gives_.empty()) return give_state();
  if (saves_for_lost()) return;
  if (training_.waits_for_trainer()) return be_idle(0);
  const auto& order = o_.setup.order;
  TROUPE_INVARIANT(next_ <= order.size(), "the next step is one of the order, or none is left");
  if (next_ == order.size()) return begin_gradients();
  if (tensors_.received().has_input(order[next_])) {
    if (may_step()) begin_step(order[next_]);
    return;
  }
  be_idle(next_);
  tensors_.await(next_, &order[next_]);
}

void stage_state::begin_step(const stage_step& s) {
  TROUPE_INVARIANT(phase_ == phase::steps && !busy_, "a step begins while the device is idle");
  submitted_s_ = now_s();
  gpu::operation o{gpu::operations::recompute{s.microbatch}};
  if (s.what == step_kind::forward) {
    training_.begin_forward();
    gpu::operations::forward step{s.microbatch, !recomputes_[s.microbatch]};
    auto activation = tensors_.received().take_input(s);
    if (auto ok = executor_->add_inputs(step, training_.iteration(), std::move(activation)); !ok)
      return fail(ok.error());
    o.what = std::move(step);
    o.program.number = o_.setup.first_microbatch() + s.microbatch;
  } else if (s.what == step_kind::backward) {
    o.what = gpu::operations::backward{s.microbatch,
                                       last() ? payload{} : tensors_.received().take_input(s),
                                       training_.gradients().joined() && is_last_backward()};
  }
  if (next_ == 0) {
    training_.report().begin_s = submitted_s_ - reports_.ahead_s();
    lending_.on_iteration_begun(training_.iteration());
  }
  submit(std::move(o));
}

/// Does no backward follow the next step? Then its device may begin the all-reduce during it.
bool stage_state::is_last_backward() const {
  const auto& order = o_.setup.order;
  return std::none_of(order.begin() + static_cast<std::ptrdiff_t>(next_) + 1, order.end(),
                      [](const stage_step& later) { return later.what == step_kind::backward; });
}

// The output goes to the neighbour at once, while the device executes the next step. A recompute
// has none.
void stage_state::end_step(const stage_step& s, gpu::outcome o) {
  TROUPE_INVARIANT(phase_ == phase::steps && next_ < o_.setup.order.size(),
                   "a step that ends is the one that began");
  ++next_;
  const bool forward = s.what == step_kind::forward, backward = s.what == step_kind::backward;
  auto body = forward    ? std::move(o.of<gpu::operations::forward>().activation)
              : backward ? std::move(o.of<gpu::operations::backward>().gradient)
                         : payload{};
  tensor t;
  t.bytes = executor_->output_bytes(s.what, body, tensors_.received().input_bytes());
  t.microbatch = s.microbatch;
  t.to_pipeline = me().pipeline;
  if (t.bytes > 0 && (forward || last())) training_.set_activation_bytes(t.bytes);
  if (forward) {
    training_.end_forward(o.of<gpu::operations::forward>());
    if (last()) return;
    t.what = tensor::kind::activation;
    t.to_stage = me().stage + 1;
    t.path = o_.setup.forward;
  } else {
    if (!backward) return;
    training_.end_backward();
    if (first()) return;
    t.what = tensor::kind::gradient;
    t.to_stage = me().stage - 1;
    t.path = o_.setup.backward;
  }
  t.path.turn = s.turn;
  send(std::move(t), std::move(body));
}

// -- the device

void stage_state::submit(gpu::operation o) {
  o.program.iteration = training_.iteration();
  give([this, o = std::move(o)] { executor_->submit(o); });
}

/// Gives the device an operation, at once unless it is lent.
void stage_state::give(std::function<void()> to_device) {
  TROUPE_INVARIANT(!busy_, "an operation begins while the device is idle");
  busy_ = true;
  if (phase_ != phase::steps) submitted_s_ = now_s();
  const double wait_s = lending_.on_busy(training_.iteration_of_window(), operation_number());
  if (wait_s <= 0) return to_device();
  // The delay is counted as such: the operation itself takes no longer.
  send_later(self_, wait_s, call_now{[this, give_now = std::move(to_device)] {
               submitted_s_ = now_s();
               give_now();
             }});
}

/// Until the input of this operation arrives. May be repeated.
void stage_state::be_idle(std::size_t operation) {
  if (busy_ || failed_ || device_released_) return;
  lending_.on_idle(training_.iteration_of_window(), operation);
}

/// The number, as stage_lending counts, of the operation that is being submitted; none: not every
/// iteration has it.
std::optional<std::size_t> stage_state::operation_number() const {
  const auto steps = o_.setup.order.size();
  if (phase_ == phase::steps) return next_;
  if (phase_ == phase::gradients) return steps;
  if (phase_ == phase::update) return steps + 1;
  return {};
}

// Every transition that a device makes: the phase identifies the operation that has ended.
void stage_state::on_device_done(expected<gpu::outcome> r) {
  TROUPE_INVARIANT(busy_, "a device ends an operation that it was given");
  busy_ = false;
  if (!r && phase_ == phase::communicator_id) {
    stage_report ready;
    ready.fallback_reason = r.error();
    return report_ready(std::move(ready));
  }
  if (phase_ == phase::giving) return end_give(std::move(r));
  if (phase_ == phase::keeping) return end_keep_state(r, now_s() - submitted_s_);
  if (!r && phase_ == phase::taking) return fail_join(r.error());
  if (!r && phase_ == phase::joining && may_go_on_alone(r.error())) return end_join(r.error());
  if (!r && phase_ == phase::saving && executor_->can_write_itself()) return save();
  if (!r) return fail(in_its_step(r.error()));
  auto& o = *r;
  const double took_s = now_s() - submitted_s_;
  switch (phase_) {
    case phase::loading:
      return request_group_id();
    case phase::communicator_id: {
      stage_report ready;
      ready.communicator_id =
          o.of<gpu::operations::make_communicator_id>().id.values<std::uint8_t>();
      return report_ready(std::move(ready));
    }
    case phase::joining:
      return end_join({});
    case phase::steps: {
      TROUPE_INVARIANT(next_ < o_.setup.order.size(), "a step is one of the stage's order");
      const auto step = o_.setup.order[next_];
      training_.add_time(kind_of(step.what), took_s);
      training_.report().busy_s += o.end_s - o.begin_s;
      record_task(kind_of(step.what), step.microbatch, took_s);
      end_step(step, std::move(o));
      return advance();
    }
    case phase::gradients:
      training_.add_time(task_kind::reduce, took_s);
      if (o_.replica) o_.replica->end_steps(me().pipeline, training_.iteration());
      return begin_exchange(std::move(o.of<gpu::operations::gradients>()));
    case phase::exchange:
      send_all(training_.gradients().finish_sum(std::move(o.of<gpu::operations::sum>().tied)));
      return advance_exchange();
    case phase::norms:
      training_.add_norms_time(took_s);
      return begin_commit(std::move(o.of<gpu::operations::norms>().squared));
    case phase::commit:  // it has no operation
      return;
    case phase::update:
      training_.add_time(task_kind::update, took_s);
      record_task(task_kind::update, 0, took_s);
      if (o_.replica) o_.replica->end_update(o.of<gpu::operations::update>());
      return end_update(o.of<gpu::operations::update>());
    case phase::evaluating:
      return end_evaluation(std::move(o));
    case phase::saving:
      record_task(task_kind::checkpoint, 0, took_s);
      return end_copy(std::move(o));
    case phase::resetting:
      return end_reset();
    case phase::taking:
      return end_join_view();
    case phase::standby:  // they have no operation
    case phase::giving:
    case phase::keeping:
      return;
  }
}

/// A sample may end each worker that gets it: says which one.
reason stage_state::in_its_step(reason why) const {
  if (why.code == reason::kind::worker_lost && phase_ == phase::steps)
    why.text += fmt::format(" of micro-batch {} of iteration {}",
                            o_.setup.first_microbatch() + o_.setup.order[next_].microbatch,
                            training_.iteration() + 1);
  return why;
}

/// For the timeline: a task that ended now and took `took_s`, on this host's clock.
void stage_state::record_task(task_kind what, std::uint32_t microbatch, double took_s) {
  if (!o_.setup.trace) return;
  training_.report().tasks.push_back(task_of(what, microbatch, now_s() - took_s, now_s()));
}

// -- tensors

void stage_state::send(tensor t, payload body) {
  if (auto ok = tensors_.send(std::move(t), std::move(body)); !ok) fail(ok.error());
}

void stage_state::send_all(gradient_exchange::outgoing gradients) {
  if (auto ok = tensors_.send(std::move(gradients)); !ok) fail(ok.error());
}

// A stage whose device is busy may still lack tensors, but cannot be late by them yet.
stage_tensors::wait stage_state::waits_for() const {
  using wait = stage_tensors::wait;
  if (busy_ || failed_ || stopped_) return wait::none;
  if (phase_ == phase::exchange || phase_ == phase::commit) return wait::sums;
  if (phase_ == phase::evaluating)
    return tensors_.received().has_input(evaluation_step()) ? wait::none : wait::input;
  const bool waits = phase_ == phase::steps && !training_.waits_for_trainer() &&
                     next_ < o_.setup.order.size() &&
                     !tensors_.received().has_input(o_.setup.order[next_]);
  return waits ? wait::input : wait::none;
}

// -- the end of the training

void stage_state::report(stage_report r) {
  reports_.report(std::move(r));
  TROUPE_INVARIANT(training_.saved() <= training_.iteration(),
                   "a stage reports no checkpoint of iterations that it has not done");
  if (!failed_ && training_.is_over()) notify_of_end();
}

/// The node ignores it a second time.
void stage_state::notify_of_end() {
  caf::anon_send(o_.messenger.node(),
                 training_over{me().lease, me(), false, part_report::state::succeeded, {}});
}

// The actor stays: its peers may still request tensors, and the trainer may repeat its messages.
void stage_state::fail(const reason& why) {
  failed_ = true;
  // The next attempt may begin as soon as it is reported, and have the same GPU.
  if (why.code == reason::kind::out_of_memory && executor_) executor_->release();
  stage_report r;
  r.iteration = training_.iteration();
  r.why = why;
  if (o_.setup.standby && !has_joined_) r.standby = o_.setup.standby;
  if (why.code == reason::kind::worker_lost) add_copies(r);
  report(std::move(r));
  if (why.code == reason::kind::device_lost)
    caf::anon_send(o_.messenger.node(), lost_device(o_.setup, why));
}

/// The node ends the whole part: this actor is no more, and can repeat nothing.
void stage_state::fail_work(const std::string& why) {
  caf::anon_send(
      o_.messenger.node(),
      training_over{me().lease, me(), false, part_report::state::failed,
                    fmt::format("stage {} of pipeline {}: {}", me().stage, me().pipeline, why)});
}

}  // namespace troupe::actors
