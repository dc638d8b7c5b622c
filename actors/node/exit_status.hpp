#pragma once

#include <cstring>
#include <string>

#include <fmt/format.h>

namespace troupe::actors {

/// The signal of an exit status of 128 + n, in brackets: shells and keepers report the end by a
/// signal that way. Else empty.
inline std::string signal_of(int status) {
  const char* name = status > 128 ? ::sigabbrev_np(status - 128) : nullptr;
  return name ? fmt::format(" (SIG{})", name) : std::string{};
}

}  // namespace troupe::actors
