#include "gpu/device/simulated_values.hpp"

#include <utility>

#include "gpu/device/simulated_tensor.hpp"

namespace troupe::gpu {

namespace {

constexpr std::uint64_t n(simulated_kind k) {
  return static_cast<std::uint64_t>(k);
}

/// A tensor whose digest is not here differs from every one that is.
std::uint64_t value_of(const payload& p) {
  return digest_in(p).value_or(0);
}

}  // namespace

simulated_values::simulated_values(const place& p)
    : place_{p},
      state_{hash_of({n(simulated_kind::initial), p.seed, p.stage, p.first_iteration})} {}

void simulated_values::set_state(std::uint64_t state) {
  state_ = state;
  inputs_.clear();
  gradients_.reset();
  own_sums_.reset();
  tied_sums_.reset();
}

void simulated_values::add_data(operations::forward& o, const place& p, std::uint64_t iteration) {
  const auto number = p.first_microbatch + o.microbatch;
  if (p.stage == 0 && !digest_in(o.input))
    o.input = simulated_tensor(hash_of({n(simulated_kind::data), p.seed, iteration, number}));
  if (p.stage + 1 == p.stages && !digest_in(o.targets)) o.targets = simulated_tensor(number);
}

operations::forward::result simulated_values::after(const operations::forward& asked,
                                                    std::uint64_t iteration) {
  auto o = asked;
  add_data(o, place_, iteration);
  const auto in = value_of(o.input);
  inputs_[o.microbatch] = {in, value_of(o.targets)};
  operations::forward::result r;
  if (!last())
    r.activation = simulated_tensor(hash_of({n(simulated_kind::activation), state_, in}));
  return r;
}

operations::backward::result simulated_values::after(const operations::backward& o,
                                                     std::uint64_t iteration) {
  const auto at = inputs_.find(o.microbatch);
  const auto [in, number] = at == inputs_.end() ? held{} : at->second;
  if (at != inputs_.end()) inputs_.erase(at);
  const auto gradient = last() ? hash_of({n(simulated_kind::loss), state_, in, iteration, number})
                               : value_of(o.gradient);
  const auto more = hash_of({n(simulated_kind::contribution), state_, in, gradient});
  gradients_ = gradients_ ? sum_of_digests(*gradients_, more) : more;
  operations::backward::result r;
  if (!first())
    r.gradient = simulated_tensor(hash_of({n(simulated_kind::gradient), state_, gradient}));
  return r;
}

operations::reset::result simulated_values::after(const operations::reset&, std::uint64_t) {
  inputs_.clear();
  gradients_.reset();
  return {};
}

own_and_tied simulated_values::after(const operations::gradients& o, std::uint64_t) {
  const auto own = gradients_.value_or(0);
  if (o.take) gradients_.reset();
  if (!place_.tied) return {simulated_tensor(own), {}};
  return {simulated_tensor(own), simulated_tensor(hash_of({n(simulated_kind::tied), own}))};
}

// Without a digest it is what the device has: from norms, or because the stage shares its
// parameters with nobody.
void simulated_values::take(const own_and_tied& sums) {
  if (const auto own = digest_in(sums.own)) own_sums_ = own;
  if (const auto tied = digest_in(sums.tied)) tied_sums_ = tied;
}

operations::norms::result simulated_values::after(const operations::norms& o, std::uint64_t) {
  take(o.sums);
  return {};
}

operations::update::result simulated_values::after(const operations::update& o,
                                                   std::uint64_t iteration) {
  take(o.sums);
  auto total = own_sums_ ? *own_sums_ : gradients_.value_or(0);
  if (tied_sums_) total = hash_of({n(simulated_kind::joined), total, *tied_sums_});
  state_ = hash_of({n(simulated_kind::updated), state_, total, iteration});
  own_sums_.reset();
  tied_sums_.reset();
  gradients_.reset();
  return {};
}

}  // namespace troupe::gpu
