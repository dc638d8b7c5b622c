#include <catch2/catch.hpp>

#include "text/small_tokenizers.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

std::string shown_with(const std::string& added, const std::string& text,
                       const std::vector<text_range>& literal = {},
                       const std::string& members = "") {
  const auto t = loaded(tokenizer_in({{"tokenizer.json", bytes_tokenizer(added, members)}}));
  return shown_tokens(t->encode(text, literal));
}

const std::string with_nfc = R"(, "normalizer": {"type": "NFC"})";
const std::string with_marks = R"(, "normalizer": {"type": "Replace", "pattern": {"String": "-"},)"
                               R"( "content": "=="})";

}  // namespace

TEST_CASE("an added token is found in first, middle and last place, special or not") {
  for (const auto* flags : {"", "s", "n", "sn"}) {
    const auto one = added_json(300, "<x>", flags);
    CHECK(shown_with(one, "<x>ab<x>cd<x>") == "{300}ab{300}cd{300}");
    CHECK(shown_with(one, "<x>") == "{300}");
    CHECK(shown_with(one, "<<x>x>") == "<{300}x>");
    CHECK(shown_with(one, " <x> ") == " {300} ");
  }
}

TEST_CASE("an added token takes the white space beside it, of any script, as its flags say") {
  const std::string text = "a \t<x>\u3000\u00a0b";
  CHECK(shown_with(added_json(300, "<x>", "l"), text) == "a{300}\u3000\u00a0b");
  CHECK(shown_with(added_json(300, "<x>", "r"), text) == "a \t{300}b");
  CHECK(shown_with(added_json(300, "<x>", "lr"), text) == "a{300}b");
  CHECK(shown_with(added_json(300, "<x>", "lr"), "  <x>  <x> ") == "{300}{300}");
  CHECK(shown_with(added_json(300, "<x>", "lr"), "a\u0085<x>\u200bb") == "a{300}\u200bb");
  // Half a character is no white space.
  CHECK(shown_with(added_json(300, "<x>", "lr"), "\x80<x>\xe3\x80") == "\x80{300}\xe3\x80");
}

TEST_CASE("a token of a single word is found only where no other character of words is") {
  const auto one = added_json(300, "cat", "w");
  CHECK(shown_with(one, "cat") == "{300}");
  CHECK(shown_with(one, "a cat.") == "a {300}.");
  CHECK(shown_with(one, "concat cats _cat cat2 \u00e9cat") == "concat cats _cat cat2 \u00e9cat");
}

TEST_CASE("of added tokens that begin at one place the longest is found") {
  const auto three = added_json(300, "<a", "") + ", " + added_json(301, "<a>", "s") + ", " +
                     added_json(302, "<a><b>", "");
  CHECK(shown_with(three, "<a<a><a><b><a><") == "{300}{301}{302}{301}<");
}

TEST_CASE("normalized tokens are found in what the normalizer makes of a text, others before it") {
  CHECK(shown_with(added_json(300, "a-b", "n"), "xa-bx a==b", {}, with_marks) == "x{300}x {300}");
  CHECK(shown_with(added_json(300, "a-b", ""), "xa-bx a==b", {}, with_marks) == "x{300}x a==b");
  // e and an acute accent, composed to one character, or not.
  CHECK(shown_with(added_json(300, "<\u00e9>", "n"), "<e\u0301>", {}, with_nfc) == "{300}");
  CHECK(shown_with(added_json(300, "<\u00e9>", ""), "<e\u0301>", {}, with_nfc) == "<\u00e9>");
  // The text is split at tokens that are not normalized first, whatever is longer.
  const auto both = added_json(300, "ab<x>", "n") + ", " + added_json(301, "<x>", "");
  CHECK(shown_with(both, "ab<x>") == "ab{301}");
}

TEST_CASE("names of special tokens are text where a part of the text is literal") {
  for (const auto& [flags, members] : {std::pair{"s", ""}, {"sn", ""}, {"sn", with_nfc.c_str()}}) {
    const auto two = added_json(300, "<x>", flags) + ", " + added_json(301, "<t>", "");
    CHECK(shown_with(two, "<x>a<x>b<t><x>", {{3, 11}}, members) == "{300}a<x>b{301}{300}");
    CHECK(shown_with(two, "<x>a", {{0, 1}}, members) == "<x>a");
    CHECK(shown_with(two, "<x>a", {{2, 4}}, members) == "<x>a");
    CHECK(shown_with(two, "<x>a", {{3, 4}}, members) == "{300}a");
    CHECK(shown_with(two, "<x><x><x>", {{0, 3}, {6, 9}}, members) == "<x>{300}<x>");
  }
}

TEST_CASE("literal parts move with what a normalizer replaces, removes and composes") {
  const auto one = added_json(300, "<x>", "sn");
  CHECK(shown_with(one, "--<x>--<x>", {{7, 10}}, with_marks) == "===={300}====<x>");
  CHECK(shown_with(one, "--<x>--<x>", {{0, 7}}, with_marks) == "====<x>===={300}");
  CHECK(shown_with(one, "e\u0301<x>e\u0301<x>", {{9, 12}}, with_nfc) == "\u00e9{300}\u00e9<x>");
  CHECK(shown_with(one, "e\u0301<x>e\u0301<x>", {{0, 9}}, with_nfc) == "\u00e9<x>\u00e9{300}");
  const std::string shorter =
      R"(, "normalizer": {"type": "Sequence", "normalizers": [)"
      R"({"type": "Prepend", "prepend": "_"}, {"type": "Replace", "pattern":)"
      R"( {"Regex": "-+"}, "content": ""}]})";
  CHECK(shown_with(one, "a<x>--_<x>--_<x>", {{0, 4}, {8, 14}}, shorter) == "_a<x>_<x>_<x>");
  CHECK(shown_with(one, "a<x>--_<x>--_<x>", {{0, 4}, {8, 12}}, shorter) == "_a<x>_<x>{300}");
}

TEST_CASE("split_special_tokens makes names of special tokens text, always") {
  const auto two = added_json(300, "<x>", "s") + ", " + added_json(301, "<t>", "");
  const auto t =
      loaded(tokenizer_in({{"tokenizer.json", bytes_tokenizer(two)},
                           {"tokenizer_config.json", R"({"split_special_tokens": true})"}}));
  CHECK(shown_tokens(t->encode("<x><t>")) == "<x>{301}");
}
