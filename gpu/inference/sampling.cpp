#include "gpu/inference/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpu/model/finite.hpp"
#include "messages/base/random.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

struct candidate {
  float logit = 0;
  std::uint32_t token = 0;
};

bool more_probable(const candidate& a, const candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// NaN compares false with everything and would break the order of a sort; as minus infinity it is
// the least probable.
float comparable(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}

// The whole vocabulary is sorted only if top_k asks for all: the cost is that of the kept
// candidates.
std::vector<candidate> best_first(std::span<const float> logits, std::uint32_t top_k) {
  std::vector<candidate> all(logits.size());
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = {comparable(logits[i]), i};
  const auto kept = top_k == 0 ? all.size() : std::min<std::size_t>(top_k, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(),
                    more_probable);
  all.resize(kept);
  return all;
}

/// One number in [0, 1) for each seed and position: a sequence that another decoder continues, or
/// that is computed in other company, draws the same numbers.
double draw(std::uint64_t seed, std::uint64_t position) {
  random_source own{seed ^ (position + 0x9e3779b97f4a7c15ull) * 0xd1342543de82ef95ull};
  return own.uniform();
}

// Temperature, then min_p, then top_p, each on the candidates that the one before it has left.
// Weights are relative to the largest logit, so that no exponential overflows. One random number is
// compared with the running sum of the kept weights; the last candidate takes what rounding leaves
// over. Everything is in the candidates' order, so that the same logits, seed and position give the
// same token on every host.
std::uint32_t choose(std::span<const float> logits, const sampling& how, std::uint64_t position) {
  const auto all = best_first(logits, how.top_k);
  std::vector<double> weights;
  double sum = 0;
  for (const auto& c : all) {
    const double below = static_cast<double>(c.logit) - static_cast<double>(all[0].logit);
    const double weight = std::exp(below / how.temperature);
    if (weight < how.min_p) break;  // the first has 1
    weights.push_back(weight);
    sum += weight;
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

bool changes_logits(const sampling& how) {
  return how.depends_on_completion() || !how.bias.empty();
}

/// A token that has been there is less probable, by a factor: of what the logit is above 0, or of
/// what it is below.
void penalize_repetition(std::vector<float>& all, double penalty,
                         std::span<const std::uint32_t> completion,
                         std::span<const std::uint32_t> prompt) {
  std::vector<bool> was(all.size());
  for (const auto& tokens : {completion, prompt})
    for (const auto t : tokens)
      if (t < was.size()) was[t] = true;
  for (std::size_t t = 0; t < all.size(); ++t)
    if (was[t]) all[t] = static_cast<float>(all[t] > 0 ? all[t] / penalty : all[t] * penalty);
}

// The penalty of repetitions first, as in vLLM. Then OpenAI's: presence once for a token that is in
// the completion, frequency for each time; the prompt does not count. Then the biases.
std::vector<float> changed(std::span<const float> logits, const sampling& how,
                           std::span<const std::uint32_t> completion,
                           std::span<const std::uint32_t> prompt) {
  std::vector<float> all{logits.begin(), logits.end()};
  if (how.penalizes_repetition())
    penalize_repetition(all, *how.repetition_penalty, completion, prompt);
  std::vector<std::uint32_t> counts(all.size());
  for (const auto t : completion)
    if (t < counts.size()) ++counts[t];
  for (std::size_t t = 0; t < all.size(); ++t)
    if (counts[t] > 0)
      all[t] -= static_cast<float>(how.presence_penalty + how.frequency_penalty * counts[t]);
  for (const auto& b : how.bias)
    if (b.token < all.size()) all[b.token] += static_cast<float>(b.bias);
  return all;
}

/// The logarithm of the sum of all tokens' exponentials relative to the largest logit.
double log_sum(std::span<const float> logits, double largest) {
  double sum = 0;
  for (const float l : logits) sum += std::exp(comparable(l) - largest);
  return std::log(sum);
}

std::uint32_t most_probable(std::span<const float> logits) {
  std::uint32_t best = 0;
  for (std::uint32_t i = 1; i < logits.size(); ++i)
    if (comparable(logits[i]) > comparable(logits[best])) best = i;
  return best;
}

std::uint32_t token_by(std::span<const float> logits, const sampling& how, std::uint64_t position) {
  const auto best = most_probable(logits);
  // Without a finite logit there is nothing to choose by.
  const bool greedy = how.temperature == 0 || !std::isfinite(comparable(logits[best]));
  return greedy ? best : choose(logits, how, position);
}

}  // namespace

expected<void> check_logits(std::span<const float> logits, std::uint64_t position) {
  const auto token = first_not_finite(logits);
  if (!token) return {};
  return refuse(reason::kind::infeasible,
                "position {}: the model's logit of token {} is {}, expected finite numbers",
                position, *token, logits[*token]);
}

double log_probability_of(std::span<const float> logits, std::uint32_t token) {
  const double largest = comparable(logits[most_probable(logits)]);
  return comparable(logits[token]) - largest - log_sum(logits, largest);
}

// The log probability is the model's own, without penalties, biases and temperature.
weighed_token sample(std::span<const float> logits, const sampling& how, std::uint64_t position,
                     std::span<const std::uint32_t> completion,
                     std::span<const std::uint32_t> prompt) {
  const auto token = changes_logits(how)
                         ? token_by(changed(logits, how, completion, prompt), how, position)
                         : token_by(logits, how, position);
  return {token, log_probability_of(logits, token)};
}

sampling rule_of(const completion_request& r, std::size_t known) {
  auto how = r.how;
  if (known < r.min_tokens.value_or(0))
    for (const auto t : r.last_tokens)
      how.bias.push_back({t, -std::numeric_limits<double>::infinity()});
  return how;
}

std::vector<std::uint32_t> prompt_for_penalty(const sampling& how,
                                              std::span<const std::uint32_t> prompt) {
  if (!how.penalizes_repetition()) return {};
  std::vector<std::uint32_t> all{prompt.begin(), prompt.end()};
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<weighed_token> top_tokens(std::span<const float> logits, std::uint32_t n) {
  std::vector<weighed_token> top;
  if (n == 0 || logits.empty()) return top;
  const auto best = best_first(logits, n);
  const double largest = best.front().logit;
  const double sum = log_sum(logits, largest);
  for (const auto& c : best) top.push_back({c.token, c.logit - largest - sum});
  return top;
}

}  // namespace troupe::gpu
