#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/address.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"

// Validation of stage messages, before a node acts on them: the sender must be a node of the lease,
// and the contents must be consistent with the lease's part. Stages do not check indices again.

namespace troupe::actors {

/// Is the sender the trainer of this part's lease?
bool is_trainer(const cluster& c, const work_order& part, address from);

/// Is the sender a node of this lease? Only the trainer's node has the list.
bool is_lease_node(const cluster& c, const work_order& part, address from);

/// Is a setup valid, and does it use only devices of this node's part of the lease?
expected<void> check_setup(const stage_setup& s, const work_order& part);

/// Is this a valid order of steps?
expected<void> check_order(const std::vector<stage_step>& order, std::uint32_t microbatches);

/// Takes over where the stages of a view are. False: it is older than the present one, or lacks
/// addresses, or the training has no views.
bool follow_view(stage_setup& at, const view_begin& b);

/// Does a tensor come from the stage that sends this kind to this stage, and from its node?
bool comes_from_its_stage(const stage_setup& to, const tensor& t, address from);

/// Does a request come from the stage that receives this kind from this stage, and from its node?
/// And does it name no more micro-batches than there are?
bool is_asked_by_its_stage(const stage_setup& me, const tensor_request& r, address from);

}  // namespace troupe::actors
