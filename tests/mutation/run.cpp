#include "mutation/run.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "messages/base/random.hpp"
#include "mutation/sandbox.hpp"

namespace troupe::mutation_test {

namespace {

namespace fs = std::filesystem;

struct listed {
  int id;
  std::string place, line, text;
  std::string known_as() const { return place + ": " + text; }
};

struct test_case {
  std::size_t program;
  std::string name;
  double seconds;
};

struct coverage {
  std::map<int, std::vector<test_case>> tests;  // by mutant
  std::set<int> impossible;
};

std::vector<listed> mutants_of(const fs::path& file) {
  std::vector<listed> all;
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields{line};
    std::string id, place, number, text;
    std::getline(fields, id, '\t');
    std::getline(fields, place, '\t');
    std::getline(fields, number, '\t');
    std::getline(fields, text);
    all.push_back({std::stoi(id), place, number, text});
  }
  return all;
}

/// "PLACE: TEXT", and below it, indented, why no test can distinguish the mutant from the original.
std::set<std::string> equivalents_of(const fs::path& file) {
  std::set<std::string> all;
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != ' ' && line[0] != '#') all.insert(line);
  return all;
}

void read_coverage(const fs::path& file, std::size_t program, coverage& c) {
  std::vector<std::pair<test_case, std::vector<int>>> rows;
  std::vector<int> at_start;
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields{line};
    test_case t{program, {}, 0};
    fields >> t.seconds;
    fields.get();
    std::getline(fields, t.name, '\t');
    std::vector<int> ids;
    for (int id; fields >> id;) ids.push_back(id);
    if (t.name == "-")
      c.impossible.insert(ids.begin(), ids.end());
    else if (t.name.empty())
      at_start = std::move(ids);
    else
      rows.emplace_back(std::move(t), std::move(ids));
  }
  for (auto& [test, ids] : rows) {
    ids.insert(ids.end(), at_start.begin(), at_start.end());
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    for (const int id : ids) c.tests[id].push_back(test);
  }
}

/// Runs every test without a mutant: which mutants it executes, and that it passes.
coverage cover(const run_options& o) {
  constexpr double limit_s = 1800;
  coverage c;
  for (std::size_t i = 0; i < o.programs.size(); ++i) {
    const auto executed = o.folder / (o.module + "-executed"),
               covered = o.folder / (o.module + "-covered");
    fs::remove(executed);
    std::fprintf(stderr, "%s without a mutant\n", o.programs[i].c_str());
    if (run_alone({o.programs[i]},
                  {{"TROUPE_MUTATION_EXECUTED", executed}, {"TROUPE_MUTATION_COVERAGE", covered}},
                  o.folder, limit_s) != outcome::passed) {
      std::fprintf(stderr, "%s fails without a mutant\n", o.programs[i].c_str());
      std::exit(1);
    }
    read_coverage(covered, i, c);
  }
  for (auto& [id, tests] : c.tests)
    std::stable_sort(tests.begin(), tests.end(),
                     [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return c;
}

/// As Catch2 reads a name among others in an argument.
std::string escaped(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (std::string_view{",[\"\\"}.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// Runs tests of one program until one fails.
outcome run_tests(const run_options& o, std::size_t program, const std::vector<test_case>& tests,
                  int mutant) {
  std::string names;
  double seconds = 0;
  for (const auto& t : tests) {
    if (t.program != program) continue;
    names += (names.empty() ? "" : ",") + escaped(t.name);
    seconds += t.seconds;
  }
  if (names.empty()) return outcome::passed;
  return run_alone({o.programs[program], "--abort", names},
                   {{"TROUPE_MUTANT", std::to_string(mutant)}}, o.folder, 10 + 10 * seconds);
}

/// Quick tests first: most mutants need no others.
outcome run_mutant(const run_options& o, const std::vector<test_case>& tests, int mutant) {
  auto at = tests.begin();
  for (const double limit_s : {0.5, 5.0, 1e9}) {
    std::vector<test_case> some;
    for (double sum = 0; at != tests.end() && (sum += at->seconds) < limit_s; ++at)
      some.push_back(*at);
    for (std::size_t i = 0; i < o.programs.size(); ++i)
      if (const auto result = run_tests(o, i, some, mutant); result != outcome::passed)
        return result;
  }
  return outcome::passed;
}

std::string result_of(const run_options& o, const listed& m, const coverage& covered,
                      const std::set<std::string>& equivalent) {
  const auto tests = covered.tests.find(m.id);
  std::string result = "is not executed";
  if (tests != covered.tests.end())
    result = run_mutant(o, tests->second, m.id) == outcome::passed ? "survives" : "killed";
  return result != "killed" && equivalent.contains(m.known_as()) ? "is equivalent" : result;
}

}  // namespace

int run(const run_options& o) {
  auto mutants = mutants_of(o.folder / (o.module + ".txt"));
  const auto equivalent = equivalents_of(o.equivalent);
  const auto covered = cover(o);
  random_source random{o.seed};
  for (auto i = mutants.size(); i > 1; --i) std::swap(mutants[i - 1], mutants[random.below(i)]);
  std::erase_if(mutants, [&](const auto& m) { return covered.impossible.contains(m.id); });
  const auto all = mutants.size();
  if (mutants.size() > o.mutants) mutants.resize(o.mutants);

  std::map<std::string, std::size_t> counts;
  std::size_t next = 0, done = 0;
  std::mutex mutex;
  const auto take = [&] {
    const std::lock_guard guard{mutex};
    return next < mutants.size() ? &mutants[next++] : nullptr;
  };
  const auto work = [&] {
    while (const auto* m = take()) {
      const auto result = result_of(o, *m, covered, equivalent);
      const std::lock_guard guard{mutex};
      ++counts[result];
      if (++done % 10 == 0) std::fprintf(stderr, "%zu of %zu\n", done, mutants.size());
      if (result != "killed" || o.mutants == 1)
        std::printf("%s:%s: %s: %s\n", m->place.c_str(), m->line.c_str(), result.c_str(),
                    m->text.c_str());
      std::fflush(stdout);
    }
  };
  {
    std::vector<std::jthread> workers(std::max(1U, std::thread::hardware_concurrency()));
    for (auto& w : workers) w = std::jthread{work};
  }
  const auto killed = counts["killed"], counted = mutants.size() - counts["is equivalent"];
  std::printf(
      "%s: %zu mutants (seed %zu, of %zu in all): %zu killed, %zu survive, %zu are not executed; "
      "%zu more are listed as equivalent. Killed: %.1f %%\n",
      o.module.c_str(), counted, static_cast<std::size_t>(o.seed), all, killed, counts["survives"],
      counts["is not executed"], counts["is equivalent"],
      100.0 * static_cast<double>(killed) / static_cast<double>(std::max<std::size_t>(counted, 1)));
  return killed * 10 >= counted * 9 ? 0 : 1;
}

}  // namespace troupe::mutation_test
