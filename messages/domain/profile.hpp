#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

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

  static constexpr auto fields() {
    using t = part_times;
    return std::tuple{&t::forward_s,   &t::recompute_s, &t::backward_s, &t::update_s,
                      &t::gradients_s, &t::spread,      &t::peak_bytes};
  }
  bool operator==(const part_times&) const = default;
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

  static constexpr auto fields() {
    using t = profile_point;
    return std::tuple{&t::sequence, &t::rows, &t::attention,      &t::mlp, &t::plain, &t::embedding,
                      &t::head,     &t::ends, &t::tensor_parallel};
  }
  bool operator==(const profile_point&) const = default;
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

  static constexpr auto fields() {
    using t = model_profile;
    return std::tuple{&t::name,       &t::hidden,    &t::heads, &t::intermediate,
                      &t::vocabulary, &t::tied_head, &t::points};
  }
  bool operator==(const model_profile&) const = default;
};

/// The device's clocks during the measurement; 0: unknown.
struct device_clocks {
  double core_mhz = 0, core_max_mhz = 0;
  double memory_mhz = 0, memory_max_mhz = 0;

  static constexpr auto fields() {
    using t = device_clocks;
    return std::tuple{&t::core_mhz, &t::core_max_mhz, &t::memory_mhz, &t::memory_max_mhz};
  }
  bool operator==(const device_clocks&) const = default;
};

/// All-reduce times of several devices of one machine: for tensors of `large_sum_bytes` and of
/// `small_sum_bytes`, of 32-bit floats.
struct all_reduce_rate {
  std::uint32_t devices = 0;
  double gbytes_s = 0;  // for 256 MiB, in 10^9 bytes per second of one device's tensor
  double small_us = 0;  // an all-reduce of 4,096 bytes, one of several back to back

  static constexpr auto fields() {
    using t = all_reduce_rate;
    return std::tuple{&t::devices, &t::gbytes_s, &t::small_us};
  }
  bool operator==(const all_reduce_rate&) const = default;
};
constexpr std::uint64_t large_sum_bytes = std::uint64_t{256} << 20, small_sum_bytes = 4096;

/// In 10^9 bytes per second; 0: not measured.
struct copy_rates {
  double to_device_gbytes_s = 0, from_device_gbytes_s = 0;
  double on_device_gbytes_s = 0;             // copied bytes (not read plus written)
  std::vector<all_reduce_rate> all_reduces;  // by number of devices
  std::string all_reduce;                    // how, or why not, they were measured

  static constexpr auto fields() {
    using t = copy_rates;
    return std::tuple{&t::to_device_gbytes_s, &t::from_device_gbytes_s, &t::on_device_gbytes_s,
                      &t::all_reduces, &t::all_reduce};
  }
  bool operator==(const copy_rates&) const = default;
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

  static constexpr auto fields() {
    using t = device_profile;
    return std::tuple{&t::device,      &t::kind,       &t::driver, &t::runtime,
                      &t::libraries,   &t::date,       &t::busy,   &t::clocks,
                      &t::total_bytes, &t::free_bytes, &t::copies, &t::models};
  }
  bool operator==(const device_profile&) const = default;
};

}  // namespace troupe
