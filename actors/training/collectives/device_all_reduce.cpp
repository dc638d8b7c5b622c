#include "actors/training/collectives/device_all_reduce.hpp"

#include "messages/base/invariant.hpp"

namespace troupe::actors {

// The roles follow from the model's tied head: the last stage sends its gradient of the embedding,
// and the first one adds it to its own. A stage that is both has no exchange.
void device_all_reduce::begin(const stage_setup& s) {
  pipeline_ = s.name.pipeline;
  last_stage_ = s.stages - 1;
  sends_tied_ = tied_to_another(s) && s.name.stage > 0;
  adds_tied_ = tied_to_another(s) && s.name.stage == 0;
  received_tied_.reset();
  started_ = summed_ = false;
}

// The last stage waits for the sum only once its own gradient is on its way: before that nothing
// can be lost.
std::vector<gradient_all_reduce::missing_tensor> device_all_reduce::missing() const {
  if (received_tied_) return {};
  if (adds_tied_) return {{tensor::kind::tied_partial, pipeline_, last_stage_}};
  if (sends_tied_ && summed_) return {{tensor::kind::tied_sum, pipeline_, 0}};
  return {};
}

std::optional<payload> device_all_reduce::start() {
  TROUPE_INVARIANT(!started_, "devices sum their gradients once in an iteration");
  TROUPE_INVARIANT(!adds_tied_ || received_tied_,
                   "the first stage adds the tied gradient after it has arrived");
  started_ = true;
  if (!adds_tied_) return {};
  return std::move(*received_tied_);
}

std::vector<gradient_all_reduce::outgoing> device_all_reduce::finish_sum(
    std::optional<payload> tied) {
  // The device has put the tied embedding's gradient (last stage) or its sum (first stage) aside
  // for the other end of the pipeline.
  TROUPE_INVARIANT(started_ && !summed_, "a sum of devices ends once, after it has begun");
  summed_ = true;
  if (!(sends_tied_ || adds_tied_) || !tied) return {};
  const auto bytes = tied->bytes().size();
  const auto what = sends_tied_ ? tensor::kind::tied_partial : tensor::kind::tied_sum;
  return {{what, pipeline_, sends_tied_ ? 0 : last_stage_, std::move(*tied), bytes}};
}

}  // namespace troupe::actors
