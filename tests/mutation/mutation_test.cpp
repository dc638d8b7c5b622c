#include <algorithm>
#include <fstream>

#include <catch2/catch.hpp>

#include "mutation/instrument.hpp"
#include "mutation/mutant.hpp"
#include "mutation/sample/sample.hpp"

using namespace troupe::mutation_test;

namespace {

std::vector<std::string> mutants_in(const std::string& source) {
  std::vector<std::string> texts;
  for (const auto& m : instrument(source, 1, {}).mutants) texts.push_back(m.text);
  return texts;
}

/// The sample's results for every kind of argument.
std::vector<std::vector<double>> results() {
  return {sample({1, 2, 3, 4, 5, 9}, 3), sample({4, 0, 8}, {}), sample({0, 4, 5}, 4),
          sample({0, 0, 10}, 0),         sample({9, 1}, 1),     sample({10, 1}, 1)};
}

}  // namespace

TEST_CASE("every mutant of the sample changes its results, unless it does not compile") {
  const auto original = results();
  std::ifstream list{TROUPE_SAMPLE_MUTANTS};
  int mutants = 0, impossible = 0;
  for (std::string line; std::getline(list, line); ++mutants) {
    const int id = std::stoi(line);
    INFO(line);
    CHECK(mutation::executed[id]);
    mutation::chosen = id;
    const bool changed = results() != original;
    mutation::chosen = 0;
    CHECK(changed == (mutation::impossible[id] == 0));
    impossible += mutation::impossible[id];
  }
  CHECK(mutants == 39);
  CHECK(impossible == 2);
}

TEST_CASE("comments, literals, macros, templates, constants and declarators have no mutants") {
  CHECK(mutants_in("// a < b\n/* a < b */ auto x = \"a < b\" 'a';").empty());
  CHECK(mutants_in("#define A a < b \\\n  && c\n#if A && B\n#endif\n").empty());
  CHECK(mutants_in("template <class T, int N = 1 + 2>\nvoid f(T&& x, int* y) {}").empty());
  CHECK(mutants_in("static_assert(a < b);\nconstexpr int x = 1 + 2;").empty());
  CHECK(mutants_in("bool operator<(a x, b y) noexcept(true);\nvoid f() && {}").empty());
  CHECK(mutants_in("auto x = R\"(a < \" b)\" + y;") ==
        std::vector<std::string>{"auto x = R\"(a < \" b)\" {+ -> -} y;"});
}

TEST_CASE(
    "instrumented code keeps the original's line numbers, and excluded lines have no mutants") {
  const std::string source = "bool f() {\n  return a &&\n         b < c;\n}\n";
  const auto made = instrument(source, 7, {});
  REQUIRE(made.mutants.size() == 2);
  CHECK(made.mutants[0].id == 7);
  CHECK(made.mutants[0].line == 2);
  CHECK(made.mutants[1].text == "b {< -> <=} c;");
  CHECK(std::count(made.source.begin(), made.source.end(), '\n') == 4);
  const auto none = instrument(source, 7, {2, 3});
  CHECK(none.mutants.empty());
  CHECK(none.source == source);
}
