#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device/stage_device.hpp"
#include "messages/profile.hpp"

// Measures what a device takes for the parts of stages, through the seam that stages use:
// docs/profiles.md.

namespace troupe::gpu {

struct profile_wish {
  std::string device = "cpu";  // or cuda
  int index = 0;               // of several GPUs
  std::vector<troupe::model> models;
  std::vector<std::uint32_t> rows{1};    // sequences a micro-batch
  std::vector<std::uint32_t> sequences;  // tokens a sequence; empty: each model's own
  std::uint32_t busy = 1;    // so many devices compute at once, of which one is measured
  std::uint32_t rounds = 9;  // at least 3; each does everything once
  std::function<void(const std::string&)> say;  // what is measured next, and what could not be
};

/// Refuses a device that is not there and a model that it cannot train, in make_cpu_device's and
/// make_cuda_device's words. A size for which there is no memory is said, and left out; all of
/// them: refused.
expected<device_profile> measure_device(const profile_wish& w);

/// One part of it: name, versions, clocks, memory and copy rates, of the device as it is now.
expected<device_profile> describe_device(const std::string& device, int index);

namespace cuda {
class machine;
}
/// The same of a machine, with copies of so many bytes, and without sums. Throws what the machine
/// throws.
device_profile describe_machine(cuda::machine& m, std::size_t bytes);

/// A device of this machine by its number.
using machine_opener = std::function<expected<std::shared_ptr<cuda::machine>>(int)>;
struct sums_wish {
  int first = 0;  // a group's first device; the others come after it
  int devices = 1;
  std::size_t bytes = large_sum_bytes;  // of the large tensor
  double patience_s = 60;               // for a group to come together, and for a round of sums
};
/// How long 2, 4, 8, ... and all devices of this machine take to sum among themselves, a thread
/// each. Whatever goes wrong is said in `into.all_reduce`; nothing waits for longer than said.
void measure_sums(const sums_wish& w, const machine_opener& open, copy_rates& into);

/// Of a GPU, with a context on it.
expected<std::uint64_t> free_memory(int index);

/// What a part takes, from stages that have it, by docs/profiles.md's rule: `alone` are stages of
/// an attention and of an MLP, `one` and `three` of so many layers. Nothing comes out below 0.
struct measured_stages {
  part_times attention_alone, mlp_alone, one_layer, three_layers;
};
struct sublayer_times {
  part_times attention, mlp, plain;
};
sublayer_times take_apart(const measured_stages& m);

/// Of a stage that embeds and predicts, all but its layers. `whole`: of one layer and both ends.
struct measured_ends {
  part_times embedding, head, whole, one_layer;
};
part_times both_ends(const measured_ends& m, const part_times& plain);

}  // namespace troupe::gpu
