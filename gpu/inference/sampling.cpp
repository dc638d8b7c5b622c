#include "gpu/inference/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "messages/random.hpp"

namespace troupe::gpu {

namespace {

struct candidate {
  float logit = 0;
  std::uint32_t token = 0;
};

bool more_probable(const candidate& a, const candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

float comparable(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}

std::vector<candidate> best_first(std::span<const float> logits, std::uint32_t top_k) {
  std::vector<candidate> all(logits.size());
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = {comparable(logits[i]), i};
  const auto kept = top_k == 0 ? all.size() : std::min<std::size_t>(top_k, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(),
                    more_probable);
  all.resize(kept);
  return all;
}

/// One number in [0, 1) for each seed and position.
double draw(std::uint64_t seed, std::uint64_t position) {
  random_source own{seed ^ (position + 0x9e3779b97f4a7c15ull) * 0xd1342543de82ef95ull};
  return own.uniform();
}

std::uint32_t choose(std::span<const float> logits, const sampling& how, std::uint64_t position) {
  const auto all = best_first(logits, how.top_k);
  std::vector<double> weights;
  double sum = 0;
  for (const auto& c : all) {
    const double below = static_cast<double>(c.logit) - static_cast<double>(all[0].logit);
    weights.push_back(std::exp(below / how.temperature));
    sum += weights.back();
  }
  std::size_t kept = 0;
  double reached = 0;
  while (kept < weights.size() && (kept == 0 || reached < how.top_p * sum))
    reached += weights[kept++];
  double left = draw(how.seed, position) * reached;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    if (left < weights[i]) return all[i].token;
    left -= weights[i];
  }
  return all[kept - 1].token;
}

}  // namespace

sampled_token sample(std::span<const float> logits, const sampling& how, std::uint64_t position) {
  std::uint32_t best = 0;
  for (std::uint32_t i = 1; i < logits.size(); ++i)
    if (comparable(logits[i]) > comparable(logits[best])) best = i;
  const double most = comparable(logits[best]);
  // Without a finite logit there is nothing to choose by.
  const bool greedy = how.temperature == 0 || !std::isfinite(most);
  const auto token = greedy ? best : choose(logits, how, position);
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(comparable(l)) - most);
  return {token, static_cast<double>(comparable(logits[token])) - most - std::log(sum)};
}

}  // namespace troupe::gpu
