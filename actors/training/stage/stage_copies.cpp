#include <utility>

#include "actors/training/stage/stage.hpp"
#include "messages/base/invariant.hpp"

// The stage's part about copies of its state, which its node keeps for a worker that ends where no
// peer has that state (training/device/kept_states.hpp).

namespace troupe::actors {

namespace {

/// Copies of all stages take at most this part of an iteration's time.
constexpr double max_share = 0.02;

}  // namespace

/// Before an update: it is not too soon after the last copy. One stage may wait for the copy of
/// another, so that their times add up.
bool stage_state::may_copy() const {
  return has_memory_ && now_s() - copied_s_ >= o_.setup.stages * copying_s_ / max_share;
}

/// After an update, before anybody learns of the iteration's end.
void stage_state::keep_state() {
  if (!o_.kept || !has_memory_ || !training_.is_copy_due()) return end_keep();
  phase_ = phase::keeping;
  give([this] { executor_->submit_state({me().stage, training_.iteration()}); });
}

void stage_state::end_keep_state(const expected<gpu::outcome>& r, double took_s) {
  if (!r && r.error().code == reason::kind::worker_lost) return fail(r.error());
  auto folder = r ? executor_->take_state_folder() : nullptr;
  copied_s_ = now_s();
  copying_s_ = took_s;
  has_memory_ = folder != nullptr;
  if (folder)
    o_.kept->add(training_.iteration(), std::move(folder));
  else
    o_.kept->clear();
  executor_->forget_state();  // where the copy failed, or has no room
  end_keep();
}

void stage_state::end_keep() {
  training_.is_checkpoint_due() ? save() : saved();
}

void stage_state::add_copies(stage_report& r) const {
  if (o_.kept) r.copies = o_.kept->iterations();
}

/// All stages go on from copies of this boundary, also one whose worker has not ended: its passes
/// may have changed buffers since, and it may have done another update. What it has saved of later
/// iterations does not count: it is saved again.
void stage_state::restore(const view_begin& b) {
  auto& s = o_.setup;
  view_ = b.view;
  s.view = b.view;
  s.neighbours = b.neighbours;
  s.peers = b.peers;
  s.first_iteration = b.from;
  stopped_ = asked_replica_ = false;
  gives_.clear();
  given_.reset();
  training_.restore(s);
  tensors_.restart_iteration();
  o_.replica->take(b.from);
  restoring_ = true;
  const bool stands_by = s.standby && !std::exchange(has_joined_, true);
  o_.replica->begin(b.view, b.pipelines, !stands_by);
  if (stands_by) return load_copy();
  phase_ = phase::resetting;
  submit({gpu::operations::reset{}});
}

void stage_state::load_copy() {
  TROUPE_INVARIANT(!busy_, "a stage takes a copy of its state while its device is idle");
  phase_ = phase::taking;
  const auto copy = o_.kept ? o_.kept->of(training_.iteration()) : nullptr;
  if (!copy)
    return fail(because(reason::kind::malformed, "the node has no copy of iteration {}",
                        training_.iteration()));
  give([this, copy] { executor_->submit_state_folder(copy); });
}

}  // namespace troupe::actors
