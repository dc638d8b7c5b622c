#include <algorithm>
#include <array>
#include <memory>

#include "gpu/device/device_thread.hpp"
#include "gpu/device/device_type.hpp"
#include "gpu/inference/inference_device.hpp"
#include "gpu/profiling/profile.hpp"

namespace troupe::gpu {

namespace {

/// A lone device shares its thread with the guest. Ranks that share a stage have threads of their
/// own, and no guest.
expected<std::unique_ptr<stage_device>> make_cpu_stage(
    const stage_spec& s, const std::vector<int>& indices,
    const std::shared_ptr<device_executor>& executor) {
  if (auto thread = std::dynamic_pointer_cast<device_thread>(executor);
      thread && indices.size() == 1)
    return make_cpu_device_on(std::move(thread), s);
  return make_shared_cpu_device(s, static_cast<std::uint32_t>(indices.size()));
}

std::shared_ptr<device_executor> make_cpu_executor() {
  return std::make_shared<device_thread>();
}

expected<device_profile> describe_cpu_core(int) {
  return describe_cpu();
}

/// The host's memory is not a device's: other processes use it as well.
expected<std::uint64_t> no_limit(int) {
  return std::uint64_t{0};
}

expected<std::unique_ptr<stage_device>> make_cuda_stage(const stage_spec& s,
                                                        const std::vector<int>& indices,
                                                        const std::shared_ptr<device_executor>&) {
  return make_shared_cuda_device(s, indices);
}

/// By kind.
constexpr std::array<device_type, device_kinds.size()> all_types{{
    {},
    {make_cpu_stage, make_cpu_inference_device, make_cpu_executor, describe_cpu_core, no_limit},
    {make_cuda_stage, nullptr, nullptr, describe_cuda, free_memory},
}};

/// A kind's abilities promise makers, and the other way round.
constexpr bool agrees(const device_facts& facts, const device_type& type) {
  return facts.computes == (type.make_stage != nullptr) &&
         (facts.computes && facts.can_serve) == (type.make_inference != nullptr) &&
         (facts.computes && facts.lends_to_guests) == (type.make_executor != nullptr);
}
static_assert(std::ranges::equal(device_kinds, all_types, agrees));

}  // namespace

const device_type* type_of(device_kind k) {
  return facts_of(k).computes ? &all_types[index_of(k)] : nullptr;
}

}  // namespace troupe::gpu
