// A stage's gradients: all-reduce over pipelines, and the update.
#include <algorithm>
#include <cmath>

#include "gpu/cuda/host/stage.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::gpu::cuda {

// A copy with the head's part of the tied matrix added; the sums themselves do not change.
buffer<float> stage::gradients() {
  auto sums = copied_.take<float>(own_ + tied_);
  machine_->copy(sums.get(), gradients_.get(), (own_ + tied_) * sizeof(float));
  if (tied_head_) machine_->add(sums.get() + own_, tied_head_.get(), tied_);
  return sums;
}

// Null: that part of the gradients stays as it is, for instance after an all-reduce.
void stage::replace_gradients(const float* own, const float* tied) {
  if (own) machine_->copy(gradients_.get(), own, own_ * sizeof(float));
  if (!tied) return;
  machine_->copy(gradients_.get() + own_, tied, tied_ * sizeof(float));
  if (tied_head_) machine_->zero(tied_head_.get(), tied_head_values_ * sizeof(float));
}

/// Backward computes the last parameters' gradients first. All members of a group have the same
/// buckets.
void stage::plan_pieces(std::size_t piece_bytes) {
  const auto min = std::max(piece_bytes / sizeof(float), (own_ + max_pieces - 1) / max_pieces);
  std::vector<std::size_t> begins;  // of gradients that backward computes together
  if (spec_.has_head) begins.push_back(offset_of("ln_f.weight"));
  for (auto n = spec_.sublayers; n-- > 0;)
    begins.push_back(offset_of(names_of(spec_.first_sublayer + n).norm + ".weight"));
  auto end = own_;
  for (const auto first : begins) {
    if (end - first < min) continue;
    pieces_.push_back({first, end - first});
    end = first;
  }
  if (end > 0) pieces_.push_back({0, end});
  TROUPE_INVARIANT(own_ == 0 || pieces_.back().first == 0,
                   "the buckets of an all-reduce have all of a stage's own gradients");
  TROUPE_INVARIANT(pieces_.size() <= max_pieces,
                   "an all-reduce has few buckets, since each begins with a wait");
}

/// Gradients from `first` on are complete. with: null if more backwards follow.
void stage::sum_from(std::size_t first, device_communicator* with) {
  if (!with) return;
  for (; begun_ < pieces_.size() && pieces_[begun_].first >= first; ++begun_)
    with->sum_beside(gradients_.get() + pieces_[begun_].first, pieces_[begun_].values);
}

// Buckets that began during backward are joined, the rest is summed now. The tied matrix is summed
// by the first stage only, with the other stage's part added before, and is returned for that
// stage.
buffer<float> stage::sum_gradients(device_communicator& with, const float* tied) {
  if (tied_head_) {
    machine_->add(gradients_.get() + own_, tied_head_.get(), tied_);
    machine_->zero(tied_head_.get(), tied_head_values_ * sizeof(float));
  }
  if (tied) machine_->add(gradients_.get() + own_, tied, tied_);
  if (begun_ > 0) machine_->join_beside();
  for (; begun_ < pieces_.size(); ++begun_)
    with.sum(gradients_.get() + pieces_[begun_].first, pieces_[begun_].values);
  if (spec_.has_embedding) with.sum(gradients_.get() + own_, tied_);
  begun_ = 0;
  if (tied_ == 0 || tied_head_) return nullptr;
  auto copy = copied_.take<float>(tied_);
  machine_->copy(copy.get(), gradients_.get() + own_, tied_ * sizeof(float));
  return copy;
}

// The side stream may still write gradients: later kernels must wait for it.
void stage::forget_sums() {
  if (begun_ > 0) machine_->join_beside();
  begun_ = 0;
}

// Padding included: products add to it.
void stage::clear_gradients() {
  machine_->zero(gradients_.get(), gradient_values_ * sizeof(float));
  if (tied_head_) machine_->zero(tied_head_.get(), tied_head_values_ * sizeof(float));
}

// Everything that is constant over the parameters is computed here in 64 bits and rounded once.
buffer<double> stage::update(double scale) {
  TROUPE_INVARIANT(begun_ == 0, "weights are updated when no sum of gradients is under way");
  if (tied_head_) {
    machine_->add(gradients_.get() + own_, tied_head_.get(), tied_);
    machine_->zero(tied_head_.get(), tied_head_values_ * sizeof(float));
  }
  ++steps;
  const auto n = static_cast<double>(steps);
  const double correction1 = 1 - std::pow(spec_.beta1, n),
               correction2 = 1 - std::pow(spec_.beta2, n);
  const auto f = [](double v) { return static_cast<float>(v); };
  const adamw_numbers how{.scale = f(scale),
                          .beta1 = f(spec_.beta1),
                          .beta2 = f(spec_.beta2),
                          .keep1 = f(1 - spec_.beta1),
                          .keep2 = f(1 - spec_.beta2),
                          .epsilon = f(spec_.epsilon),
                          .rate = f(spec_.learning_rate / correction1),
                          .correct = f(1 / correction2),
                          .shrink = f(1 - spec_.learning_rate * spec_.weight_decay)};
  auto norm = copied_.take<double>(1);
  machine_->adamw(runs_.get(), run_count_, weights_.get(), first_moments_.get(),
                  second_moments_.get(), gradients_.get(), narrow_.get(), how, norms_.get(),
                  norm.get());
  return norm;
}

}  // namespace troupe::gpu::cuda
