#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "planners/cluster/snapshot.hpp"

namespace troupe::bench {

/// A busy cluster and the jobs that wait for it: all that a snapshot refers to.
struct timing_event {
  explicit timing_event(troupe::cluster c) : cluster{std::move(c)} {}
  timing_event(const timing_event&) = delete;
  timing_event& operator=(const timing_event&) = delete;

  static constexpr double now_s = 100'000;
  const troupe::cluster cluster;
  planners::idle_index idle{cluster};
  planners::job_views running, waiting;

  planners::snapshot snapshot() const { return {now_s, cluster, idle, waiting, running}; }
};

/// At least `gpus` GPUs of four types: RTX2080Ti and A100s in nodes of 8, RTX6000 and V100 in nodes
/// of 4, in equal numbers. Jobs with the frenzy workload's models were started by the frenzy policy
/// until the next `queue` of them found no room; then a fifth, drawn by the seed, ended. The next
/// `queue` jobs wait.
expected<std::unique_ptr<timing_event>> make_moment(std::uint32_t gpus, std::uint32_t queue,
                                                    std::uint64_t seed);

}  // namespace troupe::bench
