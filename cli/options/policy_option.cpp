#include "cli/options/policy_option.hpp"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "formats/parse/reader.hpp"
#include "formats/parse/value.hpp"

namespace troupe::cli {

namespace {

std::string built_in() {
  return fmt::format("{}", fmt::join(planners::policy_names(), ", "));
}

reason unknown_policy(const std::string& name) {
  const auto names = planners::policy_names();
  // A policy is named by a word of a short list, so the nearest one is usually meant.
  const auto near =
      formats::nearest_name(name, std::vector<std::string>{names.begin(), names.end()});
  return {
      reason::kind::invalid,
      fmt::format("no policy '{}'{}; policies: {}, and plug-ins (./libmine.so, mine.py)",
                  shown(name), near ? fmt::format("; did you mean '{}'?", *near) : "", built_in())};
}

}  // namespace

std::string known_policies() {
  return built_in() + ", or a plug-in's file (./libmine.so, mine.py)";
}

expected<std::shared_ptr<const planners::policy>> find_policy(const std::string& word) {
  if (is_plugin(word)) return load_policy_plugin(word);
  std::shared_ptr<const planners::policy> policy = planners::make_policy(word);
  if (!policy) return refuse(unknown_policy(word));
  return policy;
}

expected<policy_list> find_policies(const std::vector<std::string>& words) {
  policy_list found;
  std::map<std::string, std::string> word_of;  // by the policy's name
  for (const auto& word : words) {
    auto policy = find_policy(word);
    if (!policy) return refuse(policy.error());
    const auto [same, first] = word_of.emplace((*policy)->name(), word);
    // A plug-in may call its policy like another plug-in's; the same word twice is harmless.
    if (!first && same->second != word)
      return refuse(reason::kind::invalid,
                    fmt::format("{}: its policy '{}' has the same name as that of {}", word,
                                same->first, same->second));
    found.push_back(std::move(*policy));
  }
  return found;
}

}  // namespace troupe::cli
