#include "actors/training/stage.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "actors/protocol/actor_failure.hpp"
#include "actors/protocol/timing.hpp"
#include "actors/training/device_stage.hpp"
#include "actors/training/simulated_stage.hpp"
#include "actors/training/stage_backend.hpp"
#include "actors/training/stage_checks.hpp"

namespace troupe::actors {

namespace {

using step_kind = stage_step::kind;
using operation_kind = gpu::operation::kind;

operation_kind operation_of(step_kind k) {
  return k == step_kind::forward     ? operation_kind::forward
         : k == step_kind::recompute ? operation_kind::recompute
                                     : operation_kind::backward;
}

}  // namespace

void stage_state::start(stage_actor::pointer self, stage_options o) {
  self_ = self;
  o_ = std::move(o);
  iteration_ = saved_ = o_.setup.first_iteration;
  run_sent_s_ = o_.setup.sent_s;
  run_received_s_ = o_.received_s;
  if (!create_device()) return;
  begin_lending();
  tied_bytes_ = o_.setup.costs.tied_bytes;
  own_bytes_ = o_.setup.costs.gradient_bytes - std::min(o_.setup.costs.gradient_bytes, tied_bytes_);
  clear(inbox_of(iteration_), iteration_);
  clear(inbox_of(iteration_ + 1), iteration_ + 1);
  load();
}

/// Without a device or its maker the stage is simulated.
bool stage_state::create_device() {
  if (o_.create) {
    auto made = create_backend();
    if (!made) {
      fail(made.error());
      return false;
    }
    o_.device = std::move(made->device);
    o_.tokens = std::move(made->tokens);
  }
  if (o_.device)
    executor_ = std::make_unique<device_stage>(
        self_, o_.setup, stage_backend{std::move(o_.device), std::move(o_.tokens)});
  else
    executor_ = std::make_unique<simulated_stage>(
        self_, o_, [this](expected<gpu::outcome> r) { on_device_done(std::move(r)); });
  return true;
}

expected<stage_backend> stage_state::create_backend() {
  expected<stage_backend> made = refuse(reason::kind::unavailable, "");
  try {
    made = std::exchange(o_.create, nullptr)();
  } catch (const std::exception& e) {
    made = refuse(reason::kind::unavailable, fmt::format("setup failed: {}", e.what()));
  }
  if (o_.created) *o_.created = true;
  return made;
}

void stage_state::load() {
  busy_ = executor_->start(iteration_);
  if (!busy_) request_group_id();
}

// -- messages

void stage_state::on_stage_run(const stage_run& r) {
  if (r.incarnation != 0 && r.incarnation != o_.setup.incarnation) return;
  if (r.sent_s > run_sent_s_) {
    run_sent_s_ = r.sent_s;
    run_received_s_ = o_.messenger.now_s();
    clock_ahead_s_ = r.ahead_s;
  }
  acknowledged_ = std::max(acknowledged_, r.acknowledged);
  while (!unacknowledged_.empty() && unacknowledged_.front().iteration < acknowledged_)
    unacknowledged_.pop_front();
  // The trainer repeats its message when it misses a report; it ignores duplicates.
  for (auto& report : unacknowledged_) send_report(report);
  if (failed_ || device_released_) return;
  if (r.halt) return halt(r);
  if (halted_) return;  // this message is older than the halt
  if (auto ok = check_order(r.order, o_.setup.microbatches); !ok) return fail(ok.error());
  if (!r.order.empty() && r.until > until_ && iteration_ == until_ && !busy_) {
    o_.setup.order = r.order;
    o_.setup.forward = r.forward;
    o_.setup.backward = r.backward;
    take_times(r);
    begin_lending();
    begin_iteration();
  }
  if (r.order.empty()) take_times(r);
  if (r.until > until_ && iteration_ >= until_) window_began_ = iteration_;
  until_ = std::max(until_, r.until);
  const bool fresh = phase_ == phase::steps && iteration_ == o_.setup.first_iteration && next_ == 0;
  if (!r.group_id.empty() && fresh && !joined_ && !busy_ && !failed_) return join_group(r);
  advance();
}

/// Completes the iteration that has begun and begins no other until the trainer names the last one.
void stage_state::halt(const stage_run& r) {
  const bool under_way = busy_ || next_ > 0 || phase_ != phase::steps;
  if (!std::exchange(halted_, true)) until_ = iteration_ + (under_way ? 1 : 0);
  if (r.save > 0) until_ = save_at_ = r.save;
  if (r.save > 0 && !under_way && iteration_ == r.save && saved_ < r.save) return save();
  report_halted();
  advance();
}

void stage_state::report_halted() {
  stage_report r;
  r.name = o_.setup.name;
  r.incarnation = o_.setup.incarnation;
  r.iteration = iteration_;
  r.saved = saved_;
  r.halts_at = until_;
  send_report(r);
}

void stage_state::on_tensor(const tensor& t, const payload& body) {
  const double handling_s = executor_ ? executor_->handling_s(t) : 0;
  if (handling_s <= 0) return accept(t, body);
  self_->delayed_send(stage_actor{self_}, nanoseconds_of(handling_s),
                      call_now{[this, t, body] { accept(t, body); }});
}

void stage_state::accept(const tensor& t, const payload& body) {
  if (failed_ || device_released_ || t.iteration < iteration_ || t.iteration > iteration_ + 1)
    return;
  auto& box = inbox_of(t.iteration);
  if (box.iteration != t.iteration || is_duplicate(box, t)) return;
  sent_.on_received(t);
  // The clock offset is unknown before the first run.
  if (until_ > o_.setup.first_iteration) timeout_.add_sample(t.what, training_time_s() - t.sent_s);
  if (t.path.pairs > 0) box.hops.received(t, training_time_s(), o_.setup.trace);
  switch (t.what) {
    case tensor::kind::activation:
      if (t.microbatch < box.activation.size()) box.activation[t.microbatch] = body;
      input_bytes_ = t.bytes;
      break;
    case tensor::kind::gradient:
      if (t.microbatch < box.gradient.size()) box.gradient[t.microbatch] = body;
      break;
    case tensor::kind::partial:
    case tensor::kind::sum:
    case tensor::kind::tied_partial:
    case tensor::kind::tied_sum:
      if (joined_)
        box.device_sum.receive(body);
      else
        send_all(box.host_sum.receive(t, body));
      if (phase_ == phase::exchange) advance_exchange();
      return;
  }
  advance();
}

/// Was it requested again although it was not lost?
bool stage_state::is_duplicate(const inbox& box, const tensor& t) const {
  const auto has = [&](const auto& all) { return t.microbatch < all.size() && all[t.microbatch]; };
  return (t.what == tensor::kind::activation && has(box.activation)) ||
         (t.what == tensor::kind::gradient && has(box.gradient));
}

// -- steps

void stage_state::begin_iteration() {
  next_ = 0;
  loss_sum_ = 0;
  times_ = {};
  iteration_report_ = {};
  in_flight_ = 0;
  recomputes_.assign(o_.setup.microbatches, false);
  for (const auto& s : o_.setup.order)
    if (s.what == step_kind::recompute && s.microbatch < recomputes_.size())
      recomputes_[s.microbatch] = true;
}

bool stage_state::ready(const stage_step& s) const {
  const auto& box = current();
  if (s.what == step_kind::forward) return first() || box.activation[s.microbatch].has_value();
  if (s.what == step_kind::recompute) return true;
  return last() || box.gradient[s.microbatch].has_value();
}

void stage_state::advance() {
  if (busy_ || failed_ || phase_ != phase::steps) return;
  if (iteration_ >= until_) return lend(0);
  const auto& order = o_.setup.order;
  if (next_ == order.size()) return begin_gradients();
  if (ready(order[next_])) return begin_step(order[next_]);
  lend(next_);
  await_tensors();
}

void stage_state::begin_step(const stage_step& s) {
  submitted_s_ = o_.messenger.now_s();
  gpu::operation o;
  o.what = operation_of(s.what);
  o.microbatch = s.microbatch;
  auto& box = current();
  if (s.what == step_kind::forward) {
    iteration_report_.max_in_flight = std::max(iteration_report_.max_in_flight, ++in_flight_);
    o.keep = !recomputes_[s.microbatch];
    auto activation = first() ? payload{} : std::move(*box.activation[s.microbatch]);
    if (auto ok = executor_->add_inputs(o, iteration_, std::move(activation)); !ok)
      return fail(ok.error());
  } else if (s.what == step_kind::backward) {
    if (!last()) o.in.push_back(std::move(*box.gradient[s.microbatch]));
    o.last_backward = joined_ && std::none_of(o_.setup.order.begin() + next_ + 1,
                                              o_.setup.order.end(), [](const stage_step& later) {
                                                return later.what == step_kind::backward;
                                              });
  }
  if (next_ == 0) {
    iteration_report_.begin_s = submitted_s_ - clock_ahead_s_;
    signal_begin();
  }
  submit(std::move(o));
}

void stage_state::end_step(const stage_step& s, gpu::outcome o) {
  ++next_;
  auto body = o.out.empty() ? payload{} : std::move(o.out.front());
  const bool forward = s.what == step_kind::forward;
  const auto bytes = executor_->output_bytes(s.what, body, input_bytes_);
  if (bytes > 0 && (forward || last())) activation_bytes_ = bytes;
  const auto& me = o_.setup.name;
  if (s.what == step_kind::forward) {
    loss_sum_ += o.loss;
    if (!last()) {
      auto path = o_.setup.forward;
      path.rank = s.rank;
      send(tensor::kind::activation, me.pipeline, me.stage + 1, s.microbatch, std::move(body),
           bytes, path);
    }
  } else if (s.what == step_kind::backward) {
    --in_flight_;
    if (!first()) {
      auto path = o_.setup.backward;
      path.rank = s.rank;
      send(tensor::kind::gradient, me.pipeline, me.stage - 1, s.microbatch, std::move(body), bytes,
           path);
    }
  }
}

// -- the end of an iteration

void stage_state::end_iteration(const gpu::outcome& o) {
  auto& r = iteration_report_;
  r.iteration = iteration_ + 1;
  r.loss = last() ? loss_sum_ / o_.setup.microbatches : 0;
  r.squared_norm = o.squared_norm;
  r.end_s = training_time_s();
  add_use(r);
  auto& k = r.measured;
  times_.write(k);
  // Clock offsets are exact to half a round trip: the difference may be negative or too long.
  k.wan_s = std::clamp(current().hops.hop_s(), 0.0, std::max(0.0, r.end_s - r.begin_s));
  k.activation_bytes = activation_bytes_;
  k.gradient_bytes = own_bytes_ + tied_bytes_;
  k.tied_bytes = tied_bytes_;
  transfers_ = current().hops.tasks();
  clear(current(), iteration_ + 2);
  ++iteration_;
  sent_.begin_iteration(iteration_);
  timeout_.next_iteration();
  const auto every = std::max(1U, o_.setup.how.checkpoint_every);
  const bool due =
      iteration_ % every == 0 || iteration_ == o_.setup.iterations || iteration_ == save_at_;
  due ? save() : saved();
}

void stage_state::save() {
  const auto& how = o_.setup.how;
  if (executor_->saves_without_files()) {
    saved_ = iteration_;
    return saved();
  }
  if (how.checkpoint.empty() || o_.setup.name.pipeline != 0) return saved();
  if (const auto ok = may_save(how.checkpoint, o_.setup.name.lease); !ok) return fail(ok.error());
  phase_ = phase::saving;
  gpu::operation save;
  save.what = operation_kind::save;
  save.path = checkpoint_path(how.checkpoint, iteration_);
  submit(std::move(save));
}

void stage_state::saved() {
  phase_ = phase::steps;
  if (iteration_report_.iteration != iteration_) return report_halted();  // reported before saving
  iteration_report_.saved = saved_;
  auto& tasks = iteration_report_.tasks;
  for (auto& t : tasks) t.begin_s -= clock_ahead_s_, t.end_s -= clock_ahead_s_;
  tasks.insert(tasks.end(), transfers_.begin(), transfers_.end());
  report(std::exchange(iteration_report_, {}));
  begin_iteration();
  advance();
}

// -- device operations, tensors, reports

void stage_state::submit(gpu::operation o) {
  busy_ = true;
  if (phase_ != phase::steps) submitted_s_ = o_.messenger.now_s();
  const double wait_s = take_back();
  if (wait_s <= 0) return executor_->submit(std::move(o));
  // The delay is counted as such: the operation itself takes no longer.
  self_->delayed_send(stage_actor{self_}, nanoseconds_of(wait_s),
                      call_now{[this, o = std::move(o)] {
                        submitted_s_ = o_.messenger.now_s();
                        executor_->submit(o);
                      }});
}

void stage_state::on_device_done(expected<gpu::outcome> r) {
  busy_ = false;
  if (!r && phase_ == phase::group_id) {
    stage_report ready;
    ready.fallback_reason = r.error();
    return report_ready(std::move(ready));
  }
  if (!r) return fail(r.error());
  auto& o = *r;
  const double took_s = o_.messenger.now_s() - submitted_s_;
  switch (phase_) {
    case phase::loading:
      return request_group_id();
    case phase::group_id: {
      stage_report ready;
      const auto bytes = o.out.empty() ? std::span<const std::byte>{} : o.out[0].bytes();
      for (const auto b : bytes) ready.group_id.push_back(std::to_integer<std::uint8_t>(b));
      return report_ready(std::move(ready));
    }
    case phase::joining:
      phase_ = phase::steps;
      return advance();
    case phase::steps: {
      const auto step = o_.setup.order[next_];
      times_.add(kind_of(step.what), took_s);
      iteration_report_.busy_s += o.end_s - o.begin_s;
      record_task(kind_of(step.what), step.microbatch, took_s);
      end_step(step, std::move(o));
      return advance();
    }
    case phase::gradients:
      times_.add(task_kind::reduce, took_s);
      return begin_exchange(std::move(o));
    case phase::exchange:
      send_all(current().device_sum.finish_sum(std::move(o.out)));
      return advance_exchange();
    case phase::update:
      times_.add(task_kind::update, took_s);
      record_task(task_kind::update, 0, took_s);
      return end_iteration(o);
    case phase::saving:
      record_task(task_kind::checkpoint, 0, took_s);
      saved_ = iteration_;
      return saved();
  }
}

/// For the timeline: a task that ended now and took `took_s`. On this host's clock until the
/// iteration is reported, so that all of its tasks are moved to the trainer's alike.
void stage_state::record_task(task_kind what, std::uint32_t microbatch, double took_s) {
  if (!o_.setup.trace) return;
  const double now = o_.messenger.now_s();
  iteration_report_.tasks.push_back(task_of(what, microbatch, now - took_s, now));
}

void stage_state::send(tensor::kind what, std::uint32_t to_pipeline, std::uint32_t to_stage,
                       std::uint32_t microbatch, payload body, std::uint64_t bytes,
                       const wan_path& path) {
  if (path.pairs > 0) iteration_report_.sent_bytes += bytes;
  const auto& s = o_.setup;
  if (body.bytes().size() > runtime::largest_tensor_bytes)
    return fail({reason::kind::infeasible,
                 fmt::format("a tensor of {} bytes exceeds the network's limit of {}: give the "
                             "job more pipelines or more stages",
                             body.bytes().size(), runtime::largest_tensor_bytes)});
  const auto to = address_of(to_pipeline, to_stage);
  const tensor t{what,       s.name, to_pipeline,       to_stage, iteration_,
                 microbatch, bytes,  training_time_s(), path};
  if (to == o_.messenger.self() && executor_->carry({s.name.lease, to_pipeline, to_stage}, bytes,
                                                    [this, to, t] { o_.messenger.send(to, t); }))
    return;
  const bool sent = o_.messenger.send(to, t, body);
  if (to != o_.messenger.self()) sent_.keep(t, std::move(body), o_.messenger.now_s(), !sent);
}

void stage_state::report_ready(stage_report ready) {
  phase_ = phase::steps;
  begin_iteration();
  ready.iteration = iteration_;
  ready.saved = saved_;
  report(std::move(ready));
  advance();
}

void stage_state::report(stage_report r) {
  r.name = o_.setup.name;
  r.incarnation = o_.setup.incarnation;
  send_report(r);
  unacknowledged_.push_back(std::move(r));
  if (!failed_ && iteration_ == o_.setup.iterations)
    caf::anon_send(
        o_.messenger.node(),
        training_over{
            o_.setup.name.lease, o_.setup.name, false, part_report::state::succeeded, {}});
}

void stage_state::send_report(stage_report& r) {
  r.request_sent_s = run_sent_s_;
  r.received_s = run_received_s_;
  r.replied_s = o_.messenger.now_s();
  o_.messenger.send(o_.trainer, r);
}

void stage_state::fail(const reason& why) {
  failed_ = true;
  // The next attempt may begin as soon as it is reported, and have the same GPU.
  if (why.code == reason::kind::out_of_memory && executor_) executor_->release();
  stage_report r;
  r.iteration = iteration_;
  r.why = why;
  report(std::move(r));
  if (why.code == reason::kind::device_lost)
    caf::anon_send(o_.messenger.node(), lost_device(o_.setup, why));
}

stage_actor::behavior_type stage(stage_actor::stateful_pointer<stage_state> self, stage_options o) {
  auto& s = self->state;
  begin_actor(self, "stage", [&] { s.start(self, std::move(o)); });
  return {
      [&s](const inbound<stage_run>& m) { s.on_stage_run(m.body); },
      [&s](const inbound<tensor>& m) { s.on_tensor(m.body, m.raw); },
      [&s](const inbound<tensor_request>& m) { s.on_tensor_request(m.body); },
      [&s](const release_device&) { s.on_release_device(); },
      [&s](const device_done& d) { s.on_device_done(d.what); },
      [](const call_now& c) { c.what(); },
  };
}

}  // namespace troupe::actors
