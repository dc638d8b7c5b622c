#pragma once

#include <cstdint>
#include <optional>

#include "actors/control/leases/host_table.hpp"
#include "actors/control/leases/lease_manager.hpp"
#include "actors/control/leases/roster.hpp"
#include "actors/control/leases/time_limits.hpp"
#include "actors/control/ledger/recorder.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// The cluster's hosts and settings, which the cluster file, `troupe reconfigure` and `troupe
/// drain` change. The journal's cluster is the one that counts (roster.hpp); `published` follows it
/// once it is durable.
class cluster_keeper {
 public:
  cluster_keeper(recorder& records, host_table& hosts, lease_manager& leases, time_limits& limits,
                 shared_cluster published)
      : records_{records},
        hosts_{hosts},
        leases_{leases},
        limits_{limits},
        published_{std::move(published)} {}

  /// At the controller's start. Throws if the file's cluster cannot follow the journal's.
  void choose(const cluster& file);
  /// Stops what may not run: on removed nodes, and on those that were drained so. Follows from the
  /// ledger, so that a controller that was killed before it could do this does it at its next
  /// start.
  void stop_unwanted();
  void on_tick();
  void on(const inbound<reconfigure>& m);
  void on(const inbound<drain_nodes>& m);

 private:
  expected<merged_cluster> merged_with(const cluster& file) const;
  bool is_busy(node_index n) const;
  bool record(merged_cluster next, std::uint64_t file);
  bool change(merged_cluster next, std::uint64_t file);
  void follow();

  recorder& records_;
  host_table& hosts_;
  lease_manager& leases_;
  time_limits& limits_;
  shared_cluster published_;
  std::optional<cluster> awaited_file_;  // of the start; it changes nodes that are busy
};

}  // namespace troupe::actors
