#include "planners/policy/policy.hpp"

#include <algorithm>

namespace troupe::planners {

#define TROUPE_POLICY(name) std::unique_ptr<policy> make_##name();
#include "planners/policy/policies.def"
#undef TROUPE_POLICY

// policies.def is the one list of policies: this file makes a factory table of it, and the names
// of the command line follow. Beside it a policy needs a line in CMakeLists.txt.

namespace {

struct entry {
  std::string name;
  std::unique_ptr<policy> (*make)();
};

const std::vector<entry>& entries() {
  static const auto all = [] {
    std::vector<entry> made{
#define TROUPE_POLICY(name) {#name, make_##name},
#include "planners/policy/policies.def"
#undef TROUPE_POLICY
    };
    for (auto& e : made) std::ranges::replace(e.name, '_', '-');
    return made;
  }();
  return all;
}

}  // namespace

std::unique_ptr<policy> make_policy(std::string_view name) {
  for (const auto& e : entries()) {
    if (e.name == name) return e.make();
  }
  return nullptr;
}

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const auto& e : entries()) names.push_back(e.name);
  return names;
}

}  // namespace troupe::planners
