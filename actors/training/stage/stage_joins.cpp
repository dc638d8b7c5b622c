#include <algorithm>
#include <utility>

#include "actors/protocol/actor_state.hpp"
#include "actors/training/stage/stage.hpp"
#include "messages/base/invariant.hpp"

// The stage's part about joins: a device that was lost and is back stands by, and joins a view with
// the state of a peer (training/trainer/healing.hpp).

namespace troupe::actors {

namespace {

/// How long a part of a state may take until it is asked for again; twice as long each time.
constexpr double state_timeout_s = 2;

}  // namespace

// -- the stage that joins

void stage_state::answer_standby() {
  stage_report r;
  r.standby = o_.setup.standby;
  r.worker = executor_->worker();
  add_copies(r);
  reports_.send(std::move(r));
}

/// True: the stage has not joined, and the message says nothing else that counts.
bool stage_state::on_join(const stage_run& r) {
  if (!o_.setup.standby || (has_joined_ && phase_ != phase::taking)) return false;
  // Its start, and its state, may take long: the trainer must see that the host is there.
  stage_report alive;
  alive.starting = true;
  if (!has_joined_) alive.standby = o_.setup.standby;
  if (phase_ != phase::standby)
    reports_.send(std::move(alive));
  else if (r.begin && r.begin->takes)
    join_view(*r.begin);
  else if (r.begin && r.begin->restores)
    restore(*r.begin);
  else
    answer_standby();
  return true;
}

void stage_state::join_view(const view_begin& b) {
  TROUPE_INVARIANT(!busy_, "a stage that stands by has an idle device");
  has_joined_ = true;
  view_ = b.view;
  auto& s = o_.setup;
  s.view = b.view;
  s.neighbours = b.neighbours;
  s.peers = b.peers;
  s.first_iteration = b.from;
  training_.begin(s);
  tensors_.begin_at(b.from);
  takes_ = *b.takes;
  phase_ = phase::taking;
  o_.replica->take(b.from);
  o_.replica->begin(b.view, b.pipelines, false);
  ask_for_state();
}

/// For the next part, and again if it does not come.
void stage_state::ask_for_state() {
  tensor_request r;
  r.what = tensor::kind::state;
  r.from = me();
  r.to_pipeline = takes_;
  r.to_stage = me().stage;
  r.iteration = training_.iteration();
  r.microbatches = {taken_.next()};
  o_.messenger.send(o_.setup.peers[takes_], r);
  const auto part = taken_.next();
  const double wait_s = state_timeout_s * static_cast<double>(1U << std::min(asked_, 6UL)) +
                        2 * executor_->expected_transfer_s(executor_->state_bytes({}));
  ++asked_;
  send_later(self_, wait_s, call_now{[this, part] {
               if (phase_ == phase::taking && !busy_ && taken_.next() == part) ask_for_state();
             }});
}

void stage_state::take_part(const tensor& t, const payload& body) {
  if (phase_ != phase::taking || busy_ || t.from.pipeline != takes_) return;
  const auto next = taken_.add(t, body);
  if (!next) return fail_join(next.error());
  if (!*next) return;
  if (!taken_.is_complete()) return ask_for_state();
  busy_ = true;
  submitted_s_ = now_s();
  const auto ok = executor_->submit_new_state(taken_.take(), {me().stage, training_.iteration()});
  if (ok) return;
  busy_ = false;
  fail_join(ok.error());
}

/// Without its state the device is lost, and the training goes on.
void stage_state::fail_join(const reason& why) {
  const bool is_its_own = why.code == reason::kind::worker_lost ||
                          why.code == reason::kind::device_lost ||
                          why.code == reason::kind::out_of_memory;
  fail({is_its_own ? why.code : reason::kind::unavailable,
        "the state of a peer was not taken: " + why.text});
}

void stage_state::end_join_view() {
  executor_->forget_state();
  restoring_ = false;
  phase_ = phase::steps;
  begin_iteration();
  answer_view(true);
  advance();
}

// -- the stage that gives its state

/// The last stage's, to a peer: the first stage that had it may be lost.
void stage_state::give_tied_sum(const tensor_request& r) {
  auto sum = training_.gradients().tied_sum(r.iteration);
  if (!sum) return;
  tensor t;
  t.what = tensor::kind::tied_sum;
  t.to_pipeline = r.from.pipeline;
  t.to_stage = r.from.stage;
  t.iteration = r.iteration;
  t.bytes = std::max<std::uint64_t>(sum->bytes().size(), o_.setup.costs.tied_bytes);
  tensors_.give(std::move(t), std::move(*sum));
}

/// Before its next step: no stage updates before the joiner has done an iteration, so these are the
/// weights of the view's beginning.
void stage_state::give_state() {
  gives_.clear();
  phase_ = phase::giving;
  given_at_ = training_.iteration();
  give([this] { executor_->submit_state({me().stage, training_.iteration()}); });
}

void stage_state::end_give(expected<gpu::outcome> r) {
  busy_ = false;
  phase_ = phase::steps;
  auto state = r ? executor_->take_state() : expected<payload>{tl::unexpected{r.error()}};
  given_at_ = training_.iteration();
  given_.emplace();
  can_give_ = state.has_value();
  if (state) given_ = std::move(*state);
  for (const auto& asked : std::exchange(asked_for_, {})) send_part(asked);
  advance();
}

/// A state that is not there yet follows when it is.
void stage_state::send_part(const tensor_request& r) {
  if (failed_ || device_released_ || r.microbatches.size() != 1) return;
  if (!given_ || given_at_ != r.iteration) {
    std::erase_if(asked_for_, [&](const auto& a) { return a.from == r.from; });
    asked_for_.push_back(r);
    return;
  }
  const auto part = r.microbatches.front(), parts = can_give_ ? number_of_parts(*given_) : 0;
  if (parts > 0 && part >= parts) return;
  tensor t;
  t.what = tensor::kind::state;
  t.to_pipeline = r.from.pipeline;
  t.to_stage = r.from.stage;
  t.iteration = r.iteration;
  t.microbatch = part;
  t.parts = parts;
  auto body = parts > 0 ? part_of_state(*given_, part) : payload{};
  t.bytes = parts > 0 ? executor_->state_bytes(body) : 0;
  tensors_.give(std::move(t), std::move(body));
}

}  // namespace troupe::actors
