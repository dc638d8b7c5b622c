#pragma once

#include <cstdint>

#include "planners/policy/policy_plugin.hpp"

// Policies in Python: the shared object libtroupe_python.so embeds the interpreter, so that the
// program itself needs none. It is loaded when such a policy is named.

namespace troupe::planners {

/// Description of the shared object. Plain C up to `abi`, as in policy_plugin.hpp.
struct python_plugin {
  std::uint32_t format;  // version of this struct
  const char* abi;       // plugin_abi, of the headers that it was compiled with
  /// The policy of a file; `of_class` may be empty if the file has one. With new; throws
  /// policy_failure with a sentence that begins with the file.
  policy* (*make)(const char* file, const char* of_class);
};

inline constexpr std::uint32_t python_plugin_format = 1;
inline constexpr const char* python_plugin_file = "libtroupe_python.so";

/// The one symbol that the program looks up: `const python_plugin* troupe_python_plugin()`.
inline constexpr const char* python_plugin_symbol = "troupe_python_plugin";

}  // namespace troupe::planners
