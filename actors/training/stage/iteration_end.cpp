#include <memory>
#include <utility>

#include "actors/training/device/stage_backend.hpp"
#include "actors/training/stage/stage.hpp"
#include "messages/base/invariant.hpp"

// The stage's part about the end of an iteration: sums of gradients, the update, a checkpoint.

namespace troupe::actors {

// Devices of one group sum their gradients without the hosts, which then exchange only those of a
// tied embedding.
void stage_state::begin_gradients() {
  TROUPE_INVARIANT(next_ == o_.setup.order.size(), "gradients are summed after the last step");
  TROUPE_INVARIANT(!busy_, "gradients are summed while the device is idle");
  if (!sums_gradients()) return prepare({});
  if (training_.gradients().joined()) {
    phase_ = phase::exchange;
    exchange_began_s_ = now_s();
    return advance_exchange();
  }
  phase_ = phase::gradients;
  // A worker's gradients are in memory that the passes of another view would change while they are
  // on their way.
  const bool take = o_.replica && (o_.replica->is_shared() || o_.setup.how.program);
  submit({gpu::operations::gradients{.take = take}});
}

void stage_state::begin_exchange(gpu::own_and_tied gradients) {
  phase_ = phase::exchange;
  exchange_began_s_ = now_s();
  send_all(training_.add_gradients(executor_->take_gradients(std::move(gradients))));
  advance_exchange();
}

/// Goes as far as the tensors received allow: the all-reduce of the devices once it has its inputs,
/// and the update once all sums are here.
void stage_state::advance_exchange() {
  if (busy_ || failed_ || stopped_) return;
  auto& gradients = training_.gradients();
  if (const auto& error = gradients.error(); !error.empty())
    return fail({reason::kind::malformed, error});
  if (auto sum = gradients.take_device_sum()) return submit({std::move(*sum)});
  if (!gradients.is_ready()) {
    be_idle_until_update();
    return tensors_.await(o_.setup.order.size(), nullptr);
  }
  record_task(task_kind::reduce, 0, now_s() - exchange_began_s_);
  prepare(executor_->needs_norm() ? gradients.result_for_norms() : gpu::own_and_tied{});
}

/// All but the last stage's sum of a tied embedding's gradients is here. Clipping needs the norm of
/// the sums over all stages, to which the device gives its part first.
void stage_state::prepare(gpu::own_and_tied sums) {
  TROUPE_INVARIANT(next_ == o_.setup.order.size(), "parameters are updated after the last step");
  if (!executor_->needs_norm()) return begin_commit({});
  phase_ = phase::norms;
  give([this, n = gpu::operations::norms{std::move(sums), training_.iteration()}] {
    executor_->submit_norms(n);
  });
}

void stage_state::begin_commit(std::vector<double> norms) {
  TROUPE_INVARIANT(!sums_gradients() || training_.gradients().is_ready(),
                   "a stage is ready to update when it has the sums of all its peers");
  phase_ = phase::commit;
  if (writing_) training_.gradients().skip_checkpoint();
  if (o_.kept && !may_copy()) training_.gradients().skip_copy();
  if (agrees())
    send_all(training_.gradients().begin_commit(std::move(norms), training_.own_record()));
  advance_commit();
}

// The device of a program that clips has had the sums with their norms, but for a tied one that was
// still missing.
void stage_state::advance_commit() {
  TROUPE_INVARIANT(phase_ == phase::commit, "an update is agreed on when its sums are here");
  if (busy_ || failed_ || stopped_) return;
  auto& gradients = training_.gradients();
  if (!gradients.error().empty()) return fail({reason::kind::malformed, gradients.error()});
  const bool agreed = !agrees() || gradients.commit().complete();
  if (!agreed || (sums_gradients() && !gradients.complete())) {
    be_idle_until_update();
    return tensors_.await(o_.setup.order.size() + 1, nullptr);
  }
  phase_ = phase::update;
  update();
}

void stage_state::update() {
  if (!may_update()) return;
  auto& gradients = training_.gradients();
  gpu::operation o{gpu::operations::update{
      sums_gradients() ? gradients.result() : gpu::own_and_tied{}, training_.gradient_scale()}};
  if (executor_->needs_norm()) o.program.squared_norm = gradients.commit().squared_norm();
  submit(std::move(o));
}

bool stage_state::sums_gradients() const {
  return gradient_all_reduce::needed(o_.setup) && executor_->has_gradients();
}

/// Not where gradients have no size: an iteration in slots is one of its schedule alone.
bool stage_state::agrees() const {
  return executor_->has_gradients() || executor_->needs_norm();
}

// Devices that all-reduce have no guest.
void stage_state::be_idle_until_update() {
  if (!training_.gradients().joined()) be_idle(o_.setup.order.size() + 1);
}

void stage_state::end_update(const gpu::operations::update::result& done) {
  TROUPE_INVARIANT(phase_ == phase::update, "an update ends in its phase");
  updated_ = done;
  if (!training_.is_evaluation_due()) return end_iteration();
  phase_ = phase::evaluating;
  evaluated_ = 0;
  tensors_.received().begin_evaluation();
  advance_evaluation();
}

/// The next held-out micro-batch. Its number, and its turn on a link, come after those of the
/// iteration's own.
stage_step stage_state::evaluation_step() const {
  return {stage_step::kind::forward, o_.setup.microbatches + evaluated_,
          static_cast<std::uint32_t>(o_.setup.order.size()) + evaluated_};
}

// No stage is an iteration ahead of the others, so that they evaluate the same weights.
void stage_state::advance_evaluation() {
  TROUPE_INVARIANT(phase_ == phase::evaluating, "held-out samples have a phase of their own");
  if (busy_ || failed_) return;
  if (evaluated_ == training_.held_out_microbatches()) return end_iteration();
  const auto next = evaluation_step();
  if (!tensors_.received().has_input(next))
    return tensors_.await(o_.setup.order.size() + 2 + evaluated_, &next);
  gpu::operations::forward step{evaluated_};
  auto activation = tensors_.received().take_input(next);
  if (auto ok = executor_->add_inputs(step, training_.iteration(), std::move(activation)); !ok)
    return fail(ok.error());
  const std::uint64_t number = me().pipeline + std::uint64_t{evaluated_} * o_.setup.pipelines;
  submit({.what = std::move(step), .program = {.evaluate = true, .number = number}});
}

void stage_state::end_evaluation(gpu::outcome o) {
  const auto done = evaluation_step();
  ++evaluated_;
  auto& made = o.of<gpu::operations::forward>();
  training_.end_evaluation(made);
  if (!last()) {
    tensor t;
    t.what = tensor::kind::activation;
    t.bytes =
        executor_->output_bytes(done.what, made.activation, tensors_.received().input_bytes());
    t.microbatch = done.microbatch;
    t.to_pipeline = me().pipeline;
    t.to_stage = me().stage + 1;
    t.path = o_.setup.forward;
    t.path.turn = done.turn;
    send(std::move(t), std::move(made.activation));
  }
  advance_evaluation();
}

// The lending comes first: what it adds is part of the report.
void stage_state::end_iteration() {
  TROUPE_INVARIANT(phase_ == phase::update || phase_ == phase::evaluating,
                   "an iteration ends with its update, or with held-out samples");
  training_.report().end_s = reports_.training_time_s();
  lending_.on_iteration_ended(training_.report());
  training_.end_iteration(updated_, tensors_.received().hops());
  tensors_.end_iteration();
  if (const auto digest = executor_->simulated_weights(); digest && o_.on_weights)
    o_.on_weights(o_.setup, training_.iteration(), *digest);
  keep_state();
}

// The device has a copy made, and goes on with the training while the node's writer writes it.
void stage_state::save() {
  if (executor_->saves_without_files()) {
    training_.mark_saved(training_.iteration());
    return saved();
  }
  if (!training_.writes_checkpoint()) return saved();
  // By the agreement none is begun meanwhile, but for those that are waited for, and by stages that
  // have learnt of an update by the beginning of a view.
  if (writing_ && !must_wait_for_files()) return saved();
  phase_ = phase::saving;
  if (writing_) return;  // files_written() goes on
  TROUPE_INVARIANT(!busy_, "a checkpoint is copied while the device is idle");
  give([this, path = checkpoint_path(o_.setup.how.checkpoint, training_.iteration())] {
    if (auto ok = executor_->submit_copy(path, training_.iteration()); !ok)
      busy_ = false, fail(ok.error());
  });
}

bool stage_state::must_wait_for_files() const {
  return training_.waits_for_checkpoint() || training_.halted();
}

void stage_state::end_copy(gpu::outcome copied) {
  const auto iteration = training_.iteration();
  auto write = executor_->take_copy(std::move(copied));
  if (!write) {
    training_.mark_saved(iteration);
    return saved();
  }
  writing_ = iteration;
  if (!o_.writer) o_.writer = gpu::make_checkpoint_writer();
  o_.writer->submit(std::move(write), [this, iteration, me = stage_actor{self_}](auto ok) {
    caf::anon_send(
        me, call_now{[this, iteration, ok = std::move(ok)] { files_written(iteration, ok); }});
  });
  if (!must_wait_for_files()) saved();
}

/// The trainer needs this alone to complete the checkpoint; its next reports say it, too.
void stage_state::files_written(std::uint64_t iteration, const expected<void>& ok) {
  TROUPE_INVARIANT(writing_ == iteration, "a stage writes one checkpoint at a time");
  writing_.reset();
  if (failed_) return;
  if (!ok) return fail(ok.error());
  if (iteration > training_.iteration()) return;  // it has gone back since: it saves that again
  training_.mark_saved(iteration);
  if (phase_ == phase::saving) return iteration == training_.iteration() ? saved() : save();
  stage_report r;
  r.saved = iteration;
  reports_.send(std::move(r));
}

// Also after a checkpoint that only the trainer's halt has asked for: that iteration was reported
// when it ended.
void stage_state::saved() {
  phase_ = phase::steps;
  if (!training_.has_report()) {  // reported before saving
    report_halted();
    return advance();
  }
  report(training_.take_report(reports_.ahead_s()));
  begin_iteration();
  advance();
}

}  // namespace troupe::actors
