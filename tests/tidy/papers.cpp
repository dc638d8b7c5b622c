#include <algorithm>
#include <array>
#include <regex>
#include <set>
#include <string>
#include <string_view>

#include "tidy/rules.hpp"

namespace troupe::tidy {

namespace {

// The folders of policies: bubbletea, serving and the lower floors are used by whoever needs them.
constexpr std::array<std::string_view, 6> folders{"frenzy", "baselines", "espresso",
                                                  "crius",  "titan",     "troupe"};
// The verbs of single papers, by the beginnings of their paths.
constexpr std::array<std::string_view, 3> own_verbs{
    "cli/verbs/studies/plan", "cli/verbs/studies/provision", "cli/reports/cells"};
// Where no policy is known by its name. Traces and workloads of papers are formats' business.
constexpr std::array<std::string_view, 9> nameless{"messages/", "planners/",    "runtime/",
                                                   "text/",     "gpu/",         "actors/",
                                                   "studies/",  "cli/options/", "cli/cluster/"};

bool begins_with_one_of(const std::string& path, const auto& all) {
  return std::ranges::any_of(all, [&](std::string_view x) { return path.starts_with(x); });
}

bool is_of_a_policy(const std::string& path) {
  return std::ranges::any_of(folders, [&](std::string_view folder) {
    return path.starts_with("planners/" + std::string{folder} + "/");
  });
}

/// The policy that a line of code names, in a literal or as a part of an identifier; "": none.
std::string named_policy(const source& s, std::size_t i, const std::vector<std::string>& policies) {
  static const std::regex identifier{R"([A-Za-z][A-Za-z0-9]*)"};
  const auto& code = s.code[i];
  std::set<std::string> words;
  for (std::sregex_iterator at{code.begin(), code.end(), identifier}, end; at != end; ++at)
    words.insert(at->str());
  for (const auto& p : policies) {
    const bool is_literal =
        code.find("\"\"") != code.npos && s.lines[i].find('"' + p + '"') != std::string::npos;
    // The house's own policy has the name of its namespace.
    if (p != "troupe" && (is_literal || words.contains(p))) return p;
  }
  return {};
}

}  // namespace

std::vector<std::string> read_policies(const source& list) {
  static const std::regex entry{R"re(TROUPE_POLICY\((\w+)\).*)re"};
  std::vector<std::string> policies;
  for (const auto& line : list.lines)
    if (std::smatch m; std::regex_match(line, m, entry)) {
      auto name = m[1].str();
      std::ranges::replace(name, '_', '-');
      policies.push_back(std::move(name));
    }
  return policies;
}

std::vector<finding> check_papers(const source& s, const checkout& c) {
  static const std::regex include{R"text(\s*#\s*include\s*"(planners/[^"]+)".*)text"};
  std::vector<finding> out;
  const auto module = s.module();
  if (module == "tests" || module == "bench" || module == "examples" || is_of_a_policy(s.path))
    return out;
  const bool may_include = begins_with_one_of(s.path, own_verbs);
  const bool may_name = !begins_with_one_of(s.path, nameless);
  for (std::size_t i = 0; i < s.code.size(); ++i) {
    std::smatch name;
    if (std::regex_match(s.code[i], name, include)) {
      if (!may_include && is_of_a_policy(name[1]))
        out.push_back({s.path, i + 1,
                       name[1].str() + " is one policy's: only its own verbs and examples may "
                                       "use it; ask planners::policy"});
      continue;
    }
    if (may_name) continue;
    if (const auto policy = named_policy(s, i, c.policies); !policy.empty())
      out.push_back(
          {s.path, i + 1, "names the policy '" + policy + "': ask planners::policy_traits"});
  }
  return out;
}

}  // namespace troupe::tidy
