#include "actors/training/stage/gradient_exchange.hpp"

#include "messages/base/invariant.hpp"

namespace troupe::actors {

gradient_exchange::sums gradient_exchange::sums_of(const stage_setup& s) {
  return {gradient_all_reduce{s}, device_all_reduce{s}, update_commit{s}};
}

void gradient_exchange::begin(const stage_setup& s, std::uint64_t iteration) {
  iteration_ = iteration;
  sums_ = {sums_of(s), sums_of(s)};
}

void gradient_exchange::end_iteration(const stage_setup& s) {
  if (s.view) last_tied_sum_ = now().by_hosts.tied_sum();
  now() = sums_of(s);  // for the iteration after the next
  ++iteration_;
}

std::optional<payload> gradient_exchange::tied_sum(std::uint64_t iteration) const {
  if (iteration == iteration_) return now().by_hosts.tied_sum();
  return iteration + 1 == iteration_ ? last_tied_sum_ : std::nullopt;
}

gradient_exchange::outgoing gradient_exchange::receive(const tensor& t, const payload& body) {
  TROUPE_INVARIANT(t.iteration == iteration_ || t.iteration == iteration_ + 1,
                   "gradients are of this iteration or the next");
  auto& s = sums_[t.iteration % 2];
  if (t.what == tensor::kind::ready || t.what == tensor::kind::commit)
    return s.commit.receive(t, body);
  if (!joined_) return s.by_hosts.receive(t, body);
  s.by_devices.receive(body);
  return {};
}

// Devices that all-reduce keep their gradients: there is nothing to add then.
gradient_exchange::outgoing gradient_exchange::add(stage_gradients g) {
  TROUPE_INVARIANT(!joined_, "hosts add no gradients that devices add");
  return now().by_hosts.begin(std::move(g.own), g.own_bytes, std::move(g.tied), g.tied_bytes);
}

std::optional<gpu::operations::sum> gradient_exchange::take_device_sum() {
  if (!joined_ || !now().by_devices.can_start()) return {};
  return gpu::operations::sum{now().by_devices.start()};
}

gpu::own_and_tied gradient_exchange::result_for_norms() {
  TROUPE_INVARIANT(is_ready(), "a norm is of the sums over all replicas");
  if (joined_) return {};
  auto [own, tied] = now().by_hosts.result_but_late();
  return {std::move(own), std::move(tied)};
}

// The devices keep the sums of their own gradients.
gpu::own_and_tied gradient_exchange::result() {
  TROUPE_INVARIANT(complete(), "a sum is taken when the gradients of all replicas are there");
  if (joined_) return {payload{}, now().by_devices.result()};
  auto [own, tied] = now().by_hosts.result();
  return {std::move(own), std::move(tied)};
}

}  // namespace troupe::actors
