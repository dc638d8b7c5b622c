#pragma once

#include <memory>
#include <string>

#include "messages/base/reason.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::cli {

/// Is it a plug-in file rather than a policy's name? It contains a slash or ends in ".so".
bool is_plugin(const std::string& word);

/// The policy of a plug-in (planners/policy/policy_plugin.hpp). Its code runs with this program's
/// rights and stays loaded. Its exceptions and invalid decisions become planners::policy_failure;
/// every error begins with the file.
expected<std::shared_ptr<const planners::policy>> load_policy_plugin(const std::string& file);

}  // namespace troupe::cli
