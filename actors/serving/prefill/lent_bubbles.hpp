#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/serving/decoder/median_of_recent.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/address.hpp"
#include "messages/wire/prefill.hpp"
#include "planners/bubbletea/prefill_forecast.hpp"

namespace troupe::actors {

/// The bubbles that one training lends to the prefill controller of a datacenter: the offer, when
/// each device is idle, and the forecast of the prompts that were promised there. A class apart
/// from the controller because it depends on offers and signals of one training alone: it sends
/// nothing, and knows neither decoders nor orders. Pure: times are arguments, in seconds on the
/// controller's clock.
///
/// States of a device:
///
///   closed     no windows: no iteration has begun yet, or its guest has declined an order
///     -> open, at the next stage_signal
///   open       windows are planned from the timetable, anchored at the newest signal, and go on
///              without signals
///     -> closed, by close(): until the stage's next iteration
class lent_bubbles {
 public:
  /// Rule look-ahead decides that long before a bubble begins, so that orders arrive in time.
  static constexpr double decides_ahead_s = 0.002;

  lent_bubbles() = default;
  /// Precondition: the offer is valid (prefill_permissions). No device is open yet.
  explicit lent_bubbles(const bubble_offer& o);

  const bubble_offer& offer() const { return offer_; }
  /// The same trainer, guests and settings: promises stand, and only times may differ.
  bool has_guests_of(const bubble_offer& o) const;
  /// Takes the timetable of an offer with the same guests.
  void update(const bubble_offer& o, double now_s);

  /// A stage's iteration has begun. False: its sender is not the stage's node, or the guest's
  /// factor is out of range. Signals of unknown stages and of earlier iterations are ignored.
  bool on_signal(address from, const stage_signal& s, double now_s);
  /// The stage's guest takes no prompts; `paused`: because of its delay budget.
  void close(const stage_name& stage, bool paused, double now_s);

  struct promise {
    std::uint32_t group = 0;
    double planned_end_s = 0;
    double allowance_s = 0;  // for lateness, beyond that
  };
  /// Plans a prompt, whose end and allowance must be at most at `latest_s`. An error: why not.
  tl::expected<promise, std::string> admit(const prefill_name& name, std::uint32_t tokens,
                                           double latest_s, double now_s);
  /// A promised prompt is ordered, and planned to end then.
  void ordered(const prefill_name& name, double end_s);
  /// Rule look-ahead: promised prompts whose first bubble begins now, with their planned ends.
  std::vector<std::pair<prefill_name, double>> take_begun(double now_s);
  bool looks_ahead() const { return looks_ahead_; }
  /// Rule look-ahead: when take_begun() may have something; never: not before a change.
  double next_s() const;
  /// A promised prompt has ended or is cancelled.
  void over(const prefill_name& name, double now_s);
  /// How much later than planned a prompt ended.
  void add_lateness(double s) { lateness_.add(s); }

 private:
  /// A stage's device, and the bubbles of its training.
  struct device {
    std::uint32_t group = 0;
    std::optional<double> origin_s;  // begin of the present iteration's window; nothing: closed
    double lent_from_s = 0;          // guests compute nothing before they have seen one iteration
    std::uint64_t iteration = 0;     // the newest one that was signalled
    double factor = 1;               // of its guest's times, in the forecast
    planners::idle_windows busy;     // repeated every period_s_
    double known_until_s = 0;        // end of its windows in the forecast
    bool paused = false;             // by its delay budget, until its next signal
  };
  struct planned_prompt {
    std::uint64_t id = 0;  // in the forecast
    std::uint32_t group = 0;
    double end_s = never;  // once it is ordered
  };

  double plan_time_s(double now_s) const;
  double usual_lateness_s() const;
  bool correct_times(std::uint32_t d, double factor, double now_s);
  void plan_windows(std::uint32_t d, double now_s);
  void extend_windows(double now_s);
  void allow_for_lateness(double now_s);

  bubble_offer offer_;
  planners::prefill_forecast forecast_;
  std::vector<device> devices_;                     // by their number in the forecast
  std::map<stage_name, std::uint32_t> device_of_;   // that number
  double period_s_ = 0;                             // after which the timetable is repeated
  bool looks_ahead_ = false;                        // the offer's rule
  std::map<prefill_name, planned_prompt> prompts_;  // promised, not over
  std::map<std::uint64_t, prefill_name> by_id_;     // the same prompts
  std::map<std::pair<double, prefill_name>, std::uint32_t> ends_;  // planned; their groups
  median_of_recent lateness_;  // of prompts' ends after those planned
  std::uint64_t ids_ = 0;
};

}  // namespace troupe::actors
