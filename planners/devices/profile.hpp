#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/profile.hpp"

// Stage times composed from the measured times of their parts (docs/profiles.md). A profile belongs
// to the cluster or the job: no file is read here. Times are seconds.

namespace troupe::planners {

/// The parts that a stage consists of.
struct stage_make {
  std::uint32_t attentions = 0, mlps = 0;
  bool has_embedding = false, has_head = false;
  bool keeps_activations = false;     // from forward to backward; the last stage always does
  std::uint32_t tensor_parallel = 1;  // GPUs that share it
};

struct profiled_stage {
  double forward_s = 0, recompute_s = 0, backward_s = 0, update_s = 0, gradients_s = 0;
  bool extrapolated = false;  // the micro-batch size is outside the measured range
  bool with_sums = false;     // times include the all-reduces among the GPUs of the stage
};

/// The profile's entries for a model. Fails if there are none, or none of its sequence length. The
/// number of layers does not matter.
expected<const model_profile*> sizes_of(const device_profile& p, const model& m);

/// Sums of the parts' times, interpolated linearly between two measured micro-batch sizes. Outside
/// the range they are extrapolated through the nearest two (not below 0), or with a single size in
/// proportion, and marked as such; updates and gradients, which do not depend on the micro-batch
/// size, are those of the nearest. A forward that keeps activations takes as long as a recompute.
/// If stages on this number of GPUs were not measured, each GPU takes its part of one GPU's times.
profiled_stage put_together(const model_profile& sizes, std::uint32_t sequence,
                            const stage_make& stage, std::uint32_t rows);

/// By which a profile's entry for a program's layers is found: their names, work and sizes.
std::string layers_key(const model& m);

/// The profile's entry for a program's layers. Fails if there is none.
expected<const layers_profile*> layers_of(const device_profile& p, const model& m);

/// Layers of one stage.
struct layer_range {
  std::uint32_t first = 0, count = 0;
  bool keeps_activations = false;  // from forward to backward; the last stage always does
};

/// The same sums of a program's layers: with the last one the loss, and if it is not alone, its
/// copy of a tied parameter. Tensors that enter or leave the stage take their time. Precondition:
/// the entry is the model's.
profiled_stage put_together(const layers_profile& entry, const model& m, const layer_range& stage,
                            std::uint32_t rows);

/// Fails if the profile has no times of the model, as sizes_of or layers_of.
expected<void> covers(const device_profile& p, const model& m);

/// Time per micro-batch of each layer of a program, by which it is cut; the loss is the last
/// layer's. `recomputes`: with a second forward. Empty: the profile does not have the model.
std::vector<double> layer_weights(const device_profile& p, const model& m, std::uint32_t rows,
                                  bool recomputes);

/// The profile for a job's estimates on this type: the job's own, else the type's, if it was
/// measured on the job's kind of device and has the model; null: none.
const device_profile* profile_of(const job_spec& job, const gpu_type& gpu);

/// The profile for all-reduces inside a node, whatever the model: the job's own, else the type's,
/// if it was measured on the job's kind of device and has any; null: none.
const device_profile* sums_profile_of(const job_spec& job, const gpu_type& gpu);

/// Seconds of an all-reduce of `bytes` on `devices` GPUs of a node. From `measured`, by number of
/// devices: the small tensor's time plus, per byte, the large one's difference. Between two numbers
/// of devices both are interpolated by a ring's 2 (t-1) steps and 2 (t-1) / t bytes; outside the
/// range they grow in that proportion. Not measured: a ring over `inside`, or 0 without it.
double sum_s(const std::vector<all_reduce_rate>& measured, const link& inside,
             std::uint32_t devices, double bytes);

/// The same among GPUs of a node; not measured: by the node's rates (node_sums.hpp), else a ring
/// over `share` of the rate of `inside`.
double node_sum_s(const std::vector<all_reduce_rate>& measured, const link& inside,
                  const gpu_type& gpu, double share, std::uint32_t devices, double bytes);

/// FLOP/s of the whole model on one device, by the cost model's count for forward and backward; 0:
/// the profile does not have the model.
double profiled_flops_s(const device_profile& p, const model& m);

/// An iteration of the whole model, on one of the GPUs that share it.
struct profiled_iteration {
  double s = 0;            // 0: not profiled
  bool with_sums = false;  // including the all-reduces among these GPUs
};
/// Forwards and backwards of `microbatches` x `rows` samples and one update, where `tensor` GPUs
/// share the model: as profiled with that many, or else each GPU's part of one GPU's times.
profiled_iteration profiled_iteration_of(const job_spec& job, const gpu_type& gpu,
                                         double microbatches, double rows, std::uint32_t tensor);

/// The source of a job's estimates on this type, for display: "the cost model", or the profile's
/// device and date, and whether this micro-batch size is outside the measured range; and the source
/// of the all-reduce times of GPUs that share a stage.
std::string source_of(const job_spec& job, const gpu_type& gpu, std::uint32_t rows);

}  // namespace troupe::planners
