#pragma once

#include <cstdint>

#include "planners/policy/plugin_abi.hpp"
#include "planners/policy/policy.hpp"

// A policy in a shared object, for `troupe simulate --policy ./libmine.so` (docs/library.md). One
// line after the class makes a file a plug-in:
//
//     TROUPE_POLICY_PLUGIN(my_namespace::my_policy)
//
// The object links no library of Troupe: the program exports the symbols of messages/ and
// planners/.

namespace troupe::planners {

/// Description of a plug-in. Plain C up to `abi`; the fields after one that differs from the
/// program's own value are not used.
struct policy_plugin {
  std::uint32_t format;  // version of this struct
  const char* abi;       // plugin_abi, of the headers that it was compiled with
  policy* (*make)();     // with new; may throw
};

inline constexpr std::uint32_t policy_plugin_format = 1;

/// The one symbol that the program looks up: `const policy_plugin* troupe_policy_plugin()`.
inline constexpr const char* policy_plugin_symbol = "troupe_policy_plugin";

// The standard library's debug containers have a different layout.
#ifdef _GLIBCXX_DEBUG
inline constexpr const char* plugin_abi = TROUPE_PLUGIN_ABI "-checked";
#else
inline constexpr const char* plugin_abi = TROUPE_PLUGIN_ABI;
#endif

}  // namespace troupe::planners

#define TROUPE_POLICY_PLUGIN(type)                                                         \
  extern "C" __attribute__((visibility("default"))) const troupe::planners::policy_plugin* \
  troupe_policy_plugin() {                                                                 \
    static constexpr troupe::planners::policy_plugin plugin{                               \
        troupe::planners::policy_plugin_format, troupe::planners::plugin_abi,              \
        []() -> troupe::planners::policy* { return new type; }};                           \
    return &plugin;                                                                        \
  }
