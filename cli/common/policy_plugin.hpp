#pragma once

#include <memory>
#include <string>

#include "messages/reason.hpp"
#include "planners/core/policy.hpp"

namespace troupe::cli {

/// Does the word name a plug-in's file, and not a policy? It has a slash in it, or ends in ".so".
bool is_plugin(const std::string& word);

/// The policy of a plug-in (planners/core/policy_plugin.hpp). Its code runs with this program's
/// rights, and stays loaded. What it throws later, and decisions that make no sense, come as
/// planners::policy_failure; every sentence, here and there, begins with the file.
expected<std::shared_ptr<const planners::policy>> load_policy_plugin(const std::string& file);

}  // namespace troupe::cli
