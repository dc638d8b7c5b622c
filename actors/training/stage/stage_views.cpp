#include <utility>

#include "actors/training/stage/stage.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

// The stage's part about views: how a training that has lost stages goes on without them
// (training/replicas/view_change.hpp).

namespace troupe::actors {

/// True: the message says nothing else that counts now.
bool stage_state::on_view(const stage_run& r) {
  if (!o_.setup.view) return false;
  if (r.gather) {
    gather(*r.gather);
    return true;
  }
  if (r.begin && r.begin->view == view_) {
    if (stopped_)
      go_on(*r.begin);
    else
      answer_view(true);  // the message was repeated
  }
  return stopped_;
}

// An update under way is completed first, with its evaluation: the answer says by which boundary
// the stage stands, and it goes back to none. Held-out samples that do not come while the trainer
// asks again are those of a stage that is lost: nobody has its part of the evaluation.
void stage_state::gather(std::uint64_t view) {
  if (view < view_ || (view == view_ && !stopped_)) return;
  if (phase_ == phase::loading || phase_ == phase::communicator_id || phase_ == phase::joining)
    return;
  gives_.clear();
  asked_for_.clear();
  // One that goes on from a copy may have updated.
  const bool may_stop = o_.kept && phase_ == phase::evaluating && !busy_;
  if (!may_stop && (phase_ == phase::update || phase_ == phase::evaluating ||
                    phase_ == phase::keeping || phase_ == phase::saving)) {
    if (phase_ == phase::evaluating && gather_ == view && gathered_at_ == evaluated_ && !busy_)
      return fail(because(reason::kind::worker_lost,
                          "a stage before it was lost in the evaluation after iteration {}",
                          training_.iteration() + 1));
    gather_ = view;
    gathered_at_ = evaluated_;
    return;
  }
  view_ = view;
  gather_.reset();
  stop();
}

/// The result of an operation under way counts no more. A stage that is ready to update keeps its
/// sums, since others may have updated by them.
void stage_state::stop() {
  if (!stopped_ && phase_ != phase::commit) forget_iteration();
  stopped_ = true;
  answer_view(false);
}

void stage_state::forget_iteration() {
  if (std::exchange(busy_, false)) executor_->abandon();
  phase_ = phase::steps;
  tensors_.restart_iteration();
  training_.restart_iteration();
  begin_iteration();
}

void stage_state::go_on(const view_begin& b) {
  if (b.restores) return restore(b);
  const bool updates = b.from == training_.iteration() + 1;
  if (!updates && b.from != training_.iteration())
    return fail(because(reason::kind::malformed,
                        "a view begins after iteration {}, and the stage is after {}", b.from,
                        training_.iteration()));
  if (updates && phase_ != phase::commit)
    return fail(because(reason::kind::malformed,
                        "a view begins after iteration {}, whose sums the stage has not", b.from));
  o_.setup.view = b.view;
  o_.setup.neighbours = b.neighbours;
  o_.setup.peers = b.peers;
  if (updates && !b.update)
    return fail(because(reason::kind::malformed,
                        "a view begins with the update after iteration {}, and does not say it",
                        b.from));
  stopped_ = asked_replica_ = false;
  gives_ = b.gives.value_or(std::vector<std::uint32_t>{});
  given_.reset();
  if (!updates && phase_ == phase::commit) forget_iteration();
  const bool resets = o_.replica->begin(b.view, b.pipelines, !updates);
  answer_view(true);
  if (updates) {
    if (agrees()) training_.gradients().agree(*b.update);
    tensors_.await_anew();
    return advance_commit();
  }
  if (!resets) return advance();
  phase_ = phase::resetting;
  submit({gpu::operations::reset{}});
}

void stage_state::end_reset() {
  phase_ = phase::steps;
  o_.replica->end_reset();
  if (restoring_) return load_copy();
  advance();
}

void stage_state::answer_view(bool begun) {
  stage_report r;
  r.iteration = training_.iteration();
  r.saved = training_.saved();
  r.place = view_place{view_, begun, training_.iteration(), phase_ == phase::commit};
  if (!begun) {
    r.place->update = training_.last_update();
    if (o_.kept) r.place->restores = true;
    add_copies(r);
  }
  reports_.send(std::move(r));
}

/// Readiness and the word to update count in their own view alone: a stage that has answered in a
/// newer one is not bound by them.
bool stage_state::is_word_of_view(const tensor& t) const {
  const bool state = t.what == tensor::kind::state;
  if (!state && t.what != tensor::kind::ready && t.what != tensor::kind::commit) return true;
  return !stopped_ && t.view.value_or(0) == view_;
}

// -- the replica that it may share with stages of other pipelines

/// A stage that joins after an iteration that its pipeline has to save does so first. True: it
/// does, or waits until the weights are those after it.
bool stage_state::saves_for_lost() {
  const bool joins = o_.setup.shares_with || o_.setup.standby;
  if (!joins || training_.iteration() == 0 || training_.saved() > 0 ||
      !training_.writes_checkpoint() || training_.iteration() != o_.setup.first_iteration ||
      !training_.is_checkpoint_due() || writing_)
    return false;
  if (asked_replica_) return true;
  asked_replica_ = !o_.replica->has_done(training_.iteration(), waker());
  if (!asked_replica_) save();
  return true;
}

stage_replica::wake stage_state::waker() {
  return [this, me = stage_actor{self_}] {
    caf::anon_send(me, call_now{[this] {
                     asked_replica_ = false;
                     if (phase_ == phase::update && !busy_ && !failed_)
                       update();
                     else
                       advance();
                   }});
  };
}

bool stage_state::may_step() {
  if (!o_.replica) return true;
  if (asked_replica_) return false;
  asked_replica_ = !o_.replica->may_step(me().pipeline, view_, training_.iteration(), waker());
  return !asked_replica_;
}

/// False: another pipeline's stage updates the weights that they share, or has.
bool stage_state::may_update() {
  if (!o_.replica) return true;
  if (asked_replica_) return false;
  switch (o_.replica->begin_update(training_.iteration(), waker())) {
    case stage_replica::update::execute:
      return true;
    case stage_replica::update::wait:
      asked_replica_ = true;
      return false;
    case stage_replica::update::done:
      break;
  }
  end_update(o_.replica->updated());
  return false;
}

}  // namespace troupe::actors
