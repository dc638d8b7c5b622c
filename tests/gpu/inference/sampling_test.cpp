#include "gpu/inference/sampling.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

using namespace troupe::gpu;

namespace {

const std::vector<float> logits{0.5f, 2.0f, -1.0f, 2.0f, 1.0f, 0.0f, -3.0f, 1.5f};
constexpr int draws = 20'000;

std::map<std::uint32_t, int> counts(const sampling& how) {
  std::map<std::uint32_t, int> seen;
  for (int position = 0; position < draws; ++position)
    ++seen[sample(logits, how, static_cast<std::uint64_t>(position)).token];
  return seen;
}

/// Probabilities of these tokens alone, at a temperature.
std::map<std::uint32_t, double> softmax(const std::vector<std::uint32_t>& tokens,
                                        double temperature) {
  std::map<std::uint32_t, double> p;
  double sum = 0;
  for (const auto t : tokens) sum += p[t] = std::exp(static_cast<double>(logits[t]) / temperature);
  for (auto& [t, x] : p) x /= sum;
  return p;
}

/// The statistic of Pearson's test.
double chi_squared(const std::map<std::uint32_t, int>& seen,
                   const std::map<std::uint32_t, double>& probabilities) {
  double sum = 0;
  int all = 0;
  for (const auto& [token, p] : probabilities) {
    const auto found = seen.find(token);
    const double n = found == seen.end() ? 0 : found->second, e = draws * p;
    sum += (n - e) * (n - e) / e;
    all += static_cast<int>(n);
  }
  CHECK(all == draws);  // no other token was drawn
  return sum;
}

}  // namespace

// Thresholds: chi-squared with one degree of freedom less than tokens, p = 0.001.

TEST_CASE("20,000 samples follow the softmax distribution at each temperature") {
  const std::vector<std::uint32_t> all{0, 1, 2, 3, 4, 5, 6, 7};
  for (const double temperature : {0.7, 1.0, 1.8}) {
    INFO("temperature " << temperature);
    CHECK(chi_squared(counts({.temperature = temperature, .seed = 3}), softmax(all, temperature)) <
          24.3);
  }
  // The threshold notices a temperature that is 5 % off.
  CHECK(chi_squared(counts({.temperature = 1.05, .seed = 3}), softmax(all, 1)) > 24.3);
}

TEST_CASE("top_k draws among so many of the most probable, equal ones by their number") {
  CHECK(chi_squared(counts({.temperature = 1, .top_k = 4, .seed = 4}), softmax({1, 3, 7, 4}, 1)) <
        16.3);
  CHECK(counts({.temperature = 1, .top_k = 1, .seed = 4}) ==
        std::map<std::uint32_t, int>{{1, draws}});
}

TEST_CASE("top_p draws among the most probable that together reach it") {
  // Tokens 1 and 3 have 0.295 each, 7 has 0.179: for 0.7 three are needed, for 0.55 two.
  CHECK(chi_squared(counts({.temperature = 1, .top_p = 0.7, .seed = 5}), softmax({1, 3, 7}, 1)) <
        13.9);
  CHECK(chi_squared(counts({.temperature = 1, .top_p = 0.55, .seed = 5}), softmax({1, 3}, 1)) <
        10.9);
  CHECK(counts({.temperature = 1, .top_p = 0, .seed = 5}) ==
        std::map<std::uint32_t, int>{{1, draws}});
}

TEST_CASE("a choice depends on the logits, the seed and the position only") {
  const sampling how{.temperature = 1, .seed = 8};
  int other_seed = 0, other_position = 0;
  for (std::uint64_t position = 0; position < 200; ++position) {
    const auto chosen = sample(logits, how, position).token;
    CHECK(sample(logits, how, position).token == chosen);
    other_seed += sample(logits, {.temperature = 1, .seed = 9}, position).token != chosen;
    other_position += sample(logits, how, position + 1).token != chosen;
  }
  CHECK(other_seed > 100);
  CHECK(other_position > 100);
}

TEST_CASE("at temperature 0 the most probable token is chosen, the smaller of two") {
  const auto chosen = sample(logits, {}, 17);
  CHECK(chosen.token == 1);
  CHECK(chosen.log_probability == Approx(std::log(softmax({0, 1, 2, 3, 4, 5, 6, 7}, 1).at(1))));
}

TEST_CASE("log probabilities are the model's, whatever restricts the choice") {
  const auto chosen = sample(logits, {.temperature = 0.01, .top_k = 2, .seed = 1}, 4);
  CHECK(chosen.log_probability ==
        Approx(std::log(softmax({0, 1, 2, 3, 4, 5, 6, 7}, 1).at(chosen.token))));
}

TEST_CASE("NaN is never chosen while there is a number") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(sample(std::vector<float>{nan, -4, nan, -3}, {}, 0).token == 3);
  for (std::uint64_t position = 0; position < 100; ++position)
    CHECK(sample(std::vector<float>{nan, -4}, {.temperature = 1, .seed = 2}, position).token == 1);
  CHECK(sample(std::vector<float>{nan, nan}, {.temperature = 1, .seed = 2}, 0).token == 0);
}

TEST_CASE("min_p draws among tokens with that share of the most probable one's probability") {
  // 1.5 has exp(-0.5) = 0.61 of 2's probability, 1 has 0.37.
  CHECK(counts({1, 1, 0, 7, 0.5}).size() == 3);
  CHECK(counts({1, 1, 0, 7, 0.3}).size() == 4);
  CHECK(counts({1, 1, 0, 7, 1}).size() == 2);
}

TEST_CASE("penalties and biases move the choice, and leave the log probability") {
  sampling how;
  how.bias = {{6, 100}, {9'999, 100}};
  const auto biased = sample(logits, how, 0);
  CHECK(biased.token == 6);
  CHECK(biased.log_probability ==
        sample(logits, {1, 1, 0, 0, 0, 0, 0, {{6, 100}}}, 0).log_probability);
  CHECK(biased.log_probability < -4);
  how = {};
  how.presence_penalty = 0.6;
  const std::vector<std::uint32_t> once{1, 3}, often{1, 3, 3, 3};
  CHECK(sample(logits, how, 0, once).token == 7);  // 1.5 against 2 - 0.6
  how.presence_penalty = 0;
  how.frequency_penalty = 0.3;
  CHECK(sample(logits, how, 0, once).token == 1);   // 2 - 0.3
  CHECK(sample(logits, how, 0, often).token == 1);  // 3 has 2 - 0.9
  CHECK(sample(logits, how, 0, std::vector<std::uint32_t>{1, 1, 3, 3}).token == 7);
}

TEST_CASE("a penalty of repetitions divides positive logits and multiplies negative ones") {
  const std::vector<float> two{1.0f, 0.9f, -0.5f, -0.6f};
  sampling how{.temperature = 0};
  how.repetition_penalty = 1.2;
  const std::vector<std::uint32_t> none, first{0}, all{0, 1, 2, 3};
  CHECK(sample(two, how, 0, none, none).token == 0);
  CHECK(sample(two, how, 0, first, none).token == 1);  // 1 / 1.2 is below 0.9
  CHECK(sample(two, how, 0, none, first).token == 1);  // the prompt counts, too
  CHECK(sample(two, how, 0, first, first).token == 1);
  CHECK(sample(two, how, 0, all, none).token == 0);
  const std::vector<float> below{-0.5f, -0.55f};
  CHECK(sample(below, how, 0, first, none).token == 1);  // -0.5 times 1.2
  how.repetition_penalty = 0.5;
  CHECK(sample(below, how, 0, std::vector<std::uint32_t>{1}, none).token == 1);
  CHECK(sample(two, how, 0, first, none).log_probability ==
        Approx(log_probability_of(two, 0)));  // the model's own
}

TEST_CASE("before min_tokens none of the last tokens is chosen, whatever its logit and bias") {
  completion_request r;
  r.max_tokens = 9;
  r.min_tokens = 2;
  r.last_tokens = {1, 3};
  r.how.bias = {{1, 100}};
  CHECK(sample(logits, rule_of(r, 0), 0).token == 7);
  CHECK(sample(logits, rule_of(r, 1), 0).token == 7);
  CHECK(sample(logits, rule_of(r, 2), 0).token == 1);
  r.min_tokens.reset();
  CHECK(sample(logits, rule_of(r, 0), 0).token == 1);
}
