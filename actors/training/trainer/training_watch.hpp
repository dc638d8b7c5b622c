#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include <fmt/format.h>

namespace troupe::actors {

/// When a training counts as stuck: no stage reports, or the stages report and none gets further.
/// Times are seconds on the trainer's clock. The limits grow with the longest iteration, since a
/// stage sends nothing during one.
class training_watch {
 public:
  void begin(double now_s) { last_report_s_ = last_progress_s_ = now_s; }
  void on_report(double now_s) { last_report_s_ = now_s; }
  /// A stage is ready, or has completed an iteration.
  void on_progress(double now_s) { last_progress_s_ = now_s; }
  /// A stage is still being set up. True, once: that has taken long enough for an event.
  bool on_starting(double now_s) {
    last_starting_s_ = now_s;
    if (setup_s() < starting_event_after_s || starting_reported_) return false;
    return starting_reported_ = true;
  }
  double setup_s() const { return last_starting_s_ - last_progress_s_; }
  double silent_s(double now_s) const { return now_s - last_report_s_; }

  struct pace {
    double longest_s = 0;    // of an iteration; 0: none is complete
    double planned_s = 0;    // of an iteration
    double start_s = 0;      // that stages may need to start, stragglers longer
    std::uint64_t lost = 0;  // iterations since the last checkpoint
  };
  /// Why the training has to end; none: it goes on.
  std::optional<std::string> no_report(double now_s, const pace& p) const {
    const double s = silent_s(now_s);
    if (s <= silence_limit_s + p.start_s + silence_limit_s * p.longest_s + 2 * p.planned_s)
      return {};
    return fmt::format(
        "no report from any stage for {:.3g} s; {} iterations since the last checkpoint are lost",
        s, p.lost);
  }
  /// Stages answer but make no progress, although they request lost tensors.
  std::optional<std::string> no_progress(double now_s, const pace& p) const {
    const double s = now_s - last_progress_s_;
    const bool starting = last_starting_s_ + silence_limit_s > now_s;
    const double unknown_s = starting ? setup_limit_s : no_progress_limit_s;
    const double known_s = p.longest_s > 0 ? 3 * silence_limit_s : unknown_s;
    if (s <= p.start_s + known_s + silence_limit_s * std::max(p.longest_s, p.planned_s)) return {};
    return fmt::format(
        "no stage made progress for {:.3g} s; {} iterations since the last checkpoint are lost", s,
        p.lost);
  }

 private:
  // A lost node is noticed by the controller before these limits; they are for what it cannot see:
  // a device that hangs, or hosts of a lease that cannot reach each other.
  static constexpr double silence_limit_s = 20;       // plus that many times the longest iteration
  static constexpr double no_progress_limit_s = 600;  // before the first iteration is complete,
  static constexpr double setup_limit_s = 3600;       // and while a stage is being set up
  static constexpr double starting_event_after_s = 10;

  double last_report_s_ = 0, last_progress_s_ = 0, last_starting_s_ = 0;
  bool starting_reported_ = false;
};

}  // namespace troupe::actors
