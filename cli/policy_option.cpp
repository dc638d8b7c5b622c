#include "cli/policy_option.hpp"

#include <vector>

#include <fmt/format.h>

#include "configs/reader.hpp"
#include "configs/value.hpp"
#include "planners/policy.hpp"

namespace troupe::cli {

std::string known_policies() {
  const auto names = planners::policy_names();
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string unknown_policy(const std::string& name) {
  const auto names = planners::policy_names();
  const auto near =
      configs::nearest_name(name, std::vector<std::string>{names.begin(), names.end()});
  return fmt::format("there is no policy '{}'{}; there are {}", configs::shown(name),
                     near ? fmt::format("; did you mean '{}'?", *near) : "", known_policies());
}

}  // namespace troupe::cli
