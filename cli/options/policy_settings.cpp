#include "cli/options/policy_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>
#include <variant>

#include "formats/parse/reader.hpp"
#include "planners/baselines/sia.hpp"
#include "planners/crius/crius.hpp"
#include "planners/titan/titan.hpp"
#include "planners/troupe/troupe.hpp"

namespace troupe::cli {

namespace {

/// Refers to a number of any type that options have.
class number_ref {
 public:
  template <class T>
  requires(!std::is_same_v<T, number_ref>) number_ref(T& x) : at_{&x} {}

  bool is_whole() const { return !holds<double>() && !holds<std::optional<double>>(); }
  void set(double value) const {
    std::visit(
        [&](auto* at) {
          if constexpr (std::is_same_v<decltype(at), std::optional<double>*>)
            *at = value;
          else
            *at = static_cast<std::remove_reference_t<decltype(*at)>>(value);
        },
        at_);
  }

 private:
  template <class T>
  bool holds() const {
    return std::holds_alternative<T*>(at_);
  }

  std::variant<double*, std::uint32_t*, std::uint64_t*, int*, std::optional<double>*> at_;
};

/// A number of a policy's options.
// One table per policy serves parsing, range checks, error messages and help.
template <class Options>
struct parameter {
  std::string name;
  std::function<number_ref(Options&)> in;  // a member, or a function that finds it
  double low = 0, high = 0;

  bool is_whole() const {
    Options o;
    return in(o).is_whole();
  }
};

/// A member of a member.
template <class Options, class Part, class Number>
auto inside(Part Options::*part, Number Part::*number) {
  return [=](Options& o) { return number_ref{o.*part.*number}; };
}

std::span<const parameter<planners::crius_options>> parameters_of(const planners::crius_options&) {
  using o = planners::crius_options;
  static const parameter<o> all[] = {{"search_depth", &o::search_depth, 0, 100},
                                     {"stay_restarts", &o::stay_restarts, 0, 1e6},
                                     {"change_cost", &o::change_cost, 0, 1e6},
                                     {"max_steps", &o::max_steps, 1, 1e12}};
  return all;
}

std::span<const parameter<planners::sia_options>> parameters_of(const planners::sia_options&) {
  using o = planners::sia_options;
  static const parameter<o> all[] = {{"fairness_power", &o::fairness_power, -100, 100},
                                     {"unassigned", &o::unassigned, 0, 1e6},
                                     {"change", &o::change, 0, 1e6},
                                     {"min_restart_factor", &o::min_restart_factor, 0, 1},
                                     {"max_waiting", &o::max_waiting, 1, 1e6},
                                     {"gap", &o::gap, 0, 1},
                                     {"max_nodes", &o::max_nodes, 1, 1e6}};
  return all;
}

std::span<const parameter<planners::troupe_options>> parameters_of(
    const planners::troupe_options&) {
  using o = planners::troupe_options;
  static const parameter<o> all[] = {
      {"price_factor", &o::price_factor, 0, 1e6},   {"max_load", &o::max_load, 0, 0.999},
      {"arriving", &o::arriving, 0, 1e6},           {"hold_restarts", &o::hold_restarts, 0, 1e6},
      {"min_saving", &o::min_saving, 0, 1e6},       {"stop_cost", &o::stop_cost, 1, 1e6},
      {"overdue_times", &o::overdue_times, 0, 1e9}, {"settle_starts", &o::settle_starts, 0, 1e6},
      {"settle_step", &o::settle_step, 0, 1e6}};
  return all;
}

std::span<const parameter<planners::titan_options>> parameters_of(const planners::titan_options&) {
  using o = planners::titan_options;
  using merge = planners::merge_rules;
  using rules = planners::tuning_rules;
  using limits = planners::titan_limits;
  static const parameter<o> all[] = {
      {"aging_s", &o::aging_s, 0, 1e9},
      {"lead", &o::lead, 0, 1e6},
      {"max_request_factor", &o::max_request_factor, 0, 1e6},
      {"start_s", &o::start_s, 0, 1e6},
      {"similarity", inside(&o::merging, &merge::similarity), 0, 1},
      {"duration_ratio", inside(&o::merging, &merge::duration_ratio), 1, 1e9},
      {"epochs", inside(&o::rules, &rules::epochs), 1e-3, 1e6},
      {"merge_exponent", inside(&o::rules, &rules::merge_exponent), 1, 1e3},
      {"updates_an_epoch", inside(&o::rules, &rules::updates_an_epoch), 1e-3, 1e9},
      {"gap", inside(&o::limits, &limits::gap), 0, 1},
      {"max_nodes", inside(&o::limits, &limits::max_nodes), 1, 1e6}};
  return all;
}

/// Calls `f` with the parameters of the policy of that name; not at all, if it has none.
template <class F>
void with_parameters(const std::string& policy, F&& f) {
  if (planners::crius_variant(policy)) f(parameters_of(planners::crius_options{}));
  if (policy == "sia") f(parameters_of(planners::sia_options{}));
  if (policy == "troupe") f(parameters_of(planners::troupe_options{}));
  if (planners::titan_variant(policy)) f(parameters_of(planners::titan_options{}));
}

std::vector<std::string> names_of(const std::string& policy) {
  std::vector<std::string> names;
  with_parameters(policy, [&](const auto& all) {
    for (const auto& p : all) names.push_back(p.name);
  });
  return names;
}

tl::unexpected<reason> refusal(std::string_view word, const std::string& problem) {
  return refuse(reason::kind::invalid, fmt::format("--policy-option {}: {}", shown(word), problem));
}

expected<void> check(std::string_view word, const std::string& policy, const std::string& name,
                     double value) {
  const auto names = names_of(policy);
  if (names.empty())
    return refusal(word, fmt::format("{} has no options; {}", shown(policy), known_parameters()));
  if (std::ranges::find(names, name) == names.end())
    return refusal(word, fmt::format("{} has no option '{}'; it has {}", policy, shown(name),
                                     fmt::join(names, ", ")));
  std::string problem;
  with_parameters(policy, [&](const auto& all) {
    const auto& p = *std::ranges::find_if(all, [&](const auto& x) { return x.name == name; });
    if (value < p.low || value > p.high || (p.is_whole() && value != std::floor(value)))
      problem = fmt::format("found {:g}, expected a {} from {:g} to {:g}", value,
                            p.is_whole() ? "whole number" : "number", p.low, p.high);
  });
  if (problem.empty()) return {};
  return refusal(word, problem);
}

template <class Options>
Options set_in(Options o, const std::string& policy, const policy_settings& settings) {
  const auto at = settings.find(policy);
  if (at == settings.end()) return o;
  for (const auto& p : parameters_of(o))
    if (const auto value = at->second.find(p.name); value != at->second.end())
      p.in(o).set(value->second);
  return o;
}

}  // namespace

std::string known_parameters() {
  std::string text;
  // Variants have the same parameters.
  for (const std::string policy : {"troupe", "sia", "crius", "titan"})
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", policy,
                        fmt::join(names_of(policy), ", "));
  return text + " (and the variants of crius and titan)";
}

expected<policy_settings> parse_policy_settings(const std::vector<std::string>& words,
                                                const std::vector<std::string>& policies) {
  policy_settings settings;
  for (const auto& word : words) {
    const auto dot = word.find('.'), equal = word.find('=');
    const auto value =
        equal == word.npos ? std::nullopt : formats::parse_number(word.substr(equal + 1));
    // A point behind the sign is the number's.
    if (dot == word.npos || !value || dot > equal)
      return refusal(word, "expected POLICY.NAME=NUMBER, such as sia.fairness_power=-1");
    const auto policy = word.substr(0, dot), name = word.substr(dot + 1, equal - dot - 1);
    // A setting of a policy that does not run is most likely a mistyped name.
    if (std::ranges::find(policies, policy) == policies.end())
      return refusal(word, fmt::format("{} is not among the policies ({})", shown(policy),
                                       fmt::join(policies, ", ")));
    if (auto ok = check(word, policy, name, *value); !ok) return refuse(ok.error());
    settings[policy][name] = *value;
  }
  return settings;
}

std::shared_ptr<const planners::policy> with_settings(std::shared_ptr<const planners::policy> p,
                                                      const policy_settings& settings,
                                                      std::uint32_t search_depth,
                                                      const titan_inputs& inputs) {
  const std::string name{p->name()};
  // Crius and its variants always get the depth of --search-depth, titan and its variants their
  // inputs; the others are made anew only if a parameter is set, so that defaults stay the
  // registry's.
  if (auto crius = planners::crius_variant(name)) {
    crius->search_depth = search_depth;
    if (inputs.log) crius->solve = studies::assignment_solver_with(inputs.log);
    return planners::make_crius(set_in(*crius, name, settings));
  }
  if (name == "sia" && settings.contains(name))
    return planners::make_sia(set_in(planners::sia_options{}, name, settings));
  if (name == "troupe" && settings.contains(name))
    return planners::make_troupe(set_in(planners::troupe_options{}, name, settings));
  if (auto titan = planners::titan_variant(name)) {
    auto o = set_in(*titan, name, settings);
    o.measured = inputs.measured;
    if (inputs.log) o.solve = studies::solver_with(inputs.log);
    return planners::make_titan(o);
  }
  return p;
}

}  // namespace troupe::cli
