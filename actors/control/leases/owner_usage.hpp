#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "actors/control/ledger/ledger.hpp"
#include "messages/base/reason.hpp"
#include "messages/wire/journal.hpp"

namespace troupe::actors {

inline constexpr double default_owner_mib = 64;  // where the cluster file has no owner_mib

/// Bytes that the unfinished jobs of each owner take in the controller, as their journal entries:
/// any client may submit any number of jobs of up to 1 MiB. Counts when an owner submits, and
/// follows no job's end: what it has counted is an upper bound until the limit is reached.
class owner_usage {
 public:
  /// Counts a job that is about to be accepted. Refused, if it exceeds the owner's limit: jobs that
  /// were accepted under a larger one stay.
  expected<void> add(const ledger& book, const job_accepted& e, double limit_mib);

 private:
  struct owner {
    std::uint64_t bytes = 0;
    std::map<job_id, std::uint64_t> jobs;
    bool counted = false;  // those that were there at this controller's start, too
  };
  static void count(const ledger& book, const std::string& name, owner& o);

  std::map<std::string, owner> owners_;
};

}  // namespace troupe::actors
