#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include <fmt/format.h>

#include "gpu/examples/tuning_rows.hpp"
#include "harness/scratch.hpp"
#include "harness/source_dir.hpp"

using namespace troupe;
using namespace troupe::gpu;

namespace {

/// Questions to the model of bytes that ships with its files.
tuning scribe(const std::string& data) {
  tuning u;
  u.base = test::source_dir() + "/configs/models/scribe";
  u.data = data;
  u.date = "2026-11-29";
  return u;
}

std::string questions(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format(R"({{"prompt": "Number {}?", "completion": "{}"}})", i, i) + "\n";
  return text;
}

std::set<std::vector<std::uint32_t>> texts_of(const example_set& s) {
  std::set<std::vector<std::uint32_t>> all;
  for (const auto& e : s.examples) all.insert(e.tokens);
  return all;
}

}  // namespace

TEST_CASE("a share of the lines is held out, the same for the same seed, and no line is in both") {
  const test::scratch here;
  auto u = scribe(here.write("data.jsonl", questions(20)));
  u.held_out = 0.25;
  const auto one = read_tuning_rows(u, 1), again = read_tuning_rows(u, 1),
             other = read_tuning_rows(u, 2);
  REQUIRE(one);
  REQUIRE(again);
  REQUIRE(other);
  CHECK(one->trained.examples.size() == 15);
  REQUIRE(one->held_out);
  CHECK(one->held_out->rows.size() == 5);
  auto held = texts_of(*one->held_out);
  CHECK(held == texts_of(*again->held_out));
  CHECK(held != texts_of(*other->held_out));
  for (const auto& e : one->trained.examples) CHECK(!held.contains(e.tokens));
  const auto sum = one->trained.trained_tokens + one->held_out->trained_tokens;
  u.held_out = 0;
  const auto all = read_tuning_rows(u, 1);
  REQUIRE(all);
  CHECK(!all->held_out);
  CHECK(all->trained.trained_tokens == sum);
}

TEST_CASE("a file of held-out examples leaves the data whole, and one example cannot be split") {
  const test::scratch here;
  auto u = scribe(here.write("data.jsonl", questions(1)));
  u.held_out = 0.5;
  const auto none = read_tuning_rows(u, 1);
  REQUIRE(!none);
  CHECK(none.error().text.find("found one example, expected at least two") != std::string::npos);
  u.held_out = 0;
  u.eval_data = here.write("held.jsonl", questions(3));
  const auto both = read_tuning_rows(u, 1);
  REQUIRE(both);
  CHECK(both->trained.rows.size() == 1);
  CHECK(both->held_out->rows.size() == 3);
}

TEST_CASE("other numbers of rows than when the job was read are refused with both") {
  const test::scratch here;
  auto u = scribe(here.write("data.jsonl", questions(4)));
  const auto rows = read_tuning_rows(u, 1);
  REQUIRE(rows);
  u.rows = 4;
  u.trained_tokens = rows->trained.trained_tokens;
  CHECK(check_counts(*rows, u));
  u.rows = 5;
  const auto bad = check_counts(*rows, u);
  REQUIRE(!bad);
  CHECK(bad.error().text.find("found 4 rows") != std::string::npos);
}

TEST_CASE("a program without a file is a tuning if its arguments are the keys of one") {
  layer_file p;
  p.arguments =
      R"({"base": "/m", "data": "/d", "held_out": 0.25, "sequence": 64, "packing": true})";
  const auto u = tuning_of(p);
  REQUIRE(u);
  REQUIRE(*u);
  CHECK((*u)->base == "/m");
  CHECK((*u)->held_out == 0.25);
  CHECK((*u)->sequence == 64);
  CHECK((*u)->packing);
  CHECK((*u)->clip == 1);
  for (const auto* bad : {"", "[]", "{}", R"({"base": "/m"})", R"({"base": 1, "data": "/d"})",
                          R"({"base": "/m", "data": "/d", "sequence": "x"})"}) {
    p.arguments = bad;
    CHECK(!tuning_of(p));
  }
  p.file = "/a.py";
  const auto other = tuning_of(p);
  REQUIRE(other);
  CHECK(!*other);
}
