#pragma once

#include <functional>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/wire/client.hpp"

// How the controller's cluster follows the cluster file. Its nodes, datacenters, GPU types and
// fronts keep their indices for as long as the journal exists, since entries, leases and addresses
// refer to them: those that are new in the file are appended, and those that left it stay as
// removed ones without GPUs. The file's order means nothing.

namespace troupe::actors {

struct merged_cluster {
  troupe::cluster cluster;
  cluster_difference what;
};

/// Is `file` a cluster that the reader could have read? Any operator's client may send one.
expected<void> check_cluster(const cluster& file);

/// The present cluster as the file wants it, with `version` if that differs. `busy`: does a lease
/// hold GPUs of this node? Its GPUs and its datacenter must not change under that lease. Refuses
/// with the node and what to do: `unavailable` while there is such a lease, else `invalid`.
expected<merged_cluster> merge(const cluster& present, const cluster& file, std::uint64_t version,
                               const std::function<bool(node_index)>& busy);

}  // namespace troupe::actors
