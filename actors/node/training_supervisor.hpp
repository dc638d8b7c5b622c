#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "actors/node/guest_supervisor.hpp"
#include "actors/node/node_context.hpp"
#include "actors/training/stage/stage.hpp"
#include "messages/wire/message.hpp"
#include "messages/wire/work.hpp"

namespace troupe::actors {

/// The node's side of a training: spawns its stages and trainer and dispatches messages to them.
/// Owned by the node actor.
class training_supervisor {
 public:
  explicit training_supervisor(const node_context& n) : node_{n}, guests_{n} {}

  /// Starts a part of a training; on the first part's node, its trainer as well. Real stages have
  /// their own threads, so that the node keeps reporting.
  void begin(const work_order& w);

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
    trainer_actor trainer;  // on the first part's node
    struct entry {
      stage_actor actor;
      std::uint64_t incarnation = 0;
      std::uint64_t standby = 0;                   // its number; 0: it has begun with the training
      std::size_t devices = 0;                     // of its tensor group
      std::shared_ptr<std::atomic<bool>> created;  // its device; null: it is simulated
      stage_setup topology;                        // its neighbors and peers
      std::shared_ptr<stage_replica> replica;      // of a training that heals
      bool over = false;
    };
    std::map<stage_name, entry> stages;
    std::map<stage_name, entry> standing;  // back after a loss, and in no view yet
    std::map<stage_name, std::shared_ptr<kept_states>> kept;  // of stages whose setups ask for it
    bool trainer_over = false;
    double peak_bytes = 0;             // of any stage, as its trainer says
    std::optional<double> released_s;  // when, on this host's clock
  };

  // Messages from hosts that may not send them in their lease are dropped.
  void on(address from, stage_setup& s, const payload& body);
  void on(address from, stage_run& r, const payload& body);
  void on(address from, stage_report& r, const payload& body);
  void on(address from, tensor& t, const payload& body);
  void on(address from, tensor_request& r, const payload& body);
  void on(address from, training_report_ack& a, const payload& body);
  void set_up(address trainer, stage_setup s);
  void stand_by(address trainer, stage_setup s);
  void repeat(const part::entry& e, address trainer, const stage_setup& s);
  void begin_stage(part& p, part::entry& e, address trainer, stage_setup s);
  bool end_lost(part& p, const stage_name& who);
  void end_left(part& p, const part::entry& of, const std::vector<std::uint32_t>& pipelines);
  void join(part& p, const stage_name& who);
  gpu::worker_starter workers_of(const stage_setup& s, const work_order& order) const;
  void report(address trainer, const stage_setup& s, const reason& why) const;
  part::entry* stage_of(const stage_name& who);
  void end_workers(lease_id lease);
  void return_memory_soon();

  node_context node_;
  std::map<lease_id, part> parts_;
  guest_supervisor guests_;
  std::shared_ptr<gpu::checkpoint_writer> writer_;  // since the first training that saves
  std::uint64_t trainers_ = 0;
  std::optional<double> trim_at_s_;  // when, on this host's clock; none: nothing to return
};

}  // namespace troupe::actors
