#include "text/tokens/text_steps.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "harness/files.hpp"
#include "text/base/characters.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;

namespace {

/// The words of a text, with | between.
std::string words_of(const std::string& steps, const std::string& text, bool begins = true) {
  std::string all;
  loaded(pretokenizer::read(nlohmann::json::parse(steps)))
      .apply(text, begins,
             [&](std::string_view word) { all += (all.empty() ? "" : "|") + std::string{word}; });
  return all;
}

std::string split_words(const std::string& behavior, const std::string& text, bool invert = false) {
  return words_of(R"({"type": "Split", "pattern": {"String": "-"}, "behavior": ")" + behavior +
                      R"(", "invert": )" + (invert ? "true" : "false") + "}",
                  text);
}

std::string metaspace_words(const std::string& members, const std::string& text,
                            bool begins = true) {
  return words_of(R"({"type": "Metaspace", "replacement": "_")" + members + "}", text, begins);
}

}  // namespace

TEST_CASE("a Split keeps, drops or joins what matches, as its behavior says") {
  CHECK(split_words("Isolated", "-a--b-") == "-|a|-|-|b|-");
  CHECK(split_words("Removed", "-a--b-") == "a|b");
  CHECK(split_words("Contiguous", "-a--b-") == "-|a|--|b|-");
  CHECK(split_words("MergedWithPrevious", "-a--b-") == "-|a-|-|b-");
  CHECK(split_words("MergedWithNext", "-a--b-") == "-a|-|-b|-");
  CHECK(split_words("Removed", "-a--b-", true) == "-|-|-|-");
  CHECK(split_words("MergedWithPrevious", "-a--b-", true) == "-a|-|-b|-");
  CHECK(split_words("Isolated", "") == "");
  const auto unknown = pretokenizer::read(nlohmann::json::parse(
      R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Merged"})"));
  REQUIRE_FALSE(unknown);
  CHECK_THAT(unknown.error().text, Contains("pre_tokenizer: Split: 'Merged' is not supported"));
}

TEST_CASE("a Metaspace puts its mark before words as its scheme says, and splits there or not") {
  CHECK(metaspace_words("", "a b  c") == "_a|_b|_|_c");
  CHECK(metaspace_words(R"(, "split": false)", "a b  c") == "_a_b__c");
  CHECK(metaspace_words(R"(, "prepend_scheme": "always")", "a", false) == "_a");
  CHECK(metaspace_words(R"(, "prepend_scheme": "first")", "a b") == "_a|_b");
  CHECK(metaspace_words(R"(, "prepend_scheme": "first")", "a b", false) == "a|_b");
  CHECK(metaspace_words(R"(, "prepend_scheme": "never")", "a b") == "a|_b");
  CHECK(metaspace_words(R"(, "prepend_scheme": "always")", " a") == "_a");
  CHECK(metaspace_words(R"(, "add_prefix_space": true)", "a") == "_a");
  CHECK(metaspace_words(R"(, "add_prefix_space": false)", "a b") == "a|_b");
  CHECK(metaspace_words("", "a\nb\n c") ==
        "_a\nb\n|_c");  // a line's end is like any other character
  const auto unknown = pretokenizer::read(nlohmann::json::parse(
      R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})"));
  REQUIRE_FALSE(unknown);
  CHECK_THAT(unknown.error().text, Contains("prepend_scheme: 'last' is not supported"));
}

TEST_CASE("only the first word of a text is first, whatever was split before") {
  const auto digits = [](const std::string& scheme) {
    return R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "Metaspace",)"
           R"( "replacement": "_", "prepend_scheme": ")" +
           scheme + R"("}]})";
  };
  CHECK(words_of(digits("first"), "1a2") == "_1|a|2");
  CHECK(words_of(digits("always"), "1a2") == "_1|_a|_2");
}

TEST_CASE("a pattern matches words of any length") {
  // More than the stack of PCRE2's compiled code holds.
  const std::string lines(1u << 20, 'x');
  CHECK(
      words_of(R"({"type": "Split", "pattern": {"Regex": "(?:(?!y).)*y"}, "behavior": "Isolated"})",
               lines + "yz") == lines + "y|z");
}

TEST_CASE("characters are composed, whatever is beside them") {
  CHECK(composed("e\u0301a") == "\u00e9a");
  CHECK(composed("\u1112\u1161\u11ab") == "\ud55c");
  CHECK(composed("a\u0323\u0307") == "\u1ea1\u0307");
  CHECK(composed("a\u0307\u0323") == "\u1ea1\u0307");  // marks are put into their order
  CHECK(composed("\xff"
                 "e\u0301\xc3") == "\xff\u00e9\xc3");
  CHECK(composed("") == "");
}

TEST_CASE("characters of words and white space are Unicode's") {
  for (const auto* c : {"a", "\u00e9", "\u4e16", "9", "_", "\u0301", "\u200d", "\u216b"}) {
    CHECK(begins_with_word(c));
    CHECK(ends_with_word(c));
  }
  for (const auto* c : {"", ".", " ", "\u00bd", "\u2028", "\U0001f642", "\xff"}) {
    CHECK_FALSE(begins_with_word(c));
    CHECK_FALSE(ends_with_word(c));
  }
  CHECK(leading_space(" \t\n\u0085\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000x") == 28);
  CHECK(trailing_space("x \t\n\u0085\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000") == 28);
  CHECK(leading_space("\u200b ") == 0);
  CHECK(trailing_space(" \ufeff") == 0);
}
