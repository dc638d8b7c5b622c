#include "actors/training/stage/received_tensors.hpp"

#include <utility>

#include "actors/training/stage/evaluation_share.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

received_tensors::box received_tensors::empty_box() const {
  box b;
  b.activation.assign(setup_->microbatches + held_out_, {});
  b.gradient.assign(setup_->microbatches, {});
  return b;
}

void received_tensors::begin(const stage_setup& s, std::uint64_t iteration) {
  setup_ = &s;
  held_out_ = evaluations_of(s).microbatches;
  iteration_ = iteration;
  boxes_ = {empty_box(), empty_box()};
}

void received_tensors::end_iteration() {
  evaluating_ = false;
  now() = empty_box();  // for the iteration after the next
  ++iteration_;
}

bool received_tensors::is_duplicate(const tensor& t) const {
  const auto& b = boxes_[t.iteration % 2];
  const auto has = [&](const auto& all) { return t.microbatch < all.size() && all[t.microbatch]; };
  return (t.what == tensor::kind::activation && has(b.activation)) ||
         (t.what == tensor::kind::gradient && has(b.gradient));
}

// The micro-batch is another host's word, and may be beyond the end.
void received_tensors::add(const tensor& t, const payload& body) {
  TROUPE_INVARIANT(accepts(t.iteration), "tensors are kept of this iteration and the next");
  auto& b = boxes_[t.iteration % 2];
  const bool activation = t.what == tensor::kind::activation;
  auto& all = activation ? b.activation : b.gradient;
  if (t.microbatch < all.size()) all[t.microbatch] = body;
  if (activation) input_bytes_ = t.bytes;
}

void received_tensors::add_transfer(const tensor& t, double training_time_s) {
  TROUPE_INVARIANT(accepts(t.iteration), "a transfer is measured of this iteration or the next");
  TROUPE_INVARIANT(setup_, "tensors arrive after the stage's setup");
  boxes_[t.iteration % 2].hops.received(t, training_time_s, setup_->trace);
}

bool received_tensors::has_input(const stage_step& s) const {
  TROUPE_INVARIANT(s.microbatch < now().activation.size(),
                   "a step is of a micro-batch of the iteration");
  switch (s.what) {
    case stage_step::kind::forward:
      return first() || now().activation[s.microbatch].has_value();
    case stage_step::kind::recompute:
      return true;
    case stage_step::kind::backward:
      break;
  }
  return last() || now().gradient[s.microbatch].has_value();
}

// The moved-from payload stays: it marks a repeated tensor as a duplicate.
payload received_tensors::take_input(const stage_step& s) {
  TROUPE_INVARIANT(has_input(s), "a step takes its input after that has arrived");
  if (s.what == stage_step::kind::forward)
    return first() ? payload{} : std::move(*now().activation[s.microbatch]);
  return last() ? payload{} : std::move(*now().gradient[s.microbatch]);
}

// All of the iteration's, and not only the one that the next step waits for: tensors are often lost
// together, and one request costs as much as several.
std::vector<std::uint32_t> received_tensors::missing(tensor::kind what) const {
  std::vector<std::uint32_t> all;
  const bool activation = what == tensor::kind::activation;
  if (activation ? first() : last() || evaluating_) return all;
  const auto& received = activation ? now().activation : now().gradient;
  const auto begin = evaluating_ ? setup_->microbatches : 0;
  const auto end = evaluating_ ? received.size() : std::size_t{setup_->microbatches};
  for (auto m = begin; m < end; ++m)
    if (!received[m]) all.push_back(m);
  return all;
}

}  // namespace troupe::actors
