#include "actors/training/collectives/norm_exchange.hpp"

#include <cstddef>
#include <cstring>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

norm_exchange::outgoing norm_exchange::begin(std::vector<double> norms) {
  TROUPE_INVARIANT(!norms_ && !added_, "a stage adds its norms once in an iteration");
  norms_ = std::move(norms);
  return advance();
}

// Duplicates come from requests for tensors that were only slow.
norm_exchange::outgoing norm_exchange::receive(const tensor& t, const payload& body) {
  auto& known = t.what == tensor::kind::norm_partial ? behind_ : total_;
  if (known) return {};
  double sum = 0;
  if (body.bytes().size() != sizeof sum) {
    error_ =
        fmt::format("a sum of norms has {} bytes, expected {}", body.bytes().size(), sizeof sum);
    return {};
  }
  std::memcpy(&sum, body.bytes().data(), sizeof sum);
  known = sum;
  return t.what == tensor::kind::norm_partial ? advance() : pass_on();
}

norm_exchange::outgoing norm_exchange::advance() {
  if (!norms_ || added_ || (!is_last() && !behind_)) return {};
  added_ = true;
  double sum = behind_.value_or(0);
  for (const auto n : std::views::reverse(*norms_)) sum += n;
  if (!is_first()) return {to(stage_ - 1, tensor::kind::norm_partial, sum)};
  total_ = sum;
  return pass_on();
}

norm_exchange::outgoing norm_exchange::pass_on() const {
  return is_last() ? outgoing{} : outgoing{to(stage_ + 1, tensor::kind::norm_sum, *total_)};
}

std::vector<gradient_all_reduce::missing_tensor> norm_exchange::missing() const {
  if (!norms_ || total_) return {};
  if (!added_) return {{tensor::kind::norm_partial, pipeline_, stage_ + 1}};
  return {{tensor::kind::norm_sum, pipeline_, stage_ - 1}};
}

gradient_all_reduce::outgoing norm_exchange::to(std::uint32_t stage, tensor::kind what,
                                                double sum) const {
  TROUPE_INVARIANT(stage + 1 == stage_ || stage == stage_ + 1, "norms go to a neighbour");
  std::vector<std::byte> body(sizeof sum);
  std::memcpy(body.data(), &sum, sizeof sum);
  return {what, pipeline_, stage, payload{std::move(body)}, sizeof sum};
}

}  // namespace troupe::actors
