#pragma once

#include <cstdint>
#include <deque>

#include "actors/protocol/messenger.hpp"
#include "messages/domain/address.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// A stage's reports to its trainer, and the trainer's clock. Reports may be lost: each is repeated
/// with every message of the trainer until that acknowledges its iteration. Each carries the time
/// that the trainer's latest message waited here, from which the trainer measures this host's
/// clock.
class stage_reports {
 public:
  stage_reports() = default;
  /// `s` is the stage's own, and outlives it. It arrived at `received_s`.
  stage_reports(const messenger& m, address trainer, const stage_setup& s, double received_s)
      : messenger_{m},
        trainer_{trainer},
        setup_{&s},
        run_sent_s_{s.sent_s},
        run_received_s_{received_s} {}

  /// A message of the trainer: repeats what it does not acknowledge. It ignores duplicates.
  void on_run(const stage_run& r);

  /// Until it is acknowledged.
  void report(stage_report r);
  /// Once: the trainer asks again if it is lost.
  void send(stage_report r);

  /// How far this host's clock is ahead of the trainer's. Unknown, and 0, before the first run.
  double ahead_s() const { return ahead_s_; }
  /// On the trainer's clock.
  double training_time_s() const { return messenger_.now_s() - ahead_s_; }

 private:
  messenger messenger_;
  address trainer_ = 0;
  const stage_setup* setup_ = nullptr;
  // When the trainer sent its latest message, on its clock, and when that arrived, on this one.
  double run_sent_s_ = 0, run_received_s_ = 0;
  double ahead_s_ = 0;
  std::uint64_t acknowledged_ = 0;  // iterations
  std::deque<stage_report> unacknowledged_;
};

}  // namespace troupe::actors
