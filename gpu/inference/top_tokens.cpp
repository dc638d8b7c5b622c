#include "gpu/inference/top_tokens.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace troupe::gpu {

namespace {

double ranked(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<double>::infinity() : logit;
}

/// The logarithm of the sum of all tokens' exponentials relative to the largest logit.
double log_sum(std::span<const float> logits, double largest) {
  double sum = 0;
  for (const float l : logits) sum += std::exp(ranked(l) - largest);
  return std::log(sum);
}

}  // namespace

double log_probability_of(std::span<const float> logits, std::uint32_t token) {
  double largest = ranked(logits[0]);
  for (const float l : logits) largest = std::max(largest, ranked(l));
  return ranked(logits[token]) - largest - log_sum(logits, largest);
}

std::vector<weighed_token> top_tokens(std::span<const float> logits, std::uint32_t n) {
  std::vector<weighed_token> top;
  if (n == 0 || logits.empty()) return top;
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto kept = std::min<std::size_t>(n, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      const auto x = ranked(logits[a]), y = ranked(logits[b]);
                      return x > y || (x == y && a < b);
                    });
  const auto max = ranked(logits[order[0]]);
  const auto sum = log_sum(logits, max);
  for (std::size_t i = 0; i < kept; ++i)
    top.push_back({order[i], ranked(logits[order[i]]) - max - sum});
  return top;
}

}  // namespace troupe::gpu
