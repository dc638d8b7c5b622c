#include "gpu/inference/completion.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>

#include "harness/files.hpp"
#include "messages/base/random.hpp"
#include "text/tokens/open_tokenizer.hpp"

using namespace troupe;
using namespace troupe::gpu;
using troupe::test::loaded;

namespace {

std::unique_ptr<tokenizer> bytes() {
  return loaded(open_tokenizer(troupe::test::temporary_folder(), 256));
}

/// A completion of these bytes, and the pieces that it returned.
struct written {
  std::vector<std::string> pieces;
  std::string text;
  std::string_view finish;
  std::size_t tokens = 0;
};
struct limits {
  std::uint32_t max_tokens = 16;
  std::vector<std::uint32_t> last_tokens{};
  std::vector<std::string> stops{};
  std::optional<std::uint32_t> min_tokens{};
};
written write(const std::string& text, const limits& l) {
  const auto words = bytes();
  completion_request asked;
  asked.max_tokens = l.max_tokens;
  asked.last_tokens = l.last_tokens;
  asked.min_tokens = l.min_tokens;
  completion c{asked, l.stops, words.get()};
  written w;
  for (const char byte : text) w.pieces.push_back(c.add({static_cast<unsigned char>(byte), -1}));
  w.text = c.text();
  w.finish = name_of(c.finished());
  w.tokens = c.tokens().size();
  std::string joined;
  for (const auto& p : w.pieces) joined += p;
  CHECK(joined == w.text);
  return w;
}

}  // namespace

TEST_CASE("a completion ends at its last token by length") {
  const auto w = write("abcdef", {.max_tokens = 4});
  CHECK(w.text == "abcd");
  CHECK(w.finish == "length");
  CHECK(w.tokens == 4);
  CHECK(write("abc", {.max_tokens = 4}).finish.empty());
}

TEST_CASE("a token that ends a text is counted but has no text") {
  const auto w = write("ab\ncd", {.max_tokens = 10, .last_tokens = {'\n', 0}});
  CHECK(w.text == "ab");
  CHECK(w.finish == "stop");
  CHECK(w.tokens == 3);
}

TEST_CASE("a completion ends before a stop text, and no part of that text is emitted") {
  const auto w = write("one. Two", {.max_tokens = 20, .stops = {". T", "zzz"}});
  CHECK(w.text == "one");
  CHECK(w.finish == "stop");
  CHECK(w.pieces[3].empty());  // "." may begin ". T"
  const auto other = write("one. two", {.max_tokens = 20, .stops = {". T", "zzz"}});
  CHECK(other.text == "one. two");
  CHECK(other.pieces[5] == ". t");
  // The bytes that are held back at the end are text.
  CHECK(write("one.", {.max_tokens = 4, .stops = {". T"}}).text == "one.");
  // The earliest of several.
  CHECK(write("abcabd", {.max_tokens = 20, .stops = {"bd", "ca"}}).text == "ab");
  CHECK(write("aaab", {.max_tokens = 20, .stops = {"aab"}}).text == "a");
  // One that begins another.
  CHECK(write("xabcd", {.max_tokens = 20, .stops = {"abcd", "ab", "abx"}}).text == "x");
}

TEST_CASE("a thousand stop texts end a completion where a search for each finds the first") {
  std::vector<std::string> stops;
  for (int i = 0; i < 1000; ++i) stops.push_back(std::to_string(7919 * (i + 11) % 99991));
  std::string text;
  for (int i = 0; i < 40; ++i) text += std::to_string(i * i * i) + "-";
  text += stops[500] + stops[20];
  auto first = std::string::npos;
  for (const auto& stop : stops) first = std::min(first, text.find(stop));
  REQUIRE(first != std::string::npos);
  CHECK(write(text, {.max_tokens = 1000, .stops = stops}).text == text.substr(0, first));
}

TEST_CASE("a search for stop texts finds what a search at every place does, piece by piece") {
  troupe::random_source random{1};
  const auto text_of = [&](std::size_t n) {
    std::string text;
    while (text.size() < n) text += static_cast<char>('a' + random.below(2));
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (auto n = 1 + random.below(6); n > 0; --n) stops.push_back(text_of(1 + random.below(7)));
    const auto text = text_of(24);
    stop_search search{stops};
    for (std::size_t begin = 0, end = 0; end < text.size(); begin = end) {
      end = std::min(text.size(), end + random.below(4));
      const auto found = search.add(std::string_view{text}.substr(begin, end - begin));
      const auto known = text.substr(0, end);
      auto first = std::string::npos;
      std::size_t open = 0;
      for (const auto& stop : stops) {
        first = std::min(first, known.find(stop));
        for (std::size_t n = 1; n <= std::min(stop.size(), known.size()); ++n)
          if (known.ends_with(stop.substr(0, n))) open = std::max(open, n);
      }
      INFO(known << " in a search for " << stops.size() << " texts, " << stops[0] << " first");
      REQUIRE(found.has_value() == (first != std::string::npos));
      if (found) {
        CHECK(*found == first);
        break;
      }
      CHECK(search.open() == open);
    }
  }
}

TEST_CASE("a search for stop texts looks at a byte twice at most, however they repeat themselves") {
  std::vector<std::string> stops;
  for (std::size_t n = 961; n <= 1024; ++n) stops.emplace_back(n, 'a');
  stop_search search{stops};
  for (int i = 0; i < 100; ++i) {
    CHECK_FALSE(search.add(std::string(960, 'a')));
    CHECK(search.open() == 960);
    CHECK_FALSE(search.add("b"));
  }
  CHECK(search.size() == 100 * 961);
  CHECK(search.steps() <= 2 * search.size());
  CHECK(search.add(std::string(961, 'a')) == 100 * 961);
}

TEST_CASE("stop texts in the first min_tokens tokens are text") {
  const auto w = write("abcabc", {.max_tokens = 9, .stops = {"bc"}, .min_tokens = 3});
  CHECK(w.text == "abca");
  CHECK(w.finish == "stop");
  // One that begins there does not count either.
  CHECK(write("abcd", {.max_tokens = 4, .stops = {"bc"}, .min_tokens = 2}).text == "abcd");
}

TEST_CASE("only complete characters are emitted, and invalid UTF-8 becomes U+FFFD") {
  const auto w = write("\xC3\xA9\xF0\x9F\x8E\xADz", {.max_tokens = 20});
  CHECK(w.pieces == std::vector<std::string>{"", "\xC3\xA9", "", "", "", "\xF0\x9F\x8E\xAD", "z"});
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(write("a\xFFz", {.max_tokens = 20}).text == "a" + bad + "z");
  CHECK(write("\xE2\x82z", {.max_tokens = 20}).text == bad + "z");
  CHECK(write("\xE2\x82", {.max_tokens = 2}).text == bad);
  CHECK(write("\xED\xA0\x80.", {.max_tokens = 4}).text == bad + bad + bad + ".");  // a surrogate
  CHECK(write("\xC0\xAF.", {.max_tokens = 3}).text == bad + bad + ".");            // overlong
  CHECK(write("\xF4\x90\x80\x80.", {.max_tokens = 5}).text == bad + bad + bad + bad + ".");
}

TEST_CASE("a completion without a tokenizer has tokens and no text") {
  completion_request asked;
  asked.max_tokens = 2;
  completion c{asked, {}, nullptr};
  CHECK(c.add({300, -0.5}).empty());
  CHECK(c.add({7, -0.25}).empty());
  CHECK(c.tokens() == std::vector<std::uint32_t>{300, 7});
  CHECK(c.log_probabilities() == std::vector<double>{-0.5, -0.25});
  CHECK(c.finished() == completion::finish::length);
  c.add({8, 0});
  CHECK(c.tokens().size() == 2);
}
