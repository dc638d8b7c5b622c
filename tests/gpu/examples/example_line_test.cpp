#include "gpu/examples/example_line.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::gpu;

namespace {

const std::vector<std::string> good_lines{
    R"({"id": 7, "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": )"
    R"([{"type": "text", "text": "h"}]}, {"role": "assistant", "content": "a", "weight": 1}]})",
    R"({"conversations": [{"from": "human", "value": "é\n"}, {"from": "gpt", "value": "\u00e9"}]})",
    R"({"prompt": "a", "completion": "b"})",
    R"({"prompt": [{"role": "user", "content": "x"}], "completion": [{"role": "assistant", )"
    R"("content": "y"}], "tools": null})",
    R"({"text": "abc"})"};

/// A line with some of its bytes changed, left out, repeated or of another line.
std::string mutated(random_source& random) {
  auto line = good_lines[random.below(good_lines.size())];
  constexpr std::string_view pieces[] = {
      "{",   "}",    "[",    "]",    "\"",       ",",      ":",    "null",    "-1", "1e999",
      "\\u", "true", "text", "role", "messages", "weight", "\xff", "content", "[]", "{}"};
  for (auto n = 1 + random.below(4); n > 0 && !line.empty(); --n) {
    const auto at = random.below(line.size());
    const auto count = random.below(8);
    switch (random.below(4)) {
      case 0:
        line.erase(at, count);
        break;
      case 1:
        line.insert(at, pieces[random.below(std::size(pieces))]);
        break;
      case 2:
        line.insert(at, line.substr(random.below(line.size()), count));
        break;
      default:
        line[at] = static_cast<char>(random.below(256));
        break;
    }
  }
  return line;
}

}  // namespace

TEST_CASE("lines of each form are read, with their answers") {
  const std::vector<std::vector<bool>> trained{
      {false, false, true}, {false, true}, {}, {false, true}, {}};
  for (std::size_t i = 0; i < good_lines.size(); ++i) {
    const auto line = read_example_line(good_lines[i], "x:1");
    REQUIRE(line);
    CHECK(line->trained == trained[i]);
    CHECK(line->messages.size() == trained[i].size());
  }
  CHECK(read_example_line(good_lines[0], "x:1")->more_keys == std::set<std::string>{"id"});
}

TEST_CASE("damaged lines are read, or refused with their place and one sentence") {
  random_source random{11};
  std::size_t read = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto text = mutated(random);
    const auto line = read_example_line(text, "x.jsonl:7");
    if (line) {
      ++read;
      const bool chat = line->what == example_line::form::chat;
      // It can be learned from.
      const bool sound = chat ? std::find(line->trained.begin(), line->trained.end(), true) !=
                                        line->trained.end() &&
                                    line->messages.size() == line->trained.size()
                              : !line->text.empty();
      if (!sound) FAIL(text);
      continue;
    }
    ++refused;
    const auto& why = line.error().text;
    if (!why.starts_with("x.jsonl:7: ") || why.find("found ") == why.npos ||
        why.find("expected ") == why.npos || why.find('\n') != why.npos || why.size() > 400)
      FAIL(why << " of " << text);
  }
  CHECK(read > 500);
  CHECK(refused > 10'000);
}
