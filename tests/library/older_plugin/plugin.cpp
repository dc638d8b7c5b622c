// The policy as a shared object, for `troupe simulate --policy ./libmine.so`.
#include "planners/core/policy_plugin.hpp"
#include "shortest_first.hpp"

TROUPE_POLICY_PLUGIN(shortest_first)
