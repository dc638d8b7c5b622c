#pragma once

#include <memory>
#include <string>
#include <vector>

#include "messages/reason.hpp"
#include "planners/core/policy.hpp"

namespace troupe::cli {

/// "frenzy, opportunistic, ..., or a plug-in file": for help texts.
std::string known_policies();

/// The policy that --policy names: one of Troupe's, or a plug-in's (cli/common/policy_plugin.hpp).
/// Of a name that nothing has, it says the nearest one, and all there are.
expected<std::shared_ptr<const planners::policy>> find_policy(const std::string& word);

using policy_list = std::vector<std::shared_ptr<const planners::policy>>;

/// The same for several, whose results are told apart by their names: two files' policies must not
/// have the same.
expected<policy_list> find_policies(const std::vector<std::string>& words);

}  // namespace troupe::cli
