#include "planners/search/space/plan_space.hpp"

#include <algorithm>
#include <vector>

namespace troupe::planners {

std::span<const plan_space> plan_spaces() {
  // Several datacenters, tensor by stage, rows, cut, kinds, shares, mixed pipelines.
  static const std::vector<plan_space> all = {
      {true, true, true, true, true, true, true, "full"},
      {true, true, true, true, false, false, true, "alike"},
      {true, true, true, true, true, false, true, "sailor"},
      {false, false, false, false, false, false, false, "even"},
      {true, false, false, false, false, false, true, "atlas"},
      {false, false, false, true, false, false, false, "espresso"},
      {false, true, false, false, false, false, false, "crius"},
      {false, false, true, true, false, false, false, "marp"},
  };
  return all;
}

std::optional<plan_space> space_named(std::string_view name) {
  const auto all = plan_spaces();
  const auto at = std::ranges::find(all, name, &plan_space::name);
  if (at == all.end()) return {};
  return *at;
}

}  // namespace troupe::planners
