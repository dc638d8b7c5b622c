#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "actors/node/guest_supervisor.hpp"
#include "actors/protocol/node_interface.hpp"
#include "actors/training/stage.hpp"
#include "gpu/device/device_type.hpp"
#include "messages/wire/message.hpp"
#include "messages/wire/work.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// The node's side of a training: spawns its stages and trainer and dispatches messages to them.
/// Owned by the node actor.
class training_supervisor {
 public:
  /// `backend`: the name of this node's device kind. `make_cuda`: of CUDA devices; null:
  /// this machine's.
  void start(node_actor::pointer self, runtime::host h, shared_cluster c, std::string backend,
             gpu::cuda_device_maker make_cuda = nullptr);

  /// Starts a part of a training; on the first part's node, its trainer as well. `slowdown`: factor
  /// for simulated devices. Real stages have their own threads, so that the node keeps reporting.
  void begin(const work_order& w, std::function<double()> slowdown);

  /// Ends everything of this lease on this node.
  void stop(lease_id lease);
  /// The part is over and the controller knows it. Its stages release their devices, but remain for
  /// a minute to resend their last tensors.
  void release(lease_id lease);
  /// Ends the stages of parts that were released long enough ago. Call periodically.
  void remove_released();
  /// Returns memory of parts that ended a while ago to the kernel. Call periodically.
  void return_memory();
  /// If its trainer is here: it finishes the iteration, saves and ends. May be repeated.
  void stop_gracefully(lease_id lease);

  /// Handles messages for stages, their guests and trainers, and ignores others.
  void on_message(address from, message& m, const payload& body);

  /// A stage or the trainer has ended. True: the whole part has, and `over` is its result.
  bool on_training_over(training_over& over);

 private:
  struct part {
    work_order order;
    std::function<double()> slowdown;
    trainer_actor trainer;  // on the first part's node
    struct entry {
      stage_actor actor;
      std::uint64_t incarnation = 0;
      std::size_t devices = 0;                     // of its tensor group
      std::shared_ptr<std::atomic<bool>> created;  // its device; null: it is simulated
      stage_setup topology;                        // its neighbors and peers
      bool over = false;
    };
    std::map<stage_name, entry> stages;
    bool trainer_over = false;
    std::optional<double> released_s;  // when, on this host's clock
  };

  bool may_send(address from, const message& m);
  void on_stage_setup(address trainer, stage_setup s);
  void report_failure(address trainer, const stage_setup& s, const reason& why);
  void report_starting(address trainer, const stage_setup& s);
  template <class T>
  void to_stage(const stage_name& who, address from, T& m, const payload& body);
  part* part_of(lease_id lease);
  void return_memory_soon();

  node_actor::pointer self_ = nullptr;
  runtime::host host_;
  shared_cluster cluster_;
  std::string backend_;
  gpu::cuda_device_maker make_cuda_;
  std::map<lease_id, part> parts_;
  guest_supervisor guests_;
  std::uint64_t trainers_ = 0;
  std::optional<double> trim_at_s_;  // when, on this host's clock; none: nothing to return
};

}  // namespace troupe::actors
