#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/profile.hpp"
#include "messages/reason.hpp"

// Stages put together from what was measured of their parts (docs/profiles.md). A profile is a part
// of the cluster or the job that a decision is about: nothing is read here.

namespace troupe::planners {

/// What a stage is made of.
struct stage_make {
  std::uint32_t attentions = 0, mlps = 0;
  bool has_embedding = false, has_head = false;
  bool keeps = false;  // all that backward needs; the last stage does in any case
};

struct profiled_stage {
  double forward_s = 0, recompute_s = 0, backward_s = 0, update_s = 0, gradients_s = 0;
  bool extrapolated = false;  // the micro-batch is smaller or larger than all that were measured
};

/// What of a profile is about a model: refused with a sentence if nothing is, or nothing of its
/// sequence. Layers do not matter.
expected<const model_profile*> sizes_of(const device_profile& p, const model& m);

/// Sums of the parts' times. Between two numbers of rows that were measured each is interpolated
/// linearly; beyond them it goes on in a line through the nearest two, never below 0, or with one
/// number alone in proportion, and is marked so; but updates and gradients, which do not depend on
/// rows, are as they are at the nearest. Where a forward keeps what it makes it takes as long as a
/// recompute elsewhere.
profiled_stage put_together(const model_profile& sizes, std::uint32_t sequence,
                            const stage_make& stage, std::uint32_t rows);

/// The profile that a job's estimates on this type are from: the job's own, else the type's, if it
/// is of the kind of device that computes and knows the model; null: none.
const device_profile* profile_of(const job_spec& job, const gpu_type& gpu);

/// The one that says how GPUs of one node sum among themselves, whatever the model: the job's own,
/// else the type's, if it is of the kind of device that computes and has such sums; null: none.
const device_profile* sums_profile_of(const job_spec& job, const gpu_type& gpu);

/// What a sum takes, in seconds, of so many bytes that each of `devices` GPUs of a node has. As
/// `measured` by number of devices: what a small tensor took, and for each byte more what the large
/// one took longer. Between two numbers of devices both lie on a line, by a ring's 2 (t-1) steps
/// and 2 (t-1) / t of the bytes; beyond them they grow in that proportion. If nothing was measured:
/// a ring over `inside`, or 0 without it.
double sum_s(const std::vector<all_reduce_rate>& measured, const link& inside,
             std::uint32_t devices, double bytes);

/// Of the whole model on one device, operations (the cost model's, forward and backward) a second.
double profiled_flops_s(const device_profile& p, const model& m);

/// Where estimates of a job on this type are from, for people: "the cost model", or the profile's
/// device and date, and whether for so many rows it goes beyond what was measured; and where sums
/// are from among GPUs that share a stage.
std::string source_of(const job_spec& job, const gpu_type& gpu, std::uint32_t rows);

}  // namespace troupe::planners
