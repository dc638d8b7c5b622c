#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/reason.hpp"
#include "planners/cost/lookup_table.hpp"
#include "planners/policy/policy.hpp"
#include "studies/solve_log.hpp"

namespace troupe::cli {

/// Values of policies' parameters: of --policy-option, by policy and name.
using policy_settings = std::map<std::string, std::map<std::string, double>>;

/// Words such as "sia.fairness_power=-1", whose policies are among `policies`. Refuses a word of
/// another form, a policy that has no such parameter, and a value outside of its range.
expected<policy_settings> parse_policy_settings(const std::vector<std::string>& words,
                                                const std::vector<std::string>& policies);

/// "sia: fairness_power, ...": for help texts.
std::string known_parameters();

/// Inputs of titan's policies besides their parameters.
struct titan_inputs {
  std::shared_ptr<const planners::lookup_table> measured{};  // null: none
  std::shared_ptr<studies::solve_log> log{};  // gets what they solve; null: nothing does
};

/// The policy with these settings, and crius' search depth; as it is, if it has no parameters.
/// `settings` are parse_policy_settings()'s.
std::shared_ptr<const planners::policy> with_settings(std::shared_ptr<const planners::policy> p,
                                                      const policy_settings& settings,
                                                      std::uint32_t search_depth,
                                                      const titan_inputs& inputs = {});

}  // namespace troupe::cli
