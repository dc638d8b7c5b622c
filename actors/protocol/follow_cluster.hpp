#pragma once

#include <stdexcept>

#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// The host takes over the controller's cluster. False: it is no newer, or is none. Throws if hosts
/// have other numbers in it, as after a start from scratch: the host ends with that reason, and
/// gets its number when it is started again. It cannot change its number while it runs.
inline bool follow_cluster(const shared_cluster& known, const cluster& newer, address self) {
  if (newer.version <= known->version || !indices_exist(newer)) return false;
  if (!may_follow(*known, newer, self))
    throw std::runtime_error(
        "the controller's new journal numbers the hosts differently: restart this host");
  return known.adopt(newer);
}

}  // namespace troupe::actors
