#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/protocol/courier.hpp"
#include "actors/protocol/protocol.hpp"
#include "actors/training/clock_offset.hpp"
#include "actors/training/curve_file.hpp"
#include "actors/training/timeline.hpp"
#include "actors/training/training_plan.hpp"

namespace troupe::actors {

struct trainer_options {
  std::shared_ptr<const troupe::cluster> cluster;
  lease_id lease = 0;
  job_id job = 0;
  train_order order;
  std::uint64_t incarnation = 0;  // larger than any earlier trainer's of this lease
  std::string backend;            // of a job that does not say: sim, cpu, cuda
  courier via;
};

/// Runs one training job: plans the pipeline, sets up the stages, and collects their reports.
/// Stages run on their own; the trainer is involved again only when a stage reaches the end of the
/// iterations it was given.
class trainer_state {
 public:
  trainer_state() = default;
  void start(trainer_actor::pointer self, trainer_options o);
  void hear(const stage_report& r);
  void heard(const training_report_ack& h);
  void on_tick();
  void stop();

 private:
  struct means {
    stage_costs sum;
    std::uint32_t iterations = 0;
    void add(const stage_costs& k);
    stage_costs mean() const;
  };
  struct progress {
    bool ready = false;
    clock_offset clock;  // of its host
    std::uint64_t done = 0, saved = 0;
    std::deque<stage_costs> measured;  // in its latest iterations
    means window;                      // since the last look
    std::uint32_t max_in_flight = 0;
    std::vector<std::uint8_t> group_id;  // stage_report's
    reason fallback_reason;
    std::optional<std::uint64_t> halts_at;
  };
  struct pending {
    iteration_record record;
    std::uint32_t stages = 0;  // that have reported
  };

  void prepare();
  void say_what_it_costs();
  void set_up_missing();
  void introduce_devices();
  void run_window();
  void run(std::size_t i);
  void hear_starting(const stage_report& r);
  void note(std::size_t i, const stage_report& r);
  void complete(const iteration_record& r);
  void look_at_checkpoint();
  std::uint64_t unsaved() const;
  void replan_if_drifted();
  void say_replanned(const std::string& what, double kept_s);
  stage_costs slowest_of_stage(std::uint32_t stage) const;
  double tokens_per_s() const;
  void report();
  void write_curve();
  void note_halt(std::size_t i, std::uint64_t at);
  void end_if_over();
  void fail(part_report::state how, const std::string& why);
  void finish(part_report::state how, const std::string& why);
  void told_all();
  void news(const std::string& sentence);
  std::uint64_t total() const { return o_.order.spec.iterations; }
  std::size_t index(const stage_name& n) const { return n.pipeline * plan_.shape.stages + n.stage; }

  trainer_actor::pointer self_ = nullptr;
  trainer_options o_;
  training_plan plan_;
  std::vector<progress> stages_;                      // pipeline * stages + stage
  std::vector<std::vector<std::uint8_t>> group_ids_;  // by stage: what peers' devices meet by
  std::map<std::uint64_t, pending> pending_;
  std::uint64_t first_ = 0, done_ = 0, until_ = 0, saved_ = 0;
  std::uint32_t ready_ = 0;
  std::uint64_t wan_bytes_ = 0;
  double heard_s_ = 0, moved_s_ = 0;  // when a stage last spoke, and last got further,
  double starting_s_ = 0;             // and last said that it is being set up
  bool said_starting_ = false;
  double longest_s_ = 0, worked_s_ = 0;  // the longest iteration; all of them
  double last_end_s_ = 0;
  curve_file curve_;
  double wall_ahead_s_ = 0;  // of the monotonic clock; one value, so that durations stay exact
  bool replanned_ = false;
  // Stopping: first every stage halts, then all go on to the iteration that the furthest has begun.
  bool stopping_ = false;
  std::optional<std::uint64_t> last_;
  std::optional<double> replan_said_s_;  // when people last heard of one
  std::uint64_t replans_unsaid_ = 0;
  timeline trace_;
  // What the controller has not confirmed: iterations and news, and by report how many it held.
  std::vector<iteration_record> untold_;
  std::vector<std::string> untold_news_;
  std::deque<std::pair<std::uint64_t, std::pair<std::size_t, std::size_t>>> on_the_way_;
  std::uint64_t sequence_ = 0;
  part_report::state how_ = part_report::state::running;
  std::string why_;
  bool ended_ = false, told_all_ = false;
};

trainer_actor::behavior_type trainer(trainer_actor::stateful_pointer<trainer_state> self,
                                     trainer_options o);

}  // namespace troupe::actors
