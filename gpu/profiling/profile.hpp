#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device/stage_device.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/profile.hpp"

// Measures a device's times for the parts of stages, through the device interface
// (docs/profiles.md).

namespace troupe::gpu {

struct profile_wish {
  std::string device = name_of(device_kind::cpu);  // a kind that computes
  int index = 0;                                   // number of the GPU
  std::vector<troupe::model> models;
  std::vector<std::uint32_t> rows{1};          // sequences per micro-batch
  std::vector<std::uint32_t> sequences;        // tokens per sequence; empty: each model's own
  std::vector<std::uint32_t> tensor_parallel;  // also of stages that so many devices share
  std::uint32_t busy = 1;    // number of devices that compute concurrently; one is measured
  std::uint32_t rounds = 9;  // at least 3; each runs everything once
  // CPU only: with the pauses of a node that is emulated at this speed, after which the next
  // operation finds its caches cold. The times are still those of the whole core.
  double emulate_speed = 1;
  /// The size that is being measured, and the share of all the work that is done, from 0 to 1.
  std::function<void(const std::string&, double)> progress;
  std::function<void(const std::string&)> not_measured;  // a size, and why
};

/// Fails like make_cpu_device and make_cuda_device if the device or model is not possible. A size
/// without enough memory is reported and skipped; it fails if all are.
expected<device_profile> measure_device(const profile_wish& w);

/// Name, versions, clocks, memory and copy rates of the device now.
expected<device_profile> describe_device(const std::string& device, int index);

/// Without the date, of a core of this host and of the CUDA GPU with this number.
device_profile describe_cpu();
expected<device_profile> describe_cuda(int index);

namespace cuda {
class machine;
}
/// The same for a machine, with copies of that many bytes and without all-reduces. Throws the
/// machine's exceptions.
device_profile describe_machine(cuda::machine& m, std::size_t bytes);

/// Opens a device of this machine by its number.
using machine_opener = std::function<expected<std::shared_ptr<cuda::machine>>(int)>;
struct sums_wish {
  int first = 0;  // a group's first device; the others follow
  int devices = 1;
  std::size_t bytes = large_sum_bytes;  // size of the large tensor
  double patience_s = 60;  // timeout for joining a group, and for a round of all-reduces
};
/// Measures all-reduces of 2, 4, 8, ... and all devices of this machine, with a thread each. Errors
/// are stored in `into.all_reduce`; nothing waits longer than the timeout.
void measure_sums(const sums_wish& w, const machine_opener& open, copy_rates& into);

/// The free memory of a GPU with a context.
expected<std::uint64_t> free_memory(int index);

/// Computes a part's times from stages that contain it, by docs/profiles.md's formulas: `alone` are
/// stages of an attention and of an MLP, `one` and `three` of that many layers. Results are not
/// negative.
struct measured_stages {
  part_times attention_alone, mlp_alone, one_layer, three_layers;
};
struct sublayer_times {
  part_times attention, mlp, plain;
};
sublayer_times take_apart(const measured_stages& m);

/// The times of a stage with embedding and head, without its layers. `whole`: one layer and both
/// ends.
struct measured_ends {
  part_times embedding, head, whole, one_layer;
};
part_times both_ends(const measured_ends& m, const part_times& plain);

}  // namespace troupe::gpu
