#include "actors/training/stage/stage_training.hpp"

#include <algorithm>
#include <utility>

#include "actors/training/stage/named_values.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

void stage_training::begin(const stage_setup& s) {
  setup_ = &s;
  evaluations_ = evaluations_of(s);
  iteration_ = s.first_iteration;
  // No checkpoint has been written of what a peer has reached.
  saved_ = s.shares_with || s.standby ? 0 : iteration_;
  tied_bytes_ = s.costs.tied_bytes;
  own_bytes_ = s.costs.gradient_bytes - std::min(s.costs.gradient_bytes, tied_bytes_);
  exchange_.begin(s, iteration_);
}

void stage_training::restore(const stage_setup& s) {
  const auto saved = saved_;
  begin(s);
  saved_ = std::min(saved, iteration_);
  window_began_ = std::min(window_began_, iteration_);
  last_update_.reset();
  begin_iteration();
}

void stage_training::run_until(std::uint64_t until) {
  if (until > until_ && waits_for_trainer()) window_began_ = iteration_;
  until_ = std::max(until_, until);
  TROUPE_INVARIANT(window_began_ <= iteration_,
                   "a window of iterations began no later than the present one");
}

std::uint64_t stage_training::iteration_of_window() const {
  return waits_for_trainer() ? 0 : iteration_ - window_began_;
}

// Repeated by the trainer until it has all stages' answers: the first one counts, since the
// iteration under way may have ended meanwhile.
void stage_training::halt(bool under_way) {
  if (!std::exchange(halted_, true)) until_ = iteration_ + (under_way ? 1 : 0);
}

void stage_training::begin_iteration() {
  loss_sum_ = 0;
  values_.clear();
  in_flight_ = 0;
  times_ = {};
  report_ = {};
}

void stage_training::restart_iteration() {
  exchange_.begin(*setup_, iteration_);
  begin_iteration();
}

void stage_training::begin_forward() {
  report_.max_in_flight = std::max(report_.max_in_flight, ++in_flight_);
  TROUPE_INVARIANT(in_flight_ <= setup_->microbatches,
                   "no more micro-batches are in flight than an iteration has");
}

void stage_training::end_forward(const gpu::operations::forward::result& r) {
  loss_sum_ += r.loss;
  add_values(values_, r.more);
}

void stage_training::end_evaluation(const gpu::operations::forward::result& r) {
  add_values(values_, r.more);
}

bool stage_training::is_evaluation_due() const {
  return evaluations_.microbatches > 0 && evaluations_.is_due(iteration_ + 1, setup_->iterations);
}

gradient_exchange::outgoing stage_training::add_gradients(stage_gradients g) {
  own_bytes_ = g.own_bytes, tied_bytes_ = g.tied_bytes;
  return exchange_.add(std::move(g));
}

std::optional<pipeline_record> stage_training::own_record() const {
  if (!is_last() || !setup_->view) return {};
  return pipeline_record{name().pipeline, loss_sum_ / setup_->microbatches, values_};
}

double stage_training::gradient_scale() const {
  TROUPE_INVARIANT(setup_->all_microbatches() > 0,
                   "gradients are of a micro-batch of a pipeline at least");
  return 1.0 / static_cast<double>(setup_->all_microbatches());
}

void stage_training::end_iteration(const gpu::operations::update::result& update,
                                   const hop_times& hops) {
  auto& r = report_;
  TROUPE_INVARIANT(in_flight_ == 0, "no micro-batch is in flight at the end of an iteration");
  TROUPE_INVARIANT(report_.iteration == 0, "an iteration is reported before the next one ends");
  r.iteration = iteration_ + 1;
  r.loss = is_last() ? loss_sum_ / setup_->microbatches : 0;
  r.squared_norm = update.squared_norm;
  if (setup_->how.program)
    r.worker = {{}, 0, update.peak_bytes, update.skipped, std::exchange(values_, {})};
  auto& k = r.measured;
  times_.write(k);
  // Clock offsets are exact to half a round trip: the difference may be negative or too long.
  k.wan_s = std::clamp(hops.hop_s(), 0.0, std::max(0.0, r.end_s - r.begin_s));
  k.activation_bytes = activation_bytes_;
  k.gradient_bytes = own_bytes_ + tied_bytes_;
  k.tied_bytes = tied_bytes_;
  transfers_ = hops.tasks();
  skips_checkpoint_ = exchange_.commit().skips_checkpoint();
  skips_copy_ = exchange_.commit().skips_copy();
  if (setup_->view) last_update_ = exchange_.commit().agreed();
  exchange_.end_iteration(*setup_);
  ++iteration_;
  TROUPE_INVARIANT(saved_ <= iteration_, "a checkpoint has no iteration that was not done");
}

bool stage_training::is_checkpoint_due() const {
  const auto every = std::max(1U, setup_->how.checkpoint_every);
  return (iteration_ % every == 0 && !skips_checkpoint_) || waits_for_checkpoint();
}

// The best of the evaluated weights can be exported, and a training that ends early has them.
bool stage_training::waits_for_checkpoint() const {
  return is_over() || iteration_ == save_at_ || evaluations_.is_due(iteration_, setup_->iterations);
}

bool stage_training::writes_checkpoint() const {
  return !setup_->how.checkpoint.empty() && setup_->name.pipeline == 0;
}

// Tasks were recorded on this host's clock, so that a correction of its offset during the iteration
// moves all of them alike; transfers were measured on the trainer's.
stage_report stage_training::take_report(double ahead_s) {
  TROUPE_INVARIANT(has_report(), "a report is taken when there is one");
  report_.saved = saved_;
  auto& tasks = report_.tasks;
  for (auto& t : tasks) t.begin_s -= ahead_s, t.end_s -= ahead_s;
  tasks.insert(tasks.end(), transfers_.begin(), transfers_.end());
  return std::exchange(report_, {});
}

}  // namespace troupe::actors
