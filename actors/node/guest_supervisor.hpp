#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "actors/node/node_context.hpp"
#include "actors/serving/prefill/guest.hpp"
#include "messages/wire/message.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The guests beside a node's stages, and the executors of the devices that they share. Both
/// outlive a stage that is replaced. Owned by the training_supervisor.
class guest_supervisor {
 public:
  explicit guest_supervisor(const node_context& n) : node_{n} {}

  /// A stage is being set up: its guest runs beside it from now on; one with the same layers of the
  /// same model goes on. Returns the device's executor; null: the stage has no guest, or one that
  /// its device cannot have, which answers all orders by the reason.
  std::shared_ptr<gpu::device_executor> set_up(const stage_setup& s);

  /// The lease's training is over here.
  void stop(lease_id lease);

  /// Orders and cancellations come from the gateway of this datacenter; who may send blocks, and
  /// the answers to them, the guests know. Ignores other messages.
  void on_message(address from, const message& m, const payload& body);

 private:
  struct entry {
    guest_actor actor;
    guest_setup setup;
    std::uint16_t device = 0;
    std::shared_ptr<gpu::device_executor> executor;
    std::shared_ptr<device_loan> loan;
  };

  std::shared_ptr<gpu::device_executor> executor_of(const stage_setup& s);
  void spawn(entry& e, const stage_setup& s, reason refused);
  void end(const entry& e) const;
  void on_order(address from, const prefill_order& o, const payload& body);

  node_context node_;
  std::map<std::uint16_t, std::shared_ptr<gpu::device_executor>> devices_;
  std::map<stage_name, entry> guests_;
  actor_of<call_now> timers_;  // of simulated devices
};

}  // namespace troupe::actors
