#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The kinds of device that the built-in trainer, decoders and guests run on, and their abilities.
// Files, messages and the command line carry the kind's name. A new kind is a row of device_kinds,
// a row with its makers in gpu/kinds/device_types.cpp, and its implementation.

namespace troupe {

/// An index of device_kinds. Only the kinds that code names are enumerators.
enum class device_kind : std::uint8_t { sim, cpu, cuda };

/// Properties that planning, admission and the actors depend on. All are false or the simulated
/// kind's for a job that names no device, since its nodes decide the kind.
struct device_facts {
  std::string_view name;  // empty: no kind, or one that this version does not know
  bool simulated = false;
  bool computes = false;   // needs data and model files; its times are measured
  bool can_train = false;  // may be a training's `device:`
  bool can_serve = false;  // may run a decoder
  bool lends_to_guests = false;
  /// The training's operation interrupts one of the guest's; otherwise it waits for the end.
  bool interrupts_guest = false;
  /// Prefill of more rows at once takes less time per row.
  bool gains_by_rows = true;
  /// A core of the node, which has a core's speed and not that of the node's GPU type, and pauses
  /// to emulate a slower node.
  bool is_host_core = false;
  /// Devices of one node may all-reduce gradients without the hosts.
  bool sums_on_devices = false;
  /// A stage's memory is that of the GPU engine's buffers (planners/model/engine_memory.hpp).
  bool has_engine_memory = false;
  /// Size of a value in a guest's weights and cache, and in the gradients that the devices of one
  /// stage sum.
  std::uint32_t bytes_per_value = 2;
  /// Size of a value that stages send each other.
  std::uint32_t bytes_per_sent_value = 2;
  /// A requirement on the node's GPU type. CUDA kernels require tensor cores with bf16, and
  /// asynchronous copies to shared memory.
  double min_compute_capability = 0;
};

/// By kind; a row per kind, new ones at the end.
inline constexpr auto device_kinds = std::to_array<device_facts>({
    {.name = "sim",
     .simulated = true,
     .can_train = true,
     .can_serve = true,
     .lends_to_guests = true},
    {.name = "cpu",
     .computes = true,
     .can_train = true,
     .can_serve = true,
     .lends_to_guests = true,
     .interrupts_guest = true,
     .gains_by_rows = false,
     .is_host_core = true,
     .bytes_per_value = 4,
     .bytes_per_sent_value = 4},
    {.name = "cuda",
     .computes = true,
     .can_train = true,
     .sums_on_devices = true,
     .has_engine_memory = true,
     .bytes_per_sent_value = 4,
     .min_compute_capability = 8.0},
});

constexpr std::size_t index_of(device_kind k) {
  return static_cast<std::size_t>(k);
}

constexpr const device_facts& facts_of(device_kind k) {
  return device_kinds[index_of(k)];
}
inline std::string name_of(device_kind k) {
  return std::string{facts_of(k).name};
}

constexpr std::optional<device_kind> device_kind_of(std::string_view name) {
  for (std::size_t i = 0; i < device_kinds.size(); ++i)
    if (device_kinds[i].name == name) return static_cast<device_kind>(i);
  return {};
}
static_assert(device_kind_of("sim") == device_kind::sim &&
              device_kind_of("cpu") == device_kind::cpu &&
              device_kind_of("cuda") == device_kind::cuda);

/// A host of another version may have sent a name that is unknown here.
constexpr device_facts facts_of_device(std::string_view name) {
  const auto kind = device_kind_of(name);
  return kind ? facts_of(*kind) : device_facts{};
}

constexpr bool is_simulated(std::string_view device) {
  return facts_of_device(device).simulated;
}

/// The names of the kinds that have an ability, in the order of the enumeration.
inline std::vector<std::string> device_names(bool device_facts::*ability) {
  std::vector<std::string> names;
  for (const auto& k : device_kinds)
    if (k.*ability) names.emplace_back(k.name);
  return names;
}

/// "cpu or cuda": the kinds that compute and have an ability.
inline std::string real_devices(bool device_facts::*ability) {
  std::string names;
  for (const auto& k : device_kinds)
    if (k.computes && k.*ability) names.append(names.empty() ? "" : " or ").append(k.name);
  return names;
}

}  // namespace troupe
