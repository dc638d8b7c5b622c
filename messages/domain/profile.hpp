#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/base/fields.hpp"

// Measured times of one device (docs/profiles.md): written by `troupe profile`, and used for
// estimates where a cluster or a job refers to it.

namespace troupe {

/// Step times of a part of a stage, as the stage measures them, in seconds.
struct part_times {
  double forward_s = 0;    // of one micro-batch, without keeping activations
  double recompute_s = 0;  // the same, keeping everything that backward needs
  double backward_s = 0;
  double update_s = 0;     // once per iteration, with the device's own gradients
  double gradients_s = 0;  // copying gradients to the host, and the extra time of an update with
                           // gradients from there
  double spread = 0;       // of forward and backward: interquartile range relative to the median
  std::uint64_t peak_bytes = 0;  // device memory with one micro-batch in flight; 0: unknown

  TROUPE_FIELDS(part_times, forward_s, recompute_s, backward_s, update_s, gradients_s, spread,
                peak_bytes);
};

/// The times for one micro-batch size. A stage takes the sum of its parts: its attentions and MLPs,
/// and one of `plain`, `embedding`, `head` and `ends` for everything else.
struct profile_point {
  std::uint32_t sequence = 0;
  std::uint32_t rows = 0;  // sequences per micro-batch
  part_times attention, mlp;
  part_times plain;      // neither embedding nor head
  part_times embedding;  // the first stage's
  part_times head;       // the last one's
  part_times ends;       // both, of a single stage
  /// Devices that share the stage; times of the slowest, with the all-reduces between them.
  std::uint32_t tensor_parallel = 1;
  static constexpr std::size_t required = 8;

  TROUPE_FIELDS(profile_point, sequence, rows, attention, mlp, plain, embedding, head, ends,
                tensor_parallel);
};

/// Valid for models that differ only in their number of layers.
struct model_profile {
  std::string name;
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;
  std::uint32_t intermediate = 0;  // the MLP's width
  std::uint32_t vocabulary = 0;
  bool tied_head = true;
  std::vector<profile_point> points;  // by tensor_parallel, sequence length, then micro-batch size

  TROUPE_FIELDS(model_profile, name, hidden, heads, intermediate, vocabulary, tied_head, points);
};

/// A layer of a program, or a part of its stages, with its times.
struct layer_times {
  std::string name;
  part_times times;

  TROUPE_FIELDS(layer_times, name, times);
};

/// The times for one micro-batch size. A stage takes the sum of its layers and `plain`; the last
/// one the loss, and of several, what a tied parameter costs a second time.
struct layers_point {
  std::uint32_t rows = 0;           // samples per micro-batch
  std::vector<layer_times> layers;  // of the model, in order
  part_times loss;
  part_times tied;   // updates and gradients of a parameter of the first and the last layer
  part_times plain;  // of a stage without work: requests to its worker

  TROUPE_FIELDS(layers_point, rows, layers, loss, tied, plain);
};

/// The times of one program's layers.
struct layers_profile {
  std::string name;
  std::string key;                   // of the layers' description: layers_key() of a model
  std::uint32_t threads = 1;         // of a worker on a CPU
  double tensors_gbytes_s = 0;       // at which tensors enter and leave a stage; 0: in no time
  std::vector<layers_point> points;  // by micro-batch size

  TROUPE_FIELDS(layers_profile, name, key, threads, tensors_gbytes_s, points);
};

/// The device's clocks during the measurement; 0: unknown.
struct device_clocks {
  double core_mhz = 0, core_max_mhz = 0;
  double memory_mhz = 0, memory_max_mhz = 0;

  TROUPE_FIELDS(device_clocks, core_mhz, core_max_mhz, memory_mhz, memory_max_mhz);
};

/// All-reduce times of several devices of one machine: for tensors of `large_sum_bytes` and of
/// `small_sum_bytes`, of 32-bit floats.
struct all_reduce_rate {
  std::uint32_t devices = 0;
  double gbytes_s = 0;  // for 256 MiB, in 10^9 bytes per second of one device's tensor
  double small_us = 0;  // an all-reduce of 4,096 bytes, one of several back to back

  TROUPE_FIELDS(all_reduce_rate, devices, gbytes_s, small_us);
};
constexpr std::uint64_t large_sum_bytes = std::uint64_t{256} << 20, small_sum_bytes = 4096;

/// In 10^9 bytes per second; 0: not measured.
struct copy_rates {
  double to_device_gbytes_s = 0, from_device_gbytes_s = 0;
  double on_device_gbytes_s = 0;             // copied bytes (not read plus written)
  std::vector<all_reduce_rate> all_reduces;  // by number of devices
  std::string all_reduce;                    // how, or why not, they were measured

  TROUPE_FIELDS(copy_rates, to_device_gbytes_s, from_device_gbytes_s, on_device_gbytes_s,
                all_reduces, all_reduce);
};

/// Measured times of a device (docs/profiles.md).
struct device_profile {
  std::string device;      // its name
  std::string kind;        // `cpu`, `cuda`
  std::string driver;      // version
  std::string runtime;     // version
  std::string libraries;   // versions
  std::string date;        // UTC, as 2026-11-21T18:00:00Z
  std::uint32_t busy = 1;  // devices that computed concurrently during the measurement
  device_clocks clocks;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // before a stage was created; of a GPU, with its context
  copy_rates copies;
  std::vector<model_profile> models;
  std::vector<layers_profile> programs;
  static constexpr std::size_t required = 12;

  TROUPE_FIELDS(device_profile, device, kind, driver, runtime, libraries, date, busy, clocks,
                total_bytes, free_bytes, copies, models, programs);
};

}  // namespace troupe
