#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "golden.hpp"
#include "harness/source_dir.hpp"
#include "messages/wire/message.hpp"
#include "messages/wire/task_kind.hpp"
#include "source_comments.hpp"
#include "wire_page.hpp"

// docs/wire.md documents the format for authors of other clients. Its reference is made from the
// code; the prose and the examples around it are written by hand and compared with the code.

using namespace troupe;
using namespace troupe::testing;

namespace {

std::string page_path() {
  return troupe::test::source_dir() + "/docs/wire.md";
}

std::string page_text() {
  std::ifstream in{page_path()};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::string first_difference(const std::string& found, const std::string& expected) {
  const auto end = std::min(found.size(), expected.size());
  std::size_t at = 0;
  while (at < end && found[at] == expected[at]) ++at;
  const auto line = at == 0 ? 0 : found.rfind('\n', at - 1) + 1;
  const auto rest = [&](const std::string& s) { return s.substr(line, s.find('\n', at) - line); };
  return "the page has:  " + rest(found) + "\nexpected:      " + rest(expected);
}

}  // namespace

TEST_CASE("docs/wire.md has the reference that is made from the types and comments of messages/") {
  std::string problems;
  const auto expected = "\n" + wire_reference(troupe::test::source_dir() + "/messages", problems);
  INFO(problems);
  REQUIRE(problems.empty());
  const auto text = page_text();
  const auto begin = text.find(reference_begin), end = text.find(reference_end);
  REQUIRE(begin != std::string::npos);
  REQUIRE((end != std::string::npos && begin < end));
  const auto from = begin + reference_begin.size();
  const auto found = text.substr(from, end - from);
  if (found == expected) return;
  if (std::getenv("TROUPE_RECORD") != nullptr) {
    std::ofstream{page_path()} << text.substr(0, from) << expected << text.substr(end);
    return;
  }
  FAIL(
      "docs/wire.md differs from the code. TROUPE_RECORD=1 build/release/messages_tests "
      "\"docs/wire.md has*\" rewrites it.\n"
      << first_difference(found, expected));
}

TEST_CASE("the reference takes names and meanings from the comments of a header") {
  source_comments c;
  c.read("a.hpp", R"(#pragma once

// About one thing.
// And another.

namespace troupe {

/// The first
/// record.
struct one {
  /// Kinds.
  enum class kind : std::uint8_t {
    small,  // the smaller
            // of both
    large
  };
  kind what = kind::small;
  std::map<std::string, int> a{}, b{{"x", 1}};  // both have it
  /// Above it.
  double c = 0;
  std::vector<double>
      d{};  // after it,
            // in two lines

  bool is_large() const { return what == kind::large; }
  static constexpr std::size_t required = 2;

  TROUPE_FIELDS(one, what, c,
                a, b, d);
};

enum class state : std::uint8_t { on, off };

}  // namespace troupe
)");
  CHECK(c.introductions.at("a.hpp") == "About one thing. And another.");
  const auto& one = c.records.at("one");
  CHECK(one.text == "The first record.");
  CHECK(one.fields == std::vector<std::string>{"what", "c", "a", "b", "d"});
  CHECK(one.meanings.at("what").empty());
  CHECK(one.meanings.at("a") == "both have it");
  CHECK(one.meanings.at("b").empty());
  CHECK(one.meanings.at("c") == "Above it.");
  CHECK(one.meanings.at("d") == "after it, in two lines");
  using all = std::vector<std::pair<std::string, std::string>>;
  CHECK(c.enums.at("one::kind") == all{{"small", "the smaller of both"}, {"large", ""}});
  CHECK(c.enums.at("state") == all{{"on", ""}, {"off", ""}});
}

TEST_CASE("docs/wire.md numbers the kinds of tasks as the code does") {
  const auto text = page_text();
  const auto row = text.find("| 0 | `what` | `u8` |");
  REQUIRE(row != std::string::npos);
  const auto meaning = text.substr(row, text.find('\n', row) - row);
  for (std::size_t k = 0; k < task_kinds.size(); ++k) {
    INFO(task_kinds[k].name);
    CHECK(meaning.find(std::to_string(k) + " " + std::string{task_kinds[k].name}) !=
          std::string::npos);
  }
  CHECK(meaning.find(std::to_string(task_kinds.size()) + " ") == std::string::npos);
}

TEST_CASE("docs/wire.md shows the bytes that the code writes") {
  std::string text = page_text();
  for (char& ch : text)
    if (ch == '\n') ch = ' ';
  for (const auto& g : golden_frames()) {
    INFO(g.name);
    CHECK(text.find(g.hex) != std::string::npos);
  }
  for (const auto& g : golden_entries()) {
    INFO(g.name);
    CHECK(text.find(g.hex) != std::string::npos);
  }
}

TEST_CASE("docs/wire.md names the protocol version of the code") {
  CHECK(page_text().find("version " + std::to_string(protocol_version)) != std::string::npos);
}
