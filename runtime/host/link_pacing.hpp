#pragma once

#include <cstdint>
#include <optional>

#include "messages/base/time.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/cluster.hpp"

namespace troupe::runtime {

/// How long tensors take to other datacenters where no real link decides it: in virtual time, and
/// where the cluster file emulates a WAN. The caller numbers its transfers, says when each starts,
/// and learns when its bytes have left and arrived.
class link_pacing {
 public:
  /// A transfer occupies the pairs of nodes [first_pair, first_pair + pairs) between two
  /// stages. A pair carries its transfers one after the other; a transfer over p pairs takes 1/p of
  /// the time on each.
  struct transfer {
    std::uint32_t datacenter = 0;  // to
    lease_id lease = 0;
    std::uint32_t from_stage = 0, to_stage = 0;
    std::uint32_t first_pair = 0, pairs = 1;
    std::uint32_t connections = 1;  // of each pair
    double bytes = 0;
    std::uint32_t parts = 1;  // equal ones, each with its own arrival
    std::uint32_t flows = 1;  // GPUs that send it together
  };
  struct event {
    std::uint32_t token = 0, part = 0;
    bool arrived = false;  // this part
    bool left = false;     // all of it: the pairs are free again
    bool last = false;     // of this transfer
    bool operator==(const event&) const = default;
  };

  virtual ~link_pacing() = default;

  /// Is the link to that datacenter paced? Nothing below is for one that is not.
  virtual bool paces(std::uint32_t datacenter) const = 0;
  /// One way; 0 where it is not paced.
  virtual time_ns delay_ns(std::uint32_t datacenter) const = 0;

  /// False: it makes no sense, or too much is queued on its pairs.
  virtual bool start(time_ns now, std::uint32_t token, const transfer& t) = 0;
  /// Something that takes the link's delay and none of its rate.
  virtual void start_small(time_ns now, std::uint32_t token, std::uint32_t datacenter) = 0;

  virtual time_ns next_event_at() const = 0;  // never: none before another start
  virtual std::optional<event> take_event(time_ns now) = 0;

  /// The cluster has changed: other links, or other rates.
  virtual void follow(const cluster&) {}

  /// Forgets pairs last used before a time.
  virtual void forget(time_ns before) = 0;
};

}  // namespace troupe::runtime
