#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

// TCP ports at which programs may listen.

namespace troupe::runtime {

/// Including both ends.
struct port_range {
  std::uint16_t low = 0, high = 0;
  bool operator==(const port_range&) const = default;
};

/// Ports that the kernel gives to no outgoing connection: from 20000 to the beginning of its range
/// (`text` of /proc/sys/net/ipv4/ip_local_port_range, "32768\t60999"), where that leaves a
/// thousand; otherwise the larger of what lies before and behind it. A range that covers everything
/// leaves nothing: then from 20000 on.
port_range ports_for_programs(std::string_view text);
/// On this machine.
port_range ports_for_programs();

/// Can a program listen at it, on every address?
bool is_free_port(std::uint16_t port);

/// Up to `count` free ports for programs, in the order in which they follow the range's `start`-th.
std::vector<std::uint16_t> free_ports(std::size_t count, std::uint64_t start);

/// A number of this start of the machine; 0: unknown.
std::uint64_t boot_number();

}  // namespace troupe::runtime
