#include "cli/common/policy_option.hpp"

#include <vector>

#include <fmt/format.h>

#include "formats/parse/reader.hpp"
#include "formats/parse/value.hpp"
#include "planners/core/policy.hpp"

namespace troupe::cli {

std::string known_policies() {
  const auto names = planners::policy_names();
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string unknown_policy(const std::string& name) {
  const auto names = planners::policy_names();
  const auto near =
      formats::nearest_name(name, std::vector<std::string>{names.begin(), names.end()});
  return fmt::format("no policy '{}'{}; policies: {}", formats::shown(name),
                     near ? fmt::format("; did you mean '{}'?", *near) : "", known_policies());
}

}  // namespace troupe::cli
