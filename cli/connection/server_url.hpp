#pragma once

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "runtime/host/clock.hpp"

namespace troupe::cli {

/// The URL of a server on this IP address.
inline std::string url_of(const std::string& host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}", v6 ? "[" + host + "]" : host, port);
}

/// Differs from start to start; it need not be secret.
inline std::uint64_t start_seed(const runtime::clock& clock) {
  return static_cast<std::uint64_t>(std::llround(clock.wall_s() * 1e6)) ^
         static_cast<std::uint64_t>(::getpid()) << 44;
}

}  // namespace troupe::cli
