#include <sys/wait.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "harness/files.hpp"
#include "harness/source_dir.hpp"
#include "text/base/characters.hpp"
#include "text/jinja/text.hpp"
#include "text/jinja/value.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using nlohmann::json;

namespace {

/// Python's view of characters; null: there is no Python, or it has a later Unicode.
const json& of_python() {
  static const json all = [] {
    const auto out = temporary_folder() / "characters.json";
    const auto command = std::string{"python3 "} + source_dir() +
                         "/tests/text/base/characters_reference.py " + out.string();
    const int status = std::system(command.c_str());
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127))
      return json{};
    REQUIRE(status == 0);
    std::ifstream in{out};
    return json::parse(in);
  }();
  if (all.is_null()) WARN("not compared: there is no python3, or its Unicode is a later one");
  return all;
}

/// Texts of a table whose first one does not become the others; the first few of them.
class differences {
 public:
  void add(const std::string& of, const std::string& found, const std::string& expected) {
    ++compared_;
    if (found == expected) return;
    if (++number_ <= 5)
      text_ += json{of, found, expected}.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  }
  void check(int compared) const {
    INFO("given, found, expected:\n" << text_);
    CHECK(number_ == 0);
    CHECK(compared_ >= compared);
  }

 private:
  int number_ = 0, compared_ = 0;
  std::string text_;
};

std::vector<std::string> characters_in(const json& ranges) {
  std::vector<std::string> all;
  for (const auto& r : ranges)
    for (auto c = r[0].get<std::uint32_t>(); c <= r[1].get<std::uint32_t>(); ++c)
      all.push_back(utf8_of(c));
  std::ranges::sort(all);
  return all;
}

std::string truth(bool yes) {
  return yes ? "true" : "false";
}

}  // namespace

TEST_CASE("texts are composed as Python's unicodedata composes them") {
  const auto& all = of_python();
  if (all.is_null()) return;
  CHECK(all["nfc"]["changed"] >= 1120);
  differences found;
  for (const auto& one : all["nfc"]["texts"])
    found.add(one[0], composed(one[0].get<std::string>()), one[1]);
  found.check(15'000);
}

TEST_CASE("characters are of the classes that Python's str says") {
  const auto& all = of_python();
  if (all.is_null()) return;
  using jinja::letter_case;
  const auto& classes = all["classes"];
  const std::string a = "A", sigma = "\u03a3", small = "\u03c2";
  const std::pair<const char*, std::function<bool(const std::string&)>> tests[] = {
      {"space", jinja::is_space},
      {"digit", jinja::is_any_digit},
      {"word", jinja::is_of_word},
      {"lower", [](auto& c) { return jinja::letter_case_of(c) == letter_case::lower; }},
      {"upper", [](auto& c) { return jinja::letter_case_of(c) == letter_case::upper; }},
      {"title", [](auto& c) { return jinja::letter_case_of(c) == letter_case::title; }},
      {"ends before sigma",
       [&](auto& c) { return jinja::lower(c + sigma).bytes().ends_with(small); }},
      {"passed before sigma",
       [&](auto& c) { return jinja::lower(a + c + sigma).bytes().ends_with(small); }},
      {"passed behind sigma",
       [&](auto& c) { return jinja::lower(a + sigma + c).bytes().starts_with("a" + small); }}};
  const auto known = characters_in(classes["known"]);
  for (const auto& [name, is] : tests) {
    const auto has = characters_in(classes[name]);
    differences found;
    for (const auto& c : known)
      found.add(c, truth(is(c)), truth(std::ranges::binary_search(has, c)));
    INFO(name);
    found.check(75'000);
  }
}

TEST_CASE("texts change their case as Python's str changes it") {
  const auto& all = of_python();
  if (all.is_null()) return;
  differences upper, lower, title, capital, is_upper, is_lower;
  for (const auto* table : {"cases", "words"})
    for (const auto& one : all[table]) {
      const jinja::text t{one[0].get<std::string>()};
      upper.add(one[0], jinja::upper(t).bytes(), one[1]);
      lower.add(one[0], jinja::lower(t).bytes(), one[2]);
      title.add(one[0], jinja::titled(t).bytes(), one[3]);
      capital.add(one[0], jinja::capitalized(t).bytes(), one[4]);
      if (one.size() < 7) continue;
      is_upper.add(one[0], truth(jinja::is_upper(t)), truth(one[5]));
      is_lower.add(one[0], truth(jinja::is_lower(t)), truth(one[6]));
    }
  for (const auto* table : {&upper, &lower, &title, &capital}) table->check(5500);
  is_upper.check(3000);
  is_lower.check(3000);
}

TEST_CASE("characters that no case changes stay as they are") {
  const auto& all = of_python();
  if (all.is_null()) return;
  std::vector<std::string> others;
  for (const auto& one : all["cases"]) others.push_back(one[0]);
  std::ranges::sort(others);
  differences found;
  for (const auto& c : characters_in(all["classes"]["known"]))
    if (!std::ranges::binary_search(others, c))
      found.add(c, jinja::upper_of(c) + jinja::lower_of(c) + jinja::title_of(c), c + c + c);
  found.check(75'000);
}

TEST_CASE("floats are written as Python's repr() writes them") {
  const auto& all = of_python();
  if (all.is_null()) return;
  differences found;
  for (const auto& one : all["floats"])
    found.add(one[0], jinja::float_text(std::strtod(one[0].get<std::string>().c_str(), nullptr)),
              one[1]);
  found.check(2000);
}
