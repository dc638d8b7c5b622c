#include <catch2/catch.hpp>

#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/files.hpp"
#include "harness/source_dir.hpp"
#include "text/base/utf8_stream.hpp"
#include "text/small_tokenizers.hpp"
#include "text/tokens/text_steps.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using nlohmann::json;

namespace {

/// The results that tokenizers_recorded.mjs wrote.
json recorded() {
  std::ifstream in{std::string{source_dir()} + "/tests/text/tokens/tokenizers_recorded.json"};
  return json::parse(in);
}

/// The text as clients see it: bytes that are not UTF-8 are replaced.
std::string as_seen(const tokenizer& t, const token_list& tokens) {
  utf8_stream utf8;
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) text += utf8.add(t.text_of(tokens[i], i == 0));
  return text + utf8.end();
}

}  // namespace

TEST_CASE("added tokens pass through the decoder as in Hugging Face's tokenizers") {
  const auto all = recorded();
  int cases = 0;
  for (const auto& one : all.at("decoded")) {
    const auto t = loaded(tokenizer_in({{"tokenizer.json", one.at("tokenizer").dump()}}));
    REQUIRE(t);
    for (const auto& c : one.at("cases")) {
      const auto tokens = c[0].get<token_list>();
      INFO(one.at("name") << ": " << c[0].dump());
      CHECK(as_seen(*t, tokens) == c[1].get<std::string>());
      ++cases;
    }
  }
  CHECK(cases > 2000);
}

TEST_CASE("words are split as in Hugging Face's tokenizers, whatever the white space") {
  const auto all = recorded();
  for (const auto& one : all.at("words")) {
    const auto& pattern = all.at("patterns").at(one[0].get<std::size_t>());
    const json step{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    std::vector<std::string> words;
    loaded(pretokenizer::read(step))
        .apply(one[1].get<std::string>(), true,
               [&](std::string_view word) { words.emplace_back(word); });
    INFO(pattern << ": " << one[1].dump(-1, ' ', true));
    CHECK(words == one[2].get<std::vector<std::string>>());
  }
}
