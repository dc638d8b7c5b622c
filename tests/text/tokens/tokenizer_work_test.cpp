#include <catch2/catch.hpp>

#include "harness/long_text.hpp"
#include "text/small_tokenizers.hpp"
#include "text/tokens/merge_table.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

constexpr std::size_t half_mib = 1u << 19;

/// Merges of all pairs of letters, of "a"s up to 64 and of CJK's first two bytes.
std::vector<std::pair<std::string, std::string>> small_merges() {
  std::vector<std::pair<std::string, std::string>> all;
  for (char a = 'a'; a <= 'z'; ++a)
    for (char b = 'a'; b <= 'z'; ++b) all.push_back({{a}, {b}});
  for (std::size_t n = 2; n <= 32; n *= 2)
    all.push_back({std::string(n, 'a'), std::string(n, 'a')});
  return all;
}

/// Both kinds of files have the same vocabulary: bytes, and what merges make.
struct both_kinds {
  std::string vocabulary, lines, pairs;

  both_kinds() {
    std::uint32_t number = 256;
    for (const auto& [a, b] : small_merges()) {
      vocabulary += fmt::format(R"(, "{}{}": {})", a, b, number++);
      lines += fmt::format("{} {}\n", a, b);
      pairs += fmt::format(R"({}["{}", "{}"])", pairs.empty() ? "" : ", ", a, b);
    }
    for (unsigned middle = 0xb8; middle < 0xc0; ++middle) {
      const auto a = byte_level_json(0xe4), b = byte_level_json(middle);
      vocabulary += fmt::format(R"(, "{}{}": {})", a, b, number++);
      pairs += fmt::format(R"(, ["{}", "{}"])", a, b);
    }
  }
  std::unique_ptr<tokenizer> json() const {
    return loaded(
        tokenizer_in({{"tokenizer.json",
                       R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, )"
                       R"("model": {"vocab": )" +
                           bytes_vocabulary(vocabulary) + R"(, "merges": [)" + pairs + "]}}"}},
                     2000));
  }
  std::unique_ptr<tokenizer> slow() const {
    return loaded(
        tokenizer_in({{"vocab.json", bytes_vocabulary(vocabulary)}, {"merges.txt", lines}}, 2000));
  }
};

std::uint64_t work_of(const tokenizer& t, const std::string& text) {
  const auto before = merge_table::queue_operations();
  CHECK_FALSE(t.encode(text).empty());
  return merge_table::queue_operations() - before;
}

}  // namespace

TEST_CASE("twice the text without spaces is at most 2.2 times the work, with both kinds of files") {
  const both_kinds kinds;
  const auto one_file = kinds.json(), two_files = kinds.slow();
  for (const auto* t : {one_file.get(), two_files.get()})
    for (const auto kind : long_texts) {
      const auto half = work_of(*t, long_text(kind, half_mib));
      const auto whole = work_of(*t, long_text(kind, 2 * half_mib));
      INFO(kind << ": " << half << " and " << whole);
      if (t == one_file.get() || kind != "CJK") CHECK(half > half_mib / 100);
      CHECK(static_cast<double>(whole) <= 2.2 * static_cast<double>(half));
    }
}

TEST_CASE("steps before the encoding take a time that a text's length allows") {
  // With a time of its square each of these would take minutes.
  const std::string spaces(1u << 20, ' ');
  const auto marked = loaded(
      tokenizer_in({{"tokenizer.json",
                     R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend",)"
                     R"( "prepend": "_"},)"
                     R"( {"type": "Replace", "pattern": {"String": " "}, "content": "__"}]},)"
                     R"( "model": {"vocab": {"_": 0}, "merges": []}})"}}));
  CHECK(marked->encode(spaces).size() == 2 * spaces.size() + 1);

  std::string accents = "a";  // each exchanges its place with all before
  for (int i = 0; i < 100'000; ++i) accents += i % 2 ? "\u0301" : "\u0323";
  const auto normal = loaded(tokenizer_in(
      {{"tokenizer.json", bytes_tokenizer("", R"(, "normalizer": {"type": "NFC"})")}}));
  CHECK(normal->encode(accents).size() == accents.size());

  std::string many;  // tokens that begin alike, as the unused ones of Gemma
  for (int i = 0; i < 6000; ++i)
    many += (i == 0 ? "" : ", ") + added_json(300 + i, fmt::format("<unused{}>", i), "s");
  std::string almost;
  for (int i = 0; i < 100'000; ++i) almost += "<unused<";
  const auto added = loaded(tokenizer_in({{"tokenizer.json", bytes_tokenizer(many)}}, 10'000));
  CHECK(added->encode(almost).size() == almost.size());
}

TEST_CASE("how many bytes a token stands for is known unless it may be any number") {
  const auto longest = [](const std::string& added, const std::string& members) {
    return loaded(tokenizer_in({{"tokenizer.json", bytes_tokenizer(added, members)}}))
        ->longest_token_bytes();
  };
  CHECK(loaded(tokenizer_in({}, 256))->longest_token_bytes() == 1);
  CHECK(longest("", "") == 1);
  CHECK(longest(added_json(300, "<tool>", "s"), "") == 6);
  CHECK(longest("", R"(, "normalizer": {"type": "NFC"})") == 4);
  CHECK(longest("", R"(, "normalizer": {"type": "Replace", "pattern": {"String": "12345"},)"
                    R"( "content": "ab"})") == 3);
  CHECK(longest("", R"(, "normalizer": {"type": "Replace", "pattern": {"Regex": " +"},)"
                    R"( "content": " "})") == 0);
  CHECK(longest(added_json(300, "<tool>", "r"), "") == 0);
  CHECK(longest(added_json(300, "<tool>", "l"), "") == 0);
  // Without a token for each byte characters are left out.
  const auto few = loaded(tokenizer_in(
      {{"tokenizer.json", R"({"model": {"vocab": {"a": 0, "aa": 1}, "merges": ["a a"]}})"}}));
  CHECK(few->longest_token_bytes() == 0);
  CHECK(both_kinds{}.slow()->longest_token_bytes() == 64);
}
