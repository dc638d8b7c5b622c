#include "cli/options/policy_option.hpp"

#include <algorithm>
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

// -- parameters

std::vector<std::string> names_of(const std::vector<planners::parameter>& all) {
  std::vector<std::string> names;
  for (const auto& p : all) names.push_back(p.name());
  return names;
}

/// "sia: fairness_power, ...; troupe: ...". Variants have the parameters of the policy before them.
std::string known_parameters() {
  std::string text;
  std::vector<std::string> before;
  for (const auto name : planners::policy_names()) {
    auto names = names_of(planners::make_policy(name)->parameters());
    if (!names.empty() && names != before)
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", name, fmt::join(names, ", "));
    before = std::move(names);
  }
  return text + " (and their variants)";
}

tl::unexpected<reason> refusal(const formats::policy_setting& s, const std::string& problem) {
  return refuse(reason::kind::invalid, s.origin + problem);
}

expected<void> set(planners::policy& p, const formats::policy_setting& s) {
  const auto all = p.parameters();
  const auto at = std::ranges::find(all, s.name, &planners::parameter::name);
  if (at != all.end()) {
    const auto done = at->set(s.value);
    return done ? done : refusal(s, done.error().text);
  }
  if (s.policy.empty()) return {};
  if (all.empty())
    return refusal(s, fmt::format("{} has no options; {}", s.policy, known_parameters()));
  return refusal(s, fmt::format("{} has no option '{}'; it has {}", s.policy, shown(s.name),
                                fmt::join(names_of(all), ", ")));
}

/// A word such as "sia.fairness_power=-1".
expected<formats::policy_setting> read_setting(const std::string& word) {
  formats::policy_setting s{fmt::format("--policy-option {}: ", shown(word)), {}, {}, 0};
  const auto dot = word.find('.'), equal = word.find('=');
  const auto value =
      equal == word.npos ? std::nullopt : formats::parse_number(word.substr(equal + 1));
  // A point behind the sign is the number's.
  if (dot == 0 || dot == word.npos || !value || dot > equal)
    return refusal(s, "expected POLICY.NAME=NUMBER, such as sia.fairness_power=-1");
  s.policy = word.substr(0, dot);
  s.name = word.substr(dot + 1, equal - dot - 1);
  s.value = *value;
  return s;
}

struct all_settings {
  std::vector<formats::policy_setting> usual, own;  // a verb's and a file's; its user's
};

expected<all_settings> settings_of(const policy_setup& setup) {
  all_settings all{setup.usual, {}};
  if (!setup.cluster_file.empty()) {
    auto of_file = formats::load_policy_settings(setup.cluster_file);
    if (!of_file) return refuse(of_file.error());
    // A file may have those of a plug-in that does not run now; values of others are checked.
    for (auto& s : *of_file) {
      if (const auto p = planners::make_policy(s.policy))
        if (auto ok = set(*p, s); !ok) return refuse(ok.error());
      all.usual.push_back(std::move(s));
    }
  }
  for (const auto& word : setup.words) {
    auto s = read_setting(word);
    if (!s) return refuse(s.error());
    all.own.push_back(std::move(*s));
  }
  return all;
}

expected<void> prepare(planners::policy& p, const all_settings& settings,
                       const planners::policy_inputs& inputs) {
  p.use(inputs);
  for (const auto* list : {&settings.usual, &settings.own})
    for (const auto& s : *list)
      if (s.policy.empty() || s.policy == p.name())
        if (auto ok = set(p, s); !ok) return ok;
  return {};
}

expected<std::shared_ptr<const planners::policy>> made(const std::string& word,
                                                       const all_settings& settings,
                                                       const planners::policy_inputs& inputs) {
  const auto prepared = [&](planners::policy& p) { return prepare(p, settings, inputs); };
  if (is_plugin(word)) return load_policy_plugin(word, prepared);
  std::shared_ptr<planners::policy> policy = planners::make_policy(word);
  if (!policy) return refuse(unknown_policy(word));
  if (auto ok = prepared(*policy); !ok) return refuse(ok.error());
  return policy;
}

}  // namespace

void add_policy_option(CLI::App& app, std::vector<std::string>& words) {
  app.add_option("--policy-option", words,
                 "A policy's parameter, such as sia.fairness_power=-1; may be given several "
                 "times. " +
                     known_parameters())
      ->allow_extra_args(false);  // the next word may be a file of the verb's
}

std::string known_policies() {
  return built_in() + ", or a plug-in's file (./libmine.so, mine.py)";
}

expected<std::shared_ptr<const planners::policy>> find_policy(const std::string& word,
                                                              const policy_setup& setup) {
  auto one = find_policies({word}, setup);
  if (!one) return refuse(one.error());
  return std::move(one->front());
}

expected<policy_list> find_policies(const std::vector<std::string>& words,
                                    const policy_setup& setup) {
  const auto settings = settings_of(setup);
  if (!settings) return refuse(settings.error());
  policy_list found;
  std::map<std::string, std::string> word_of;  // by the policy's name
  for (const auto& word : words) {
    auto policy = made(word, *settings, setup.inputs);
    if (!policy) return refuse(policy.error());
    const auto [same, first] = word_of.emplace((*policy)->name(), word);
    // A plug-in may call its policy like another plug-in's; the same word twice is harmless.
    if (!first && same->second != word)
      return refuse(reason::kind::invalid,
                    fmt::format("{}: its policy '{}' has the same name as that of {}", word,
                                same->first, same->second));
    found.push_back(std::move(*policy));
  }
  // A setting of a policy that does not run is most likely a mistyped name.
  std::vector<std::string> names;
  for (const auto& p : found) names.emplace_back(p->name());
  for (const auto& s : settings->own)
    if (std::ranges::find(names, s.policy) == names.end())
      return refusal(s, fmt::format("{} is not among the policies ({})", shown(s.policy),
                                    fmt::join(names, ", ")));
  return found;
}

}  // namespace troupe::cli
