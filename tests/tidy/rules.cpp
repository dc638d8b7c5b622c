#include "tidy/rules.hpp"

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "tidy/floors.hpp"

namespace troupe::tidy {

namespace {

using names = std::set<std::string>;

// A module may include from itself and from these. tests/ and bench/ may include from every module.
const std::map<std::string, names> may_use = {
    {"messages", {}},
    {"planners", {"messages"}},
    {"formats", {"messages"}},
    {"runtime", {"messages"}},
    {"text", {"messages"}},
    {"gpu", {"messages", "text"}},
    {"actors", {"messages", "planners", "runtime", "gpu"}},
    {"studies", {"messages", "planners", "runtime", "actors"}},
    {"web", {"messages", "runtime", "text", "gpu", "actors"}},
    {"cli",
     {"messages", "planners", "runtime", "text", "gpu", "actors", "studies", "formats", "web"}},
    {"python", {"messages", "planners"}},
    {"examples", {"messages", "planners", "runtime", "actors", "studies", "formats"}},
};

/// The folders of its own module that a sub-module must not include, by the beginnings of paths.
struct separation {
  const char* folder;
  std::vector<const char*> without;
  const char* except = nullptr;  // a folder inside that may
};

// Beside the floors (floors.cpp), which forbid what is higher or beside.
const std::vector<separation> separate = {
    {"actors/control/", {"actors/serving/", "actors/training/"}},
    {"actors/gateway/", {"actors/training/"}},
    {"actors/client/", {"actors/serving/", "actors/training/"}},
    {"gpu/cuda/", {"gpu/cpu/"}},
    {"gpu/cpu/", {"gpu/cuda/"}},
    {"gpu/inference/", {"gpu/cuda/"}},
    {"web/", {"actors/"}, "web/front/"},
};

struct library {
  const char* pattern;  // of the included name
  names modules;        // that may include it, apart from tests and bench
};

const std::vector<library> libraries = {
    {"caf/.*", {"runtime", "actors", "cli", "examples"}},
    {"zmq\\.hpp|zmq\\.h|zmq_addon\\.hpp", {"runtime"}},
    {"sqlite3\\.h", {"runtime"}},
    {"(cuda|nccl|cublas|cudnn).*", {"gpu"}},
    {"msgpack.*", {"messages"}},
    {"yaml-cpp/.*", {"formats"}},
    {"(coin|cbc)/.*|Cbc.*|Osi.*|Coin.*", {"planners/solver"}},
    {"CLI/.*", {"cli", "examples"}},
    {"boost/.*", {"web"}},
    {"prometheus/.*", {"web"}},
    {"sodium.*", {"web"}},
    {"simgrid/.*", {}},
    {"pybind11/.*|Python\\.h", {"python"}},
    {"(thread|mutex|shared_mutex|future|condition_variable|atomic)",
     {"runtime", "gpu", "actors", "web", "cli", "examples", "python"}},
    {"(fstream|iostream|filesystem|cstdio|chrono|ctime)",
     {"runtime", "text", "gpu", "actors", "formats", "web", "cli", "examples", "python"}},
};

struct forbidden {
  const char* pattern;
  names modules;  // paths, or their first parts, where it may be
  const char* sentence;
};

const std::vector<forbidden> forbidden_code = {
    {R"((system|steady)_clock\s*::\s*now|high_resolution_clock|gettimeofday|clock_gettime)"
     R"(|\btime\s*\(\s*(nullptr|NULL|0|&))",
     {"runtime", "bench", "text/chat", "text/jinja", "gpu", "tests/runtime", "tests/gpu",
      "tests/chaos"},
     "reads a clock; time is an argument outside runtime/"},
    {R"(\bsleep_(for|until)\b|\bu?sleep\s*\(|\bnanosleep\s*\()",
     {"runtime", "bench", "gpu", "tests/runtime", "tests/gpu", "tests/chaos"},
     "sleeps; waiting belongs to runtime/"},
    {R"(\bifstream\b|\bmmap\s*\()",
     {"bench", "cli", "examples", "formats", "gpu/cuda", "gpu/profiling", "gpu/worker", "runtime",
      "tests", "web"},
     "opens a file that a job may have named: use messages/base/untrusted_file.hpp"},
    {R"(\bs?rand\s*\(|\brandom_device\b|\bmt19937|\bdefault_random_engine\b|\bminstd_rand)",
     {},
     "random numbers come from messages/base/random.hpp only"},
    {R"(\bstdout\b|\bstd::cout\b|\bputs\s*\(|\bfmt::print\s*\((?!\s*stderr\b))",
     {"bench", "examples", "tests", "cli/output/standard_output.cpp",
      "runtime/virtual/virtual_coordinator.cpp"},
     "writes to standard output unseen: use cli/output/standard_output.hpp, which notices a "
     "failure"},
    {R"(\bcurrent_path\s*\(\s*\)|\b(fs|filesystem)::absolute\s*\()",
     {"bench", "tests"},
     "throws in a directory that was deleted: use messages/base/absolute_path.hpp"},
};

// In these modules order reaches an output: an exception needs a reason next to it.
const char* const order_excuse = "// order never reaches an output";
const std::vector<forbidden> forbidden_order = {
    {R"(\bunordered_\w+)", {}, "an unordered container's order is not the same everywhere"},
    {R"(\b(map|set)\s*<\s*(const\s+)?[\w:]+(\s+const)?\s*\*)",
     {},
     "a container ordered by addresses differs from run to run"},
};

bool allowed(const source& s, const names& where) {
  return std::any_of(where.begin(), where.end(), [&](const std::string& w) {
    return s.path.starts_with(w + "/") || s.path == w;
  });
}

bool may_use_all(const source& s) {
  return s.module() == "tests" || s.module() == "bench";
}

finding at(const source& s, std::size_t index, std::string sentence) {
  return {s.path, index + 1, std::move(sentence)};
}

bool must_be_separate(const std::string& path, const std::string& included) {
  return std::any_of(separate.begin(), separate.end(), [&](const separation& rule) {
    return path.starts_with(rule.folder) && !(rule.except && path.starts_with(rule.except)) &&
           std::any_of(rule.without.begin(), rule.without.end(),
                       [&](const char* folder) { return included.starts_with(folder); });
  });
}

void check_include(const source& s, std::size_t i, const std::string& name, bool quoted,
                   std::vector<finding>& out) {
  if (name.starts_with("../") || name.find("/../") != std::string::npos) {
    out.push_back(at(s, i, "includes upwards; write \"module/file.hpp\""));
    return;
  }
  if (may_use_all(s)) return;
  const auto module = name.substr(0, name.find('/'));
  const auto rule = may_use.find(s.module());
  if (quoted && rule != may_use.end() && may_use.count(module) && module != s.module() &&
      !rule->second.count(module))
    out.push_back(at(s, i, s.module() + "/ must not use " + module + "/"));
  if (quoted && must_be_separate(s.path, name))
    out.push_back(at(s, i,
                     s.path.substr(0, s.path.rfind('/')) + "/ must not use " +
                         name.substr(0, name.rfind('/')) + "/"));
  for (const auto& lib : libraries)
    if (!allowed(s, lib.modules) && std::regex_match(name, std::regex{lib.pattern}))
      out.push_back(at(s, i, s.module() + "/ must not include <" + name + ">"));
}

void check_codes(const source& s, const std::vector<forbidden>& rules, std::vector<finding>& out) {
  for (const auto& rule : rules) {
    if (allowed(s, rule.modules)) continue;
    const std::regex pattern{rule.pattern};
    for (std::size_t i = 0; i < s.code.size(); ++i) {
      if (s.code[i].starts_with("#include")) continue;
      if (std::regex_search(s.code[i], pattern) &&
          s.lines[i].find(order_excuse) == std::string::npos)
        out.push_back(at(s, i, rule.sentence));
    }
  }
}

/// Columns, not bytes: a UTF-8 continuation byte is none.
std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::vector<finding> check_includes(const source& s) {
  static const std::regex include{R"(\s*#\s*include\s*([<"])([^>"]+)[>"].*)"};
  std::vector<finding> out;
  for (std::size_t i = 0; i < s.code.size(); ++i) {
    std::smatch m;
    if (std::regex_match(s.code[i], m, include)) check_include(s, i, m[2], m[1] == "\"", out);
  }
  return out;
}

std::vector<finding> check_determinism(const source& s) {
  std::vector<finding> out;
  check_codes(s, forbidden_code, out);
  const auto module = s.module();
  if (module == "planners" || module == "actors" || module == "studies")
    check_codes(s, forbidden_order, out);
  return out;
}

std::vector<finding> check_form(const source& s) {
  static const std::regex unfinished{
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X)\\b"};
  constexpr std::size_t max_lines = 500, max_columns = 100;
  std::vector<finding> out;
  for (std::size_t i = 0; i < s.lines.size(); ++i) {
    if (const auto n = columns(s.lines[i]); n > max_columns)
      out.push_back(at(s, i, "is " + std::to_string(n) + " columns wide; 100 are allowed"));
    if (std::regex_search(s.lines[i], unfinished))
      out.push_back(at(s, i, "marks unfinished work; finish it or open an issue"));
  }
  if (s.lines.size() > max_lines)
    out.push_back(at(s, 0, "has " + std::to_string(s.lines.size()) + " lines; split it at 500"));
  if (s.is_header() && std::find(s.lines.begin(), s.lines.end(), "#pragma once") == s.lines.end())
    out.push_back(at(s, 0, "has no #pragma once"));
  return out;
}

std::vector<finding> check(const source& s, const checkout& c) {
  if (s.path.ends_with(".md")) return check_page(s, c);
  if (s.is_build_file()) return check_build_file(s, c);
  std::vector<finding> out;
  if (s.path.ends_with(".js")) return check_words(s);
  if (!s.is_cpp()) return out;
  for (auto rule :
       {check_includes, check_floors, check_determinism, check_words, check_form, check_functions})
    for (auto& f : rule(s)) out.push_back(std::move(f));
  for (auto& f : check_papers(s, c)) out.push_back(std::move(f));
  return out;
}

}  // namespace troupe::tidy
