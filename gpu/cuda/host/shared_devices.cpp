#include <future>
#include <stdexcept>

#include "gpu/cuda/host/device.hpp"
#include "gpu/tensor_parallel/shared_stage.hpp"

namespace troupe::gpu::cuda {

namespace {

using device_groups = std::vector<std::shared_ptr<device_communicator>>;
using machines = std::vector<std::shared_ptr<machine>>;

/// All members join concurrently, since joining waits for all.
device_groups join_all(const machines& all, const collectives& with,
                       communicator_patience patience) {
  const auto size = static_cast<std::uint32_t>(all.size());
  all[0]->enter();
  const auto id = make_communicator_id(with);
  std::vector<std::future<std::shared_ptr<device_communicator>>> joining;
  for (std::uint32_t rank = 0; rank < size; ++rank)
    joining.push_back(
        std::async(std::launch::async, [&, rank]() -> std::shared_ptr<device_communicator> {
          all[rank]->enter();
          auto member =
              std::make_unique<communicator>(with, id, rank, size, patience, [] { return false; });
          return std::make_shared<nccl_communicator>(all[rank], std::move(member));
        }));
  device_groups groups;
  for (auto& j : joining) groups.push_back(j.get());
  return groups;
}

// The host's group has the same patience, so that a missing member is found in either way.
device_groups by_host(const machines& all, communicator_patience patience) {
  const auto members = make_group(static_cast<std::uint32_t>(all.size()), patience.sum_s);
  device_groups groups;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    groups.push_back(std::make_shared<host_communicator>(all[rank], members[rank]));
  return groups;
}

/// `why`: the host sums, since NCCL cannot; empty: NCCL does.
device_groups group_of(const machines& all, communicator_patience patience, std::string& why) {
  if (const auto* with = collectives_of(*all[0], why)) {
    try {
      return join_all(all, *with, patience);
    } catch (const std::runtime_error& e) {
      why = e.what();  // a GPU that is lost fails when its device is created
    }
  }
  return by_host(all, patience);
}

}  // namespace

std::unique_ptr<stage_device> share_stage(const stage_spec& s, machines all,
                                          communicator_patience patience,
                                          std::string* by_hosts_since) {
  std::string why;
  const auto tensor_group = group_of(all, patience, why);
  if (by_hosts_since) *by_hosts_since = why;
  shared_stage::devices members;
  for (std::uint32_t m = 0; m < all.size(); ++m)
    members.push_back(
        std::make_unique<device>(shard_of(s, m, static_cast<std::uint32_t>(all.size())), all[m],
                                 device::first_values::set, patience, tensor_group[m]));
  const auto for_all = [tensor_group](void (device_communicator::*what)(const std::string&)) {
    return [tensor_group, what](const std::string& text) {
      for (const auto& member : tensor_group) (*member.*what)(text);
    };
  };
  return std::make_unique<shared_stage>(s, std::move(members), for_all(&device_communicator::abort),
                                        for_all(&device_communicator::close));
}

}  // namespace troupe::gpu::cuda
