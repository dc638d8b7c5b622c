#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "actors/control/ledger/ledger.hpp"
#include "messages/wire/client.hpp"

namespace troupe::actors {

/// The newest report of each front of a cluster, for people.
class front_reports {
 public:
  /// Older ones than the newest, those of other hosts, and decoders without a lease are ignored.
  void take(const cluster& c, const ledger& book, address from, front_report r, double now_s);
  /// All fronts of the cluster file. One that has been silent for a lease's duration and two
  /// heartbeats is absent.
  std::vector<front_status> list(const cluster& c, double now_s) const;

 private:
  struct received {
    front_report report;
    double at_s = 0;
  };
  std::map<std::uint32_t, received> all_;  // by front
};

}  // namespace troupe::actors
