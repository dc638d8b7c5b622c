#include "text/tokens/tokenizer.hpp"
#include "text/tokens/open_tokenizer.hpp"

#include <catch2/catch.hpp>

#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;

namespace {

using token_list = std::vector<std::uint32_t>;

/// A tokenizer.json of these members.
std::unique_ptr<tokenizer> tokenizer_of(const std::string& members) {
  const auto file = temporary("words/tokenizer.json", "{" + members + "}");
  return loaded(open_tokenizer(file.parent_path(), 1000));
}

std::string refusal_of(const std::string& text) {
  const auto file = temporary("words/tokenizer.json", text);
  const auto t = open_tokenizer(file.parent_path(), 1000);
  if (t) return "";
  CHECK_THAT(t.error().text, Contains(file.string()));
  return t.error().text;
}

// Letters 0 to 4, then what the merges make; with bytes for "é", of which the second is missing.
const std::string byte_level =
    R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, )"
    R"("decoder": {"type": "ByteLevel"}, )"
    R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "Ã": 4, "ab": 5,)"
    R"( "abc": 6, "Ġa": 7, "bc": 8}, "merges": ["a b", "ab c", ["Ġ", "a"], "b c"]})";

const std::string spaces =
    R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},)"
    R"( {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]}, )"
    R"("decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String":)"
    R"( "_"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip",)"
    R"( "content": " ", "start": 1, "stop": 0}]}, )"
    R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id":)"
    R"( "<s>"}}, {"Sequence": {"id": "A"}}],)"
    R"( "special_tokens": {"<s>": {"id": "<s>", "ids": [9]}}}, )"
    R"("added_tokens": [{"id": 9, "content": "<s>", "special": true},)"
    R"( {"id": 10, "content": "<tool>", "special": false, "rstrip": true,)"
    R"( "normalized": false}], )"
    R"("model": {"type": "BPE", "unk_token": "?", "fuse_unk": true, "byte_fallback": true,)"
    R"( "vocab": {"?": 0, "a": 1, "b": 2, "_": 3, "_a": 4, "<0xC3>": 5, "<0xA9>": 6, "ab": 7},)"
    R"( "merges": ["_ a", "a b"]})";

}  // namespace

TEST_CASE("bytes are tokens where the vocabulary is 256 and the folder has no tokenizer") {
  const auto folder = temporary("bare/config.json", "{}").parent_path();
  const auto t = loaded(open_tokenizer(folder, 256));
  CHECK(t->encode("A\xFF") == token_list{65, 255});
  CHECK(t->decode(token_list{65, 255, 256}) == "A\xFF");
  CHECK(loaded(open_tokenizer(folder, 257)) == nullptr);
}

TEST_CASE("a byte-level tokenizer.json merges in the order of its merges, inside words") {
  const auto t = tokenizer_of(byte_level);
  CHECK(t->encode("abc") == token_list{6});
  CHECK(t->encode("bcab") == token_list{8, 5});
  CHECK(t->encode("aab abc") == token_list{0, 5, 3, 6});  // "a b" comes before the space's merge
  CHECK(t->encode(" a a") == token_list{7, 7});
  CHECK(t->encode("xaxc\xC3\xA9") == token_list{0, 2, 4});  // what has no token is left out
  CHECK(t->decode(t->encode("ab a bc")) == "ab a bc");
  CHECK(t->size() == 9);
}

TEST_CASE("spaces can be a character of their own, and unknown characters bytes") {
  const auto t = tokenizer_of(spaces);
  CHECK(t->encode("a b") == token_list{4, 3, 2});
  CHECK(t->encode("b") == token_list{3, 2});
  CHECK(t->encode("\xC3\xA9") == token_list{3, 5, 6});
  CHECK(t->encode("xyz") == token_list{3, 0});  // without bytes of their own: one unknown
  CHECK(t->encode_prompt("a") == token_list{9, 4});
  CHECK(t->decode(token_list{4, 3, 2, 5, 6}) == "a b\xC3\xA9");
  CHECK(t->text_of(4, false) == " a");
  CHECK(t->text_of(4, true) == "a");
}

TEST_CASE("added tokens are found in a text; special ones have no text") {
  const auto t = tokenizer_of(spaces);
  CHECK(t->encode("a<s>b") == token_list{4, 9, 3, 2});
  CHECK(t->encode("<tool>  a") == token_list{10, 4});
  CHECK(t->text_of(9, false).empty());
  CHECK(t->text_of(10, false) == "<tool>");
  CHECK(t->text_of(999, false).empty());
  CHECK(t->special("<s>") == 9u);
  CHECK_FALSE(t->special("<tool>"));
}

TEST_CASE("a long word is merged in a time that its length allows") {
  const auto t = tokenizer_of(spaces);
  std::string word;
  for (int i = 0; i < 100'000; ++i) word += "ab";
  CHECK(t->encode(word).size() == 100'001);
}

TEST_CASE("a tokenizer.json that is not supported is refused with its part") {
  CHECK_THAT(refusal_of("[]"), Contains("not a JSON object"));
  CHECK_THAT(refusal_of("{}"), Contains("model"));
  CHECK_THAT(refusal_of(R"({"model": {"type": "WordPiece", "vocab": {}}})"),
             Contains("a type other than BPE is not supported"));
  const auto with = [](const std::string& members) {
    return refusal_of("{" + members + R"(, "model": {"vocab": {"a": 0}, "merges": []}})");
  };
  CHECK_THAT(with(R"("normalizer": {"type": "Lowercase"})"),
             Contains("normalizer: 'Lowercase' is not supported"));
  CHECK_THAT(with(R"("pre_tokenizer": {"type": "BertPreTokenizer"})"),
             Contains("pre_tokenizer: 'BertPreTokenizer' is not supported"));
  CHECK_THAT(with(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("},)"
                  R"( "behavior": "Isolated"})"),
             Contains("pre_tokenizer: not a regular expression, at character 1"));
  CHECK_THAT(with(R"("post_processor": {"type": "BertProcessing"})"),
             Contains("post_processor: 'BertProcessing' is not supported"));
  CHECK_THAT(with(R"("decoder": {"type": "WordPiece"})"),
             Contains("decoder: 'WordPiece' is not supported"));
  CHECK_THAT(with(R"("added_tokens": [{"content": "x"}])"), Contains("id"));
  CHECK_THAT(refusal_of(R"({"model": {"vocab": {"a": 0}, "merges": ["a b"]}})"),
             Contains("merges[0] has tokens that vocab does not have"));
  CHECK_THAT(refusal_of(R"({"model": {"vocab": {"a": 1000}, "merges": []}})"), Contains("1001"));
  CHECK_THAT(refusal_of(R"({"model": {"vocab": {"a": "b"}, "merges": []}})"), Contains("type"));
}
