#include "tidy/tree.hpp"

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace troupe::tidy {

namespace {

std::string without_extension(const std::string& path) {
  return path.substr(0, path.rfind('.'));
}

/// By component: those that it includes, and the first line that does so.
struct component {
  std::map<std::string, std::pair<std::string, std::size_t>> uses;  // path and line
};
using components = std::map<std::string, component>;

components components_of(const std::vector<source>& all) {
  static const std::regex include{R"text(\s*#\s*include\s*"([^"]+)".*)text"};
  components out;
  for (const auto& s : all)
    if (s.is_cpp() && s.module() != "tests" && s.module() != "bench" && s.module() != "examples")
      out[without_extension(s.path)];
  for (const auto& s : all) {
    const auto own = out.find(without_extension(s.path));
    if (!s.is_cpp() || own == out.end()) continue;
    for (std::size_t i = 0; i < s.code.size(); ++i) {
      std::smatch name;
      if (!std::regex_match(s.code[i], name, include)) continue;
      const auto other = without_extension(name[1]);
      if (other != own->first && out.count(other))
        own->second.uses.emplace(other, std::pair{s.path, i + 1});
    }
  }
  return out;
}

/// The first circle from a component back to it; empty: there is none.
class circle_search {
 public:
  explicit circle_search(const components& all) : all_{all} {}

  std::vector<std::string> from(const std::string& start) {
    start_ = start;
    path_ = {start};
    seen_.clear();
    return visit(start) ? path_ : std::vector<std::string>{};
  }

 private:
  bool visit(const std::string& at) {
    for (const auto& [next, where] : all_.at(at).uses) {
      if (next == start_) return true;
      if (!seen_.insert(next).second) continue;
      path_.push_back(next);
      if (visit(next)) return true;
      path_.pop_back();
    }
    return false;
  }

  const components& all_;
  std::string start_;
  std::vector<std::string> path_;
  std::set<std::string> seen_;
};

}  // namespace

std::vector<finding> check_components(const std::vector<source>& all) {
  const auto by_name = components_of(all);
  circle_search search{by_name};
  std::vector<finding> out;
  std::set<std::string> known;
  for (const auto& [name, c] : by_name) {
    if (known.count(name)) continue;
    const auto circle = search.from(name);
    if (circle.empty()) continue;
    known.insert(circle.begin(), circle.end());
    std::string text;
    for (const auto& step : circle) text += step + " -> ";
    const auto& [path, line] = c.uses.at(circle.size() > 1 ? circle[1] : name);
    out.push_back({path, line, "closes a dependency cycle of components: " + text + name});
  }
  return out;
}

std::vector<finding> check_folders(const std::vector<source>& all) {
  constexpr std::size_t max_files = 30;
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& s : all)
    if (s.is_code()) files[s.path.substr(0, s.path.rfind('/'))].push_back(s.path);
  std::vector<finding> out;
  for (const auto& [folder, paths] : files)
    if (paths.size() > max_files)
      out.push_back(
          {paths.front(), 1,
           folder + "/ has " + std::to_string(paths.size()) +
               " code files; 30 are allowed: move some of them into a folder of their own"});
  return out;
}

}  // namespace troupe::tidy
