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

}  // namespace

std::vector<top_token> top_tokens(std::span<const float> logits, std::uint32_t n) {
  std::vector<top_token> top;
  if (n == 0 || logits.empty()) return top;
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto kept = std::min<std::size_t>(n, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      const auto x = ranked(logits[a]), y = ranked(logits[b]);
                      return x > y || (x == y && a < b);
                    });
  const auto most = ranked(logits[order[0]]);
  double sum = 0;
  for (const float l : logits) sum += std::exp(ranked(l) - most);
  for (std::size_t i = 0; i < kept; ++i)
    top.push_back({order[i], ranked(logits[order[i]]) - most - std::log(sum)});
  return top;
}

}  // namespace troupe::gpu
