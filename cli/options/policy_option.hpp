#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "formats/load/load.hpp"
#include "messages/base/reason.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::cli {

/// The default of --policy in every verb.
inline constexpr const char* default_policy = "troupe";

/// "frenzy, opportunistic, ..., or a plug-in file": for help texts.
std::string known_policies();

/// The settings of the policies that a verb finds. The last value of a parameter counts: `usual`,
/// the cluster file's, then those of the words.
struct policy_setup {
  std::vector<std::string> words{};  // of --policy-option
  std::string cluster_file{};        // with `policy_options:`; empty: none
  std::vector<formats::policy_setting> usual{};
  planners::policy_inputs inputs{};
};

/// --policy-option, as every verb that decides has it.
void add_policy_option(CLI::App& app, std::vector<std::string>& words);

/// The policy named by --policy: a built-in one, or a plug-in's. For
/// an unknown name the error suggests the most similar one and lists all.
expected<std::shared_ptr<const planners::policy>> find_policy(const std::string& word,
                                                              const policy_setup& setup = {});

using policy_list = std::vector<std::shared_ptr<const planners::policy>>;

/// The same for several; their names must differ, since they identify the results.
expected<policy_list> find_policies(const std::vector<std::string>& words,
                                    const policy_setup& setup = {});

/// Is it a file rather than a policy's name? It contains a slash, ends in ".so" or ".py", or is
/// "mine.py:Class".
bool is_plugin(const std::string& word);

/// The object that runs policies in Python, beside the program or in the prefix where that was
/// installed. Optional in the build.
std::optional<std::filesystem::path> python_policies_object();

/// The policy of a plug-in (planners/policy/policy_plugin.hpp) or of a file in Python
/// (python_plugin.hpp), after `prepare`. Its code runs with this program's rights and stays loaded.
/// Its exceptions and invalid decisions become planners::policy_failure; every error begins with
/// the file.
expected<std::shared_ptr<const planners::policy>> load_policy_plugin(
    const std::string& word, const std::function<expected<void>(planners::policy&)>& prepare);

}  // namespace troupe::cli
