#pragma once

#include <cstdint>

#include "harness/emulated_link.hpp"

namespace troupe::bench {

/// The payload that plain TCP connections carry together over a link, one way, in Gbit/s: measured
/// over `seconds` after a first second. Negative: they could not be opened.
double plain_tcp_gbps(const harness::emulated_link& link, std::uint32_t connections,
                      double seconds);

}  // namespace troupe::bench
