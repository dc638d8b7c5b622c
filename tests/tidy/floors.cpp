#include "tidy/floors.hpp"

#include <regex>

namespace troupe::tidy {

const std::vector<module_floors>& all_floors() {
  static const std::vector<module_floors> all = {
      {"messages", {{"base"}, {"domain"}, {"wire"}, {"codec"}, {"admission"}}},
      {"planners",
       {{"model", "solver"},
        {"cluster"},
        {"schedule", "replicas"},
        {"devices"},
        {"cost"},
        {"plans"},
        {"search"},
        {"search/space"},
        {"search/job_space"},
        {"policy"},
        // Each published system, and each policy, stands alone.
        {"frenzy", "baselines", "espresso", "crius", "bubbletea", "troupe", "serving", "titan"}}},
      {"formats", {{"parse"}, {"load"}, {"traces"}}},
      {"runtime",
       {{"host"}, {"process"}, {"keeper"}, {"journal"}, {"world"}, {"virtual", "zeromq"}}},
      {"text", {{"base", "json"}, {"jinja", "tokens"}, {"chat"}}},
      {"gpu",
       {{"files"},
        {"device"},
        {"model"},
        {"tensor_parallel", "saving"},
        {"inference"},
        {"examples"},
        {"cuda/kernels"},
        {"cuda/runtime"},
        {"cuda/collectives"},
        {"cpu/kernels"},
        {"cpu", "cuda/host", "cuda/probe", "worker"},
        {"profiling"},
        {"kinds"}}},
      {"actors",
       {{"protocol", "training/collectives", "training/replicas"},
        {"serving/front", "serving/decoder"},
        {"serving/prefill"},
        {"training/planning"},
        {"training/lending"},
        {"training/device"},
        {"training/stage"},
        {"training/trainer"},
        {"control/interfaces"},
        {"control/ledger"},
        {"client", "control/leases", "control/scheduling", "control/status", "gateway", "node"},
        {"worlds"}}},
      {"web", {{"http"}, {"openai", "dashboard"}, {"front", "report"}}},
      {"cli",
       {{"output"},
        {"connection", "options", "programs"},
        {"cluster"},
        {"reports", "verbs"},
        {"verbs/files", "verbs/jobs", "verbs/cluster", "verbs/serving"},
        {"verbs/studies"},
        {""}}},
  };
  return all;
}

namespace {

/// The floor of the file's folder, and the folder's name in the module; none: it is not listed.
std::optional<std::pair<std::size_t, std::string>> floor_of(const module_floors& m,
                                                            const std::string& path) {
  const auto name = path.rfind('/');
  auto folder = name > m.module.size()
                    ? path.substr(m.module.size() + 1, name - m.module.size() - 1)
                    : std::string{};
  for (std::size_t i = 0; i < m.floors.size(); ++i)
    for (const auto& f : m.floors[i])
      if (f == folder) return std::pair{i, folder};
  return {};
}

}  // namespace

std::vector<finding> check_floors(const source& s) {
  static const std::regex include{R"text(\s*#\s*include\s*"([^"]+)".*)text"};
  std::vector<finding> out;
  for (const auto& m : all_floors()) {
    if (m.module != s.module()) continue;
    const auto own = floor_of(m, s.path);
    if (!own) {
      out.push_back({s.path, 1, "is in a folder that tests/tidy/floors.cpp does not list"});
      continue;
    }
    for (std::size_t i = 0; i < s.code.size(); ++i) {
      std::smatch name;
      if (!std::regex_match(s.code[i], name, include)) continue;
      const std::string path = name[1];
      if (!path.starts_with(m.module + "/")) continue;
      const auto other = floor_of(m, path);
      if (!other || other->second == own->second || other->first < own->first) continue;
      out.push_back({s.path, i + 1,
                     m.module + "/" + own->second + "/ must not use " + m.module + "/" +
                         other->second + "/, which is not on a lower floor"});
    }
  }
  return out;
}

std::string text_of_floors() {
  std::string text;
  for (const auto& m : all_floors()) {
    text += m.module + ":";
    for (std::size_t i = 0; i < m.floors.size(); ++i) {
      text += i == 0 ? " " : " < ";
      for (std::size_t k = 0; k < m.floors[i].size(); ++k)
        text += (k == 0 ? "" : ", ") + (m.floors[i][k].empty() ? "." : m.floors[i][k]);
    }
    text += "\n";
  }
  return text;
}

}  // namespace troupe::tidy
