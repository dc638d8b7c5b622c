#include "tidy/rules.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <sstream>

#include "tidy/floors.hpp"
#include "tidy/lists.hpp"
#include "tidy/tree.hpp"

using namespace troupe::tidy;

namespace {

checkout sample_checkout() {
  checkout c;
  c.exists = [](const std::string& p) {
    return p == "docs/there.md" || p == "cli/verbs/there.cpp" || p == "configs/there.yaml";
  };
  c.dev_commands = {"demo", "test"};
  c.verbs = {"plan"};
  c.policies = {"frenzy", "titan", "titan-no-merger"};
  return c;
}

/// The findings in a file with this text: lines "number: sentence".
std::string said(const std::string& path, const std::string& text) {
  std::ostringstream out;
  for (const auto& f : check(read_source(path, text), sample_checkout()))
    out << f.line << ": " << f.sentence << "\n";
  return out.str();
}

bool refused(const std::string& path, const std::string& line) {
  return said(path, line + "\n").find("1: ") == 0;
}

}  // namespace

TEST_CASE("a clean file passes") {
  CHECK(said("planners/plans/has.cpp",
             "#include \"planners/plans/has.hpp\"\n#include <vector>\nint a;\n") == "");
}

TEST_CASE("output that nobody checks, and paths that may throw, are refused") {
  CHECK(refused("cli/verbs/jobs/a.cpp", "std::fflush(stdout);"));
  CHECK(refused("cli/output/output.cpp", "fmt::print(\"{}\", x);"));
  CHECK(refused("web/a.cpp", "std::cout << x;"));
  CHECK(refused("formats/load/a.cpp", "puts(x);"));
  CHECK_FALSE(refused("cli/output/standard_output.cpp", "std::fflush(stdout);"));
  CHECK_FALSE(refused("cli/output/output.cpp", "fmt::print(stderr, \"{}\", x);"));
  CHECK_FALSE(refused("tests/cli/a.cpp", "std::cout << x;"));
  CHECK(refused("cli/verbs/jobs/a.cpp", "auto p = std::filesystem::current_path() / x;"));
  CHECK(refused("actors/node/a.cpp", "auto p = fs::absolute(x);"));
  CHECK_FALSE(refused("tests/processes/a.cpp", "fs::current_path(\"/\");"));
}

TEST_CASE("an include of a forbidden module is refused, with file and line") {
  CHECK(said("planners/policy/a.cpp", "int x;\n#include \"runtime/host/clock.hpp\"\n") ==
        "2: planners/ must not use runtime/\n");
  CHECK(refused("messages/domain/a.cpp", "#include \"planners/plans/has.hpp\""));
  CHECK(refused("gpu/device/a.cpp", "#include \"runtime/host/clock.hpp\""));
  CHECK(refused("formats/load/a.cpp", "#include \"actors/worlds/wiring.hpp\""));
  CHECK(refused("actors/worlds/a.cpp", "#include \"studies/trace_player.hpp\""));
  CHECK_FALSE(refused("actors/worlds/a.cpp", "#include \"runtime/host/clock.hpp\""));
  CHECK_FALSE(refused("studies/a.cpp", "#include \"actors/worlds/wiring.hpp\""));
  CHECK_FALSE(refused("tests/actors/a.cpp", "#include \"runtime/host/clock.hpp\""));
}

TEST_CASE("a file includes only its own folder and lower floors") {
  CHECK(said("planners/model/a.cpp", "#include \"planners/plans/has.hpp\"\n") ==
        "1: planners/model/ must not use planners/plans/, which is not on a lower floor\n");
  CHECK(refused("planners/crius/a.cpp", "#include \"planners/baselines/gavel.hpp\""));
  CHECK(refused("actors/control/leases/a.cpp", "#include \"actors/gateway/gateway.hpp\""));
  CHECK(refused("actors/protocol/a.cpp", "#include \"actors/control/ledger/ledger.hpp\""));
  CHECK(
      refused("actors/control/status/a.cpp", "#include \"actors/control/leases/order_desk.hpp\""));
  CHECK(refused("text/jinja/a.cpp", "#include \"text/tokens/tokenizer.hpp\""));
  CHECK(refused("actors/training/collectives/a.cpp", "#include \"actors/node/node.hpp\""));
  CHECK(refused("runtime/host/a.cpp", "#include \"runtime/journal/journal.hpp\""));
  CHECK(refused("web/openai/a.cpp", "#include \"web/front/model_offers.hpp\""));
  CHECK(refused("planners/a.cpp", "int a;"));
  CHECK(refused("planners/nowhere/a.cpp", "int a;"));
  CHECK_FALSE(refused("planners/frenzy/a.cpp", "#include \"planners/plans/has.hpp\""));
  CHECK_FALSE(refused("actors/worlds/a.cpp", "#include \"actors/gateway/gateway.hpp\""));
  CHECK_FALSE(refused("tests/planners/a.cpp", "#include \"planners/plans/has.hpp\""));
}

TEST_CASE("no folder is on two floors, and the floors can be printed") {
  const auto text = text_of_floors();
  CHECK(text.find("runtime: host < process < keeper < journal < world < virtual, zeromq\n") !=
        std::string::npos);
  std::set<std::string> seen;
  for (const auto& m : all_floors())
    for (const auto& floor : m.floors)
      for (const auto& folder : floor) CHECK(seen.insert(m.module + "/" + folder).second);
  CHECK(seen.size() > 50);
}

TEST_CASE("some folders must not include others, although those are on lower floors") {
  CHECK(refused("actors/gateway/a.cpp", "#include \"actors/training/trainer/trainer.hpp\""));
  CHECK(refused("gpu/cpu/a.cpp", "#include \"gpu/cuda/runtime/machine.hpp\""));
  CHECK(refused("web/openai/a.cpp", "#include \"actors/serving/front/completions.hpp\""));
  CHECK_FALSE(refused("web/front/a.cpp", "#include \"actors/serving/front/completions.hpp\""));
}

TEST_CASE("an include with .. is refused everywhere") {
  CHECK(refused("actors/worlds/a.cpp", "#include \"../runtime/host/clock.hpp\""));
  CHECK(refused("tests/a.cpp", "#include \"a/../b.hpp\""));
}

TEST_CASE("a library's header is refused outside the modules that own it") {
  CHECK(refused("actors/worlds/a.cpp", "#include <zmq.hpp>"));
  CHECK(refused("actors/worlds/a.cpp", "#include <sqlite3.h>"));
  CHECK(refused("actors/worlds/a.cpp", "#include <cuda_runtime.h>"));
  CHECK(refused("planners/policy/a.cpp", "#include <caf/all.hpp>"));
  CHECK(refused("planners/policy/a.cpp", "#include <chrono>"));
  CHECK(refused("runtime/host/a.cpp", "#include <yaml-cpp/yaml.h>"));
  CHECK(refused("cli/output/a.cpp", "#include <msgpack.hpp>"));
  CHECK_FALSE(refused("runtime/host/a.cpp", "#include <zmq.hpp>"));
  CHECK_FALSE(refused("planners/solver/a.cpp", "#include <coin/CbcModel.hpp>"));
  CHECK(refused("planners/crius/a.cpp", "#include <coin/CbcModel.hpp>"));
}

TEST_CASE("clocks and sleeps are refused outside runtime, gpu and bench") {
  CHECK(refused("actors/worlds/a.cpp", "auto t = std::chrono::steady_clock::now();"));
  CHECK(refused("cli/output/a.cpp", "auto t = time(nullptr);"));
  CHECK(refused("tests/actors/a.cpp", "std::this_thread::sleep_for(1s);"));
  CHECK_FALSE(refused("runtime/host/a.cpp", "auto t = std::chrono::system_clock::now();"));
  CHECK_FALSE(refused("bench/a.cpp", "auto t = std::chrono::system_clock::now();"));
  CHECK_FALSE(refused("planners/policy/a.cpp", "double iteration_time(0);"));
}

TEST_CASE("rules ignore comments and literals") {
  CHECK_FALSE(refused("actors/worlds/a.cpp", "int a;  // steady_clock::now is banned"));
  CHECK_FALSE(refused("actors/worlds/a.cpp", "auto s = \"steady_clock::now\";"));
  CHECK_FALSE(refused("actors/worlds/a.cpp", "auto s = R\"(steady_clock::now)\";"));
  CHECK(
      said("actors/worlds/a.cpp", "/* one\n sleep_for */ int a;\nchar q = '\"'; sleep_for(1);\n") ==
      "3: sleeps; waiting belongs to runtime/\n");
  CHECK(said("actors/worlds/a.cpp", "int n = 1'000; sleep_for(n);\n") ==
        "1: sleeps; waiting belongs to runtime/\n");
}

TEST_CASE("other random number generators are refused everywhere") {
  CHECK(refused("runtime/host/a.cpp", "int x = std::rand();"));
  CHECK(refused("tests/a.cpp", "std::mt19937_64 engine;"));
  CHECK(refused("actors/worlds/a.cpp", "std::random_device d;"));
}

TEST_CASE("unordered containers and pointer keys need a reason in planners and actors") {
  CHECK(refused("planners/policy/a.cpp", "std::unordered_map<int, int> m;"));
  CHECK(refused("actors/worlds/a.cpp", "std::map<const node*, int> m;"));
  CHECK(refused("actors/worlds/a.cpp", "std::set<node *> m;"));
  CHECK_FALSE(refused("planners/policy/a.cpp",
                      "std::unordered_map<int, int> m;  // order never reaches an output"));
  CHECK_FALSE(refused("cli/output/a.cpp", "std::unordered_map<int, int> m;"));
  CHECK_FALSE(refused("planners/policy/a.cpp", "std::map<int, node*> m;"));
}

TEST_CASE("long lines, long files, unguarded headers and unfinished work are refused") {
  CHECK(refused("cli/output/a.cpp", std::string(101, 'x')));
  CHECK_FALSE(refused("cli/output/a.cpp", std::string(100, 'x')));
  CHECK_FALSE(refused("cli/output/a.cpp",
                      "// " + std::string(48, 'x') + "\xC3\xA4" + std::string(48, 'x')));
  CHECK(refused("cli/output/a.hpp", "int a;"));
  CHECK_FALSE(refused("cli/output/a.hpp", "#pragma once"));
  std::string text;
  for (int i = 0; i < 501; ++i) text += "int a;\n";
  CHECK(said("cli/output/a.cpp", text) == "1: has 501 lines; split it at 500\n");
  CHECK(refused("cli/output/a.cpp", std::string{"// TO"} + "DO: later"));
}

TEST_CASE("a page's links and commands must exist") {
  CHECK(said("README.md", "see [there](docs/there.md#part), [web](https://example.org)\n") == "");
  CHECK(said("docs/a.md", "see [there](there.md)\n") == "");
  CHECK(said("docs/a.md", "see [gone](../gone.md)\n") ==
        "1: links to gone.md, which is not there\n");
  CHECK(said("README.md", "    ./dev demo   # runs\n    ./dev fly\n") ==
        "2: ./dev has no command 'fly'\n");
  CHECK(said("README.md", "```\n$ troupe plan configs/there.yaml\n$ troupe fly\n```\n") ==
        "3: troupe has no verb 'fly'\n");
  CHECK(said("README.md", "    troupe plan configs/gone.yaml\n") ==
        "1: names configs/gone.yaml, which is not there\n");
}

TEST_CASE("a source that a CMake file names must exist") {
  const auto* list = "tests/fuzz/CMakeLists.txt";
  CHECK(said(list, "x(${A}/b.cpp sources.cpp\n  cli/verbs/there.cpp)\n") == "");
  CHECK(said(list, "x(verbs/there.cpp ../../cli/verbs/there.cpp)\n") == "");
  CHECK(said(list, "# cli/gone.cpp\nx(\"cli/gone.cpp\")\n") ==
        "2: names cli/gone.cpp, which is not there\n");
  CHECK(refused("cmake/a.cmake", "set(a gpu/gone.cu)"));
}

TEST_CASE("the commands of ./dev are read from its text") {
  const auto dev =
      read_source("dev", "x) no\ncase \"$verb\" in\n  demo) a ;;\n  help | -h) b ;;\n");
  CHECK(read_dev_commands(dev) == std::vector<std::string>{"demo", "help"});
}

TEST_CASE("the verbs of troupe are read from their list") {
  const auto list = read_source("verbs.def", "// TROUPE_VERB\nTROUPE_VERB(up, \"Run\")\nx\n");
  CHECK(read_verbs(list) == std::vector<std::string>{"up"});
}

TEST_CASE("a paper is named by its own verbs, its examples and the list of policies alone") {
  const auto include = std::string{"#include \"planners/titan/titan.hpp\""};
  CHECK(refused("actors/worlds/real_host.cpp", include));
  CHECK(refused("cli/verbs/studies/simulate.cpp", include));
  CHECK(refused("studies/a.cpp", "#include \"planners/baselines/sia.hpp\""));
  CHECK_FALSE(refused("cli/verbs/studies/plan_titan.cpp", include));
  CHECK_FALSE(refused("examples/titan/runs.cpp", include));
  CHECK_FALSE(refused("planners/titan/titan.cpp", include));
  CHECK_FALSE(refused("actors/node/a.cpp", "#include \"planners/bubbletea/step_clock.hpp\""));

  CHECK(said("actors/control/status/a.cpp", "bool b = p.name() == \"titan-no-merger\";\n") ==
        "1: names the policy 'titan-no-merger': ask planners::policy_traits\n");
  CHECK(refused("actors/worlds/a.cpp", "auto t = planners::titan_variant(name);"));
  CHECK(refused("planners/policy/a.cpp", "auto p = make_policy(\"frenzy\");"));
  CHECK_FALSE(refused("planners/espresso/a.cpp", "auto p = make_policy(\"frenzy\");"));
  CHECK_FALSE(refused("actors/node/a.cpp", "int x;  // as \"frenzy\" does, and titan"));
  CHECK_FALSE(refused("formats/traces/a.cpp", "if (name == \"titan\") return 1;"));

  const auto list = read_source("policies.def", "// TROUPE_POLICY(name)\nTROUPE_POLICY(a_b)\n");
  CHECK(read_policies(list) == std::vector<std::string>{"a-b"});
}

TEST_CASE("identifiers use the glossary's words") {
  CHECK(said("web/http/a.cpp", "int most_bytes = 0;\n") ==
        "1: 'most_bytes' has 'most'; write max\n");
  CHECK(refused("planners/plans/a.cpp", "double least_ = 0;"));
  CHECK(refused("actors/serving/front/a.cpp", "void hear(int);"));
  CHECK(refused("tests/actors/a.cpp", "int heard_decoder;"));
  CHECK(refused("formats/load/a.cpp", "  return no(\"x\");"));
  CHECK_FALSE(refused("formats/load/a.cpp", "int at_most = almost + newest + whether;"));
  CHECK_FALSE(refused("formats/load/a.cpp", "  // at most one, and the least of all"));
  CHECK_FALSE(refused("formats/load/a.cpp", "auto text = \"most\";"));
}

TEST_CASE("comments begin with their subject") {
  CHECK(said("web/http/a.cpp", "/// What it is.\n") ==
        "1: a comment begins with 'What '; begin with its subject\n");
  CHECK(refused("web/http/a.cpp", "int n = 0;  // Of a request"));
  CHECK(refused("web/http/a.cpp", "// So many are allowed."));
  CHECK(said("web/http/a.cpp", "// A request's size says\n// What it costs.\n") == "");
  CHECK_FALSE(refused("web/http/a.cpp", "auto url = \"https://What is this\";"));
  CHECK_FALSE(refused("web/http/a.cpp", "/// Offers of a decoder."));
}

TEST_CASE("components that use one another through their .cpp files are refused") {
  const auto includes = [](const std::string& path, const std::string& other) {
    return read_source(path, "#include \"" + other + "\"\n");
  };
  const std::vector<source> circle{includes("planners/plans/a.cpp", "planners/plans/a.hpp"),
                                   read_source("planners/plans/a.hpp", "int a;\n"),
                                   includes("planners/plans/b.hpp", "planners/plans/a.hpp")};
  CHECK(check_components(circle).empty());
  auto closed = circle;
  closed[0] = read_source("planners/plans/a.cpp",
                          "#include \"planners/plans/a.hpp\"\n#include \"planners/plans/b.hpp\"\n");
  const auto found = check_components(closed);
  REQUIRE(found.size() == 1);
  CHECK(found[0].text() ==
        "planners/plans/a.cpp:2: closes a dependency cycle of components: planners/plans/a -> "
        "planners/plans/b -> planners/plans/a");
}

TEST_CASE("a folder with more than 30 code files is refused") {
  std::vector<source> files;
  for (int i = 0; i < 30; ++i)
    files.push_back(read_source("web/page/a" + std::to_string(i) + ".js", ""));
  files.push_back(read_source("web/page/README.md", ""));
  CHECK(check_folders(files).empty());
  files.push_back(read_source("web/page/b.py", ""));
  REQUIRE(check_folders(files).size() == 1);
  CHECK(check_folders(files)[0].sentence.starts_with("web/page/ has 31 code files"));
}

TEST_CASE("a function of more than 70 lines is refused") {
  const auto function = [](int lines, const std::string& indent) {
    std::string text = indent + "int f(int x) {\n";
    for (int i = 0; i < lines - 2; ++i) text += indent + "  ++x;\n";
    return text + indent + "}\n";
  };
  const auto rest = [](const std::string& text) {
    return check_functions(read_source("planners/plans/a.cpp", text));
  };
  CHECK(rest(function(70, "")).empty());
  REQUIRE(rest("int a;\n" + function(71, "")).size() == 1);
  CHECK(rest("int a;\n" + function(71, ""))[0].text() ==
        "planners/plans/a.cpp:2: begins a function of 71 lines; 70 are allowed");
  const auto in_class = [&](int lines) { return "class c {\n" + function(lines, "  ") + "};\n"; };
  CHECK(rest(in_class(70)).empty());
  CHECK(rest(in_class(71)).size() == 1);
  CHECK(rest("namespace a {\n" + function(69, "") + function(69, "") + "}\n").empty());
}

TEST_CASE("a page whose list is not the code's is refused") {
  std::map<std::string, std::string> files{
      {"cli/verbs/verbs.def", "TROUPE_VERB(up, \"Run\")\nTROUPE_VERB(down, \"Stop\")\n"},
      {"cli/README.md", "`up`, `down`\n"},
      {"messages/wire/journal.hpp",
       "using any_journal_entry =\n    std::variant<a, b, c, d, e, f,\n g, h, i, j, k>;\n"}};
  auto& page = files["docs/architecture.md"];
  for (const auto& m : all_floors()) page += floors_row(m.module) + " |\n";
  page += "It defines eleven kinds of entry.\n";
  const auto found = [&] {
    return check_lists([&](const std::string& path) { return read_source(path, files.at(path)); });
  };
  CHECK(found().empty());
  const auto with = [&](const std::string& path, const std::string& old, const std::string& by) {
    const auto before = files.at(path);
    auto& text = files.at(path);
    text.replace(text.find(old), old.size(), by);
    const auto all = found();
    files.at(path) = before;
    return all.size() == 1 ? all[0].text() : std::to_string(all.size()) + " findings";
  };
  CHECK(with("cli/README.md", "`down`", "") ==
        "cli/README.md:1: lacks the verb `down` of cli/verbs/verbs.def");
  CHECK(with("messages/wire/journal.hpp", ", k", "").find("\"defines ten kinds of entry\"") !=
        std::string::npos);
  CHECK(with("docs/architecture.md", "`schedule`", "`plan`").find("| `planners` | ") !=
        std::string::npos);
}

TEST_CASE("identifiers of the page's scripts have the glossary's words") {
  CHECK(said("web/page/a.js", "const most_nodes = 3;\n") ==
        "1: 'most_nodes' has 'most'; write max\n");
  CHECK(said("web/page/a.js", "const text = `at most ${n}`;\n").empty());
}
