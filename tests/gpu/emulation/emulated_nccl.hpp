#pragma once

#include "gpu/cuda/runtime/collectives.hpp"

namespace troupe::test {

/// NCCL without GPUs: members are threads of this program, and their streams are emulated
/// machines'. It adds in another order than hosts do, as NCCL does, and rounds sums of 16 bits at
/// every step.
const gpu::cuda::collectives& emulated_nccl();

/// How many members came to an end, as all should, and were cut off.
struct nccl_ends {
  int destroyed = 0, aborted = 0;
};
nccl_ends ends_so_far();

/// Returns when a member of the group that was made last waits for others: for them to come, or for
/// what they bring to a sum.
void await_waiting_member();

/// All members find when they join that the group is not possible, as two of one GPU do. Until the
/// object is gone.
class nccl_refusal {
 public:
  nccl_refusal();
  ~nccl_refusal();
};

/// From the sum with this number on (the first is 0), a member with this rank finds an error, and
/// no sum is ever done. Until the object is gone.
class nccl_fault {
 public:
  nccl_fault(int rank, int sum);
  ~nccl_fault();
};

}  // namespace troupe::test
