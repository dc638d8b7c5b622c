#pragma once

#include <cstdint>

#include "harness/emulated_link.hpp"

namespace troupe::bench {

/// What so many plain TCP connections carry together over a link, one way, after a second of
/// running: Gbit/s of payload over `seconds`. Negative: they could not be opened.
double plain_tcp_gbps(const harness::emulated_link& link, std::uint32_t connections,
                      double seconds);

}  // namespace troupe::bench
