#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gpu/device/device_executor.hpp"
#include "gpu/device/stage_device.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/profile.hpp"

// The makers of each kind of device (gpu/kinds/device_types.cpp has the table). Actors and studies
// ask the table, so that a new kind touches no file of theirs.

namespace troupe::gpu {

class inference_device;
struct inference_spec;

struct device_type {
  /// Creates a stage that the devices of this host with these numbers share. `executor`: of
  /// make_executor(), if the device has a guest; else null.
  expected<std::unique_ptr<stage_device>> (*make_stage)(
      const stage_spec& s, const std::vector<int>& indices,
      const std::shared_ptr<device_executor>& executor) = nullptr;
  /// Null: the kind serves no models.
  expected<std::unique_ptr<inference_device>> (*make_inference)(const inference_spec& s) = nullptr;
  /// The executor by which a training shares the device with a guest; null: it has no guests.
  std::shared_ptr<device_executor> (*make_executor)() = nullptr;
  /// Name, versions, clocks, memory and copy rates at present.
  expected<device_profile> (*describe)(int index) = nullptr;
  /// Memory that stages may take; 0: the device sets no limit. Fails if there is no such device.
  expected<std::uint64_t> (*free_bytes)(int index) = nullptr;
};

/// Null for kinds that do not compute: their users simulate them by the world's clock.
const device_type* type_of(device_kind k);

/// Makes a stage on this host's CUDA devices in place of the table's maker, for tests.
using cuda_device_maker = std::function<expected<std::unique_ptr<stage_device>>(
    const stage_spec& s, const std::vector<int>& indices)>;

}  // namespace troupe::gpu
