#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "actors/protocol/messenger.hpp"
#include "actors/training/device/kept_states.hpp"
#include "actors/training/device/made_backend.hpp"
#include "actors/training/device/stage_replica.hpp"
#include "gpu/device/device_executor.hpp"
#include "gpu/device/stage_device.hpp"
#include "gpu/saving/checkpoint_writer.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/link_cost.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Is notified of a simulated stage's weights, as a digest, after each of its updates; `iteration`:
/// completed. Null: nobody wants to know.
using weights_watcher =
    std::function<void(const stage_setup& s, std::uint64_t iteration, std::uint64_t digest)>;

/// Everything that a stage needs of its node. The node's supervisor fills it in.
struct stage_options {
  stage_setup setup;
  double received_s = 0;  // when the setup arrived, on this host's monotonic clock
  address trainer = 0;
  actors::messenger messenger;
  /// Creates the device, which may take minutes: the stage then has its own thread. Null: the stage
  /// has a simulated device, `slowdown` times slower than its costs (null: as given), ready after
  /// start_s.
  std::function<expected<stage_backend>()> create;
  /// The weights, which other pipelines' stages may share; null: its training does not heal.
  std::shared_ptr<stage_replica> replica;
  /// Set once it is created; may be null.
  std::shared_ptr<std::atomic<bool>> created;
  std::function<double()> slowdown;
  double start_s = 0;
  link_cost same_node;    // simulated device: the link to other GPUs of this node,
  link_cost slowest_lan;  // and the slowest one to another node of the datacenter
  // GPUs whose flows carry its tensors, where the cluster file says what one flow gets.
  std::optional<std::uint32_t> flows{};
  bool marks_resent = false;  // tensors that are sent again say so, where traffic has a price
  /// The device's, by which it is lent to a guest while the stage waits. Null: it has no guest.
  std::shared_ptr<gpu::device_executor> executor;
  address gateway = 0;  // of this datacenter; with a guest
  weights_watcher on_weights;
  /// The node's, which writes checkpoints behind; null: the stage has one of its own.
  std::shared_ptr<gpu::checkpoint_writer> writer{};
  /// The node's, of this stage; null: its setup asks for none.
  std::shared_ptr<kept_states> kept{};
};

}  // namespace troupe::actors
