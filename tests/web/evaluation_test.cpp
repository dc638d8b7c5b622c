#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "web/troupe_server.hpp"

using namespace troupe::test;
using nlohmann::json;

// The requests that lm-evaluation-harness's `local-completions` makes for loglikelihood, and what
// it computes of the answers.

namespace {

struct likelihood {
  double log_probability = 0;
  bool greedy = true;
};

/// Its rules: of each choice, by index, the tokens after the context and before the one that was
/// generated; greedy if each is as probable as the most probable one.
std::vector<likelihood> likelihoods(const json& answer, const std::vector<std::size_t>& contexts,
                                    std::size_t generated) {
  auto choices = answer.at("choices").get<std::vector<json>>();
  std::ranges::sort(choices, {}, [](const json& c) { return c.at("index").get<int>(); });
  REQUIRE(choices.size() == contexts.size());
  std::vector<likelihood> all;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto& l = choices[i].at("logprobs");
    const auto& values = l.at("token_logprobs");
    CHECK(values.size() == l.at("tokens").size());
    CHECK(values.size() == l.at("top_logprobs").size());
    likelihood one;
    for (auto at = contexts[i]; at + generated < values.size(); ++at) {
      const auto value = values[at].get<double>();
      one.log_probability += value;
      double best = -1e300;
      for (const auto& [token, other] : l.at("top_logprobs")[at].items())
        best = std::max(best, other.get<double>());
      one.greedy &= value == best;
    }
    all.push_back(one);
  }
  return all;
}

std::vector<int> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

/// One token at a time: the token is forced by its bias, and its log probability is the model's.
double forced(const server& s, const std::vector<int>& tokens, std::size_t context) {
  double sum = 0;
  for (auto at = context; at < tokens.size(); ++at) {
    const auto a = s.generate({{"prompt", std::vector<int>{tokens.begin(), tokens.begin() + at}},
                               {"max_tokens", 1},
                               {"temperature", 0},
                               {"logprobs", 0},
                               {"logit_bias", {{std::to_string(tokens[at]), 100}}}});
    REQUIRE(a.status == 200);
    sum += a.document()["choices"][0]["logprobs"]["token_logprobs"][0].get<double>();
  }
  return sum;
}

}  // namespace

TEST_CASE("an evaluation's requests for log likelihoods are answered by its rules") {
  const server s;
  const std::vector<std::string> texts{"The quick brown fox", "One two three, four",
                                       "A much longer context, of more than one page of the cache, "
                                       "which is divided into chunks, and its continuation"};
  const std::vector<std::size_t> contexts{3, 14, 90};
  json as_tokens = json::array();
  for (const auto& t : texts) as_tokens.push_back(bytes_of(t));
  for (const std::size_t generated : {1, 0})
    for (const auto& prompts : {json(texts), as_tokens}) {
      json body{{"prompt", prompts}, {"temperature", 0}, {"max_tokens", generated},
                {"logprobs", 1},     {"seed", 1234},     {"echo", true}};
      const auto whole = s.generate(body);
      REQUIRE(whole.status == 200);
      const auto all = likelihoods(whole.document(), contexts, generated);
      for (std::size_t i = 0; i < texts.size(); ++i) {
        CHECK(all[i].log_probability ==
              Approx(forced(s, bytes_of(texts[i]), contexts[i])).epsilon(1e-12));
        // Alone it is the same, bit for bit.
        body["prompt"] = prompts[i];
        const auto alone = s.generate(body);
        REQUIRE(alone.status == 200);
        CHECK(likelihoods(alone.document(), {contexts[i]}, generated)[0].log_probability ==
              all[i].log_probability);
      }
    }
}

TEST_CASE("what a model writes by itself is greedy, and another continuation is not") {
  const server s;
  const std::string context = "The ";
  const auto written = s.generate({{"prompt", context},
                                   {"max_tokens", 12},
                                   {"temperature", 0},
                                   {"return_token_ids", true},
                                   {"ignore_eos", true}});
  REQUIRE(written.status == 200);
  auto tokens = bytes_of(context);
  const auto answer = written.document();
  for (const auto& t : answer["choices"][0]["token_ids"]) tokens.push_back(t);
  const auto greedy = [&] {
    const auto a = s.generate({{"prompt", tokens},
                               {"temperature", 0},
                               {"max_tokens", 1},
                               {"logprobs", 1},
                               {"echo", true}});
    REQUIRE(a.status == 200);
    return likelihoods(a.document(), {context.size()}, 1)[0].greedy;
  };
  CHECK(greedy());
  tokens[8] = tokens[8] == 'z' ? 'q' : 'z';
  CHECK_FALSE(greedy());
}
