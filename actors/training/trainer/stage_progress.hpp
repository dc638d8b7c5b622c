#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "actors/training/planning/training_plan.hpp"
#include "actors/training/trainer/clock_offset.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/reason.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The progress of a training's stages, as they report it: which are ready, how far each is, how
/// long its operations take, and where it halts. It sums up what the trainer decides by; the
/// trainer sends and decides. Stages are numbered pipeline * stages + stage.
class stage_progress {
 public:
  /// `kept`: iterations whose median costs are a stage's.
  void begin(const training_plan& plan, std::size_t kept);
  /// No stage has completed more, or fewer.
  void resume_after(std::uint64_t iteration);

  std::size_t size() const { return stages_.size(); }
  std::size_t index(const stage_name& n) const { return n.pipeline * stages_each_ + n.stage; }

  /// The round trip of the trainer's latest message to a stage.
  void add_round_trip(std::size_t i, const stage_report& r, double now_s);
  const clock_offset& clock(std::size_t i) const { return stages_[i].clock; }

  bool is_ready(std::size_t i) const { return stages_[i].ready; }
  bool all_ready() const { return ready_ == stages_.size(); }
  /// Its first report. True: the last stage is ready now.
  bool set_ready(std::size_t i, const stage_report& r);
  /// The id of the collective communicator of the devices of all peers; empty: hosts all-reduce.
  const std::vector<std::uint8_t>& communicator_id(std::uint32_t stage) const;
  /// The reason, of the first pipeline that has one, why the peers' devices do not all-reduce.
  const reason* fallback_reason(std::uint32_t stage) const;
  /// The answer to the id. Nothing is to be waited for once groups_are_settled(): each stage's
  /// peers have joined their group, or have none.
  void set_joined(std::size_t i, const stage_report& r);
  bool groups_are_settled() const;

  /// The stage begins anew on another host.
  void begin_again(std::size_t i);

  /// It is on another host.
  void set_moved(std::size_t i) { stages_[i].clock = {}; }
  std::uint64_t done(std::size_t i) const { return stages_[i].done; }
  /// REQUIRES: the report is of the iteration after done().
  void add(std::size_t i, const stage_report& r);
  void set_saved(std::size_t i, std::uint64_t saved);
  /// The iterations in the newest checkpoint that is complete: whose files all stages of pipeline 0
  /// have written; at most `limit`. 0: none is. A stage that others took over lacks some.
  std::uint64_t saved_by_all(std::uint64_t limit) const;

  /// A stage halts after this iteration. Once all have reported one, the furthest of these: all go
  /// on to it, so that no iteration is lost.
  std::optional<std::uint64_t> halt(std::size_t i, std::uint64_t at);

  /// Mean costs by stage since the last call. For re-planning: a link or a node that has become
  /// slow must show after one window.
  std::vector<stage_costs> take_means();
  /// Median costs by stage over the latest iterations. For profiles: outliers must not count.
  std::vector<stage_costs> medians() const;
  /// The maximum of each cost of one stage over the pipelines.
  stage_costs slowest(std::uint32_t stage) const;
  std::uint32_t max_in_flight(std::uint32_t stage) const;

 private:
  struct means {
    stage_costs sum;
    std::uint32_t iterations = 0;
    void add(const stage_costs& k);
    stage_costs mean() const;
  };
  struct one {
    bool ready = false;
    clock_offset clock;  // of its host
    std::uint64_t done = 0;
    std::set<std::uint64_t> saved;     // iterations in its newest checkpoints
    std::deque<stage_costs> measured;  // in its latest iterations
    means window;                      // since the window began
    std::uint32_t max_in_flight = 0;
    std::vector<std::uint8_t> communicator_id;  // of its first report, as the next one
    reason fallback_reason;
    bool joined = false;
    std::optional<std::uint64_t> halts_at;
  };
  const one& of(std::uint32_t pipeline, std::uint32_t stage) const {
    TROUPE_INVARIANT(pipeline < pipelines_ && stage < stages_each_,
                     "a stage that is asked for is one of the training");
    return stages_[pipeline * stages_each_ + stage];
  }

  std::uint32_t stages_each_ = 1, pipelines_ = 0;
  std::size_t kept_ = 1, ready_ = 0;
  std::vector<one> stages_;
};

}  // namespace troupe::actors
