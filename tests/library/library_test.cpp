#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "harness/shell.hpp"
#include "harness/source_dir.hpp"

// The installed files: the build is installed into a scratch prefix, and examples/my_policy is
// built and run against that, outside the checkout; so are programs of jobs that use the Python
// package.

using troupe::test::run;
using troupe::test::scratch;

namespace {

namespace fs = std::filesystem;

/// A folder of the build, the same each time: a compiler's cache goes by paths.
std::string fresh(const std::string& name) {
  const auto path = fs::path{TROUPE_BUILD} / "library" / name;
  fs::remove_all(path);
  fs::create_directories(path.parent_path());
  return path.string();
}

/// The prefix, with what was installed there. Once for all tests.
const std::string& prefix() {
  static const std::string path = [] {
    const auto to = fresh("prefix");
    const auto installed = run("cmake --install '" TROUPE_BUILD "' --prefix '" + to + "'");
    INFO(installed.said);
    REQUIRE(installed.status == 0);
    return to;
  }();
  return path;
}

std::set<std::string> lines(const std::string& text) {
  std::set<std::string> all;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) all.insert(line);
  return all;
}

}  // namespace

TEST_CASE("installed headers include only installed headers of Troupe") {
  const fs::path root = prefix() + "/include/troupe";
  static const std::regex include{"#include \"([^\"]+)\".*"};
  std::size_t includes = 0;
  for (const auto& entry : fs::recursive_directory_iterator{root}) {
    if (!entry.is_regular_file()) continue;
    for (const auto& line : lines(troupe::test::read_file(entry.path()))) {
      std::smatch name;
      if (!std::regex_match(line, name, include)) continue;
      INFO(entry.path() << ": " << line);
      CHECK(fs::exists(root / name[1].str()));
      ++includes;
    }
  }
  CHECK(includes > 200);
}

TEST_CASE("the program exports every function of planners and messages for plug-ins") {
  const std::string name_of = " | cut -c18- | grep '^[TW] ' | cut -c3- | sort -u";
  const auto needed = run("nm --defined-only " TROUPE_ARCHIVES " | grep ' T '" + name_of);
  const auto there = run("nm -D --defined-only " TROUPE_PROGRAM + name_of);
  REQUIRE(lines(needed.said).size() > 100);
  const auto exported = lines(there.said);
  for (const auto& symbol : lines(needed.said)) {
    INFO(symbol);
    CHECK(exported.contains(symbol));
  }
}

TEST_CASE(
    "an external project builds and tests its policy with the installed library, and loads it") {
  const auto source = fresh("my_policy"), build = fresh("build");
  fs::copy(fs::path{troupe::test::source_dir()} / "examples/my_policy", source);
  const auto made =
      run("cmake -S '" + source + "' -B '" + build + "' -G Ninja -DCMAKE_PREFIX_PATH='" + prefix() +
          "' -DCMAKE_CXX_COMPILER='" TROUPE_COMPILER
          "' -DCMAKE_CXX_COMPILER_LAUNCHER='" TROUPE_LAUNCHER "' && ninja -C '" +
          build + "'");
  INFO(made.said);
  REQUIRE(made.status == 0);
  const auto tested = run("ctest --test-dir '" + build + "' --output-on-failure");
  INFO(tested.said);
  REQUIRE(tested.status == 0);
  CHECK(tested.said.find("100% tests passed, 0 tests failed out of 3") != std::string::npos);

  const auto program = prefix() + "/bin/troupe";
  const auto simulated =
      run("cd '" + build + "' && '" + program + "' simulate --policy ./libmine.so" +
          " --cluster '" + source + "/cluster.yaml' --trace '" + source + "/trace.csv' --faults '" +
          source + "/faults.yaml' --json");
  INFO(simulated.said);
  CHECK(simulated.status == 0);
  CHECK(simulated.said.find("\"policy\": \"shortest_first\"") != std::string::npos);
  CHECK(simulated.said.find("\"finished\": 24") != std::string::npos);
}

TEST_CASE("a program of a job imports the installed Python package without any setting") {
  if (run("python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'").status != 0) {
    WARN("not tested: there is no python3 of 3.9 or newer");
    return;
  }
  const scratch where, elsewhere;
  const auto troupe =
      "env -u PYTHONPATH -u TROUPE_PROGRAM -u TROUPE_CONTROLLER -u TROUPE_KEYS "
      "TROUPE_STATE='" +
      where / "state" + "' '" + prefix() + "/bin/troupe' ";
  const auto cluster = prefix() + "/share/troupe/configs/clusters/demo.yaml";
  const auto at = [&](const scratch& folder, const std::string& words) {
    return run("cd '" + folder.path() + "' && " + troupe + words);
  };
  const auto job = where.write(
      "job.yaml",
      "name: imports\nmodel: gpt2-350m\nglobal_batch: 8\niterations: 5\ngpus: 1\n"
      "command:\n  - python3\n  - -c\n  - |\n"
      "    import sys, troupe\n"
      "    run = troupe.init()\n"
      "    for i in run.steps():\n"
      "        run.report(i + 1)\n"
      "    run.finish()\n"
      "    print(troupe.__file__, run.world_size, run.iterations, 'torch' in sys.modules)\n");
  struct ends_with_down {
    const std::string& troupe;
    ~ends_with_down() { run(troupe + "down"); }
  } const end{troupe};
  const auto up = at(where, "up '" + cluster + "' --detach");
  INFO(up.said);
  REQUIRE(up.status == 0);
  const auto ended = at(elsewhere, "submit '" + job + "' --wait");
  const auto printed = at(elsewhere, "logs 1");
  INFO(ended.said << printed.said);
  CHECK(ended.status == 0);
  CHECK(printed.said == prefix() + "/lib/troupe/python/troupe/__init__.py 1 5 False\n");
  CHECK(at(elsewhere, "status 1").said.find("5/5") != std::string::npos);
  CHECK(at(elsewhere, "version").said.find("in " + prefix() + "/lib/troupe/python\n") !=
        std::string::npos);
}

TEST_CASE("the code on the library's page is that of the example") {
  const fs::path docs = troupe::test::source_dir() + "/docs";
  static const std::regex link{".*\\]\\((\\.\\./examples/my_policy/[^)]+\\.(txt|[ch]pp))\\).*"};
  std::istringstream in{troupe::test::read_file(docs / "library.md")};
  std::string file, block;
  bool fenced = false;
  std::size_t blocks = 0;
  for (std::string line; std::getline(in, line);) {
    std::smatch name;
    if (line.starts_with("```")) {
      if (fenced) {
        INFO(file << ":\n" << block);
        CHECK(troupe::test::read_file(docs / file).find(block) != std::string::npos);
        ++blocks;
      }
      fenced = !fenced;
      block.clear();
    } else if (fenced) {
      block += line + "\n";
    } else if (std::regex_match(line, name, link)) {
      file = name[1];
    }
  }
  CHECK(blocks >= 7);
}

TEST_CASE("a plug-in builds with the installed headers and a compiler alone") {
  const scratch where;
  const auto source = troupe::test::source_dir() + "/examples/my_policy/";
  const auto made =
      run("'" TROUPE_COMPILER "' -std=c++20 -shared -fPIC -I'" + prefix() + "/include/troupe' '" +
          source + "plugin.cpp' '" + source + "shortest_first.cpp' -o '" + where / "libmine.so'");
  INFO(made.said);
  REQUIRE(made.status == 0);
  const auto planned = run("cd '" + where.path() + "' && '" + prefix() + "/bin/troupe' plan '" +
                           troupe::test::source_dir() + "/configs/jobs/gpt2-7b.yaml' --cluster '" +
                           troupe::test::source_dir() +
                           "/configs/clusters/frenzy-testbed.yaml' --policy libmine.so");
  INFO(planned.said);
  CHECK(planned.status == 0);
  CHECK(planned.said.find("under shortest_first") != std::string::npos);
}
