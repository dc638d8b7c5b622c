#include "planners/search/space/plan_space.hpp"

#include <algorithm>
#include <vector>

namespace troupe::planners {

std::span<const plan_space> plan_spaces() {
  static const std::vector<plan_space> all = {
#define TROUPE_SPACE(name, datacenters, tensor, rows, cut, kinds, shares, mixed, fine) \
  {datacenters, tensor, rows, cut, kinds, shares, mixed, fine, name},
#include "planners/search/space/plan_spaces.def"
#undef TROUPE_SPACE
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
