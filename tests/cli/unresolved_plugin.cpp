// A plug-in that wants a function that no program of Troupe has.
#include "planners/policy/policy_plugin.hpp"

namespace troupe::planners {
std::unique_ptr<policy> make_nobody();
}

namespace {

const char* abi() {
#ifdef OTHER_HEADERS
  return "0.0.9-0123456789ab";
#else
  return troupe::planners::plugin_abi;
#endif
}

}  // namespace

extern "C" const troupe::planners::policy_plugin* troupe_policy_plugin() {
  static const troupe::planners::policy_plugin p{troupe::planners::policy_plugin_format, abi(), [] {
                                                   return troupe::planners::make_nobody().release();
                                                 }};
  return &p;
}
