#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "messages/client.hpp"

namespace troupe::actors {

/// The newest report of each front of a cluster, for people.
class front_reports {
 public:
  /// Older ones than the newest, and those of other hosts, are ignored.
  void hear(const cluster& c, address from, front_report r, double now_s);
  /// Of all fronts of the cluster file. One that has been silent for a lease's duration and two
  /// heartbeats is absent.
  std::vector<front_status> list(const cluster& c, double now_s) const;

 private:
  struct heard {
    front_report says;
    double at_s = 0;
  };
  std::map<std::uint32_t, heard> all_;  // by front
};

}  // namespace troupe::actors
