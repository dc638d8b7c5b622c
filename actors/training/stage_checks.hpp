#pragma once

#include <cstdint>
#include <vector>

#include "messages/address.hpp"
#include "messages/stage.hpp"
#include "messages/work.hpp"

// What a node asks of stage messages before it acts on them: that they come from a node of their
// lease, and that what they say fits the lease's part and itself. Indices are not checked again.

namespace troupe::actors {

/// Is the sender the trainer of this part's lease?
bool is_trainer(const cluster& c, const work_order& part, address from);

/// Is the sender a node of this lease? Only the trainer's node is told which ones those are.
bool is_lease_node(const cluster& c, const work_order& part, address from);

/// Does a setup fit the part of the lease that this node was given, and is it consistent?
expected<void> check_setup(const stage_setup& s, const work_order& part);

/// May these steps be run, with so many micro-batches?
expected<void> check_order(const std::vector<stage_step>& order, std::uint32_t microbatches);

/// Does a tensor come from the stage that sends such ones to this one, and that stage's node?
bool comes_from_its_stage(const stage_setup& to, const tensor& t, address from);

/// Does a request come from the stage that takes such tensors from this one, and that stage's node?
/// And does it name no more micro-batches than there are?
bool is_asked_by_its_stage(const stage_setup& me, const tensor_request& r, address from);

}  // namespace troupe::actors
