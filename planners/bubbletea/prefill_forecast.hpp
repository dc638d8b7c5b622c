#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "planners/bubbletea/prefill_packing.hpp"

// The prefill controller's model of the bubbles (docs/planners/bubbletea.md, "Forecasts"): promises
// over a horizon that goes on, windows that move when a stage reports when it really began, and
// prompts that end sooner or later than planned. All times are in seconds of the controller's
// clock.

namespace troupe::planners {

/// A packing that plays its own plan: up to `now_s` every device has run what next() gave it,
/// unless a call below corrects that. Times never decrease from call to call. Not thread-safe; its
/// owner is the gateway's prefill controller.
class prefill_forecast {
 public:
  prefill_forecast() = default;
  /// No device has windows yet.
  prefill_forecast(packing_options options, std::vector<prefill_group> groups, std::size_t devices,
                   std::uint32_t max_tokens);

  /// The device's windows from now on; they may begin before.
  void set_windows(std::uint32_t device, idle_windows windows, double now_s);

  tl::expected<prefill_promise, decline_reason> admit(const prefill_prompt& r, double now_s);

  /// The prompt has ended or is cancelled. Unknown ones are ignored.
  void over(std::uint64_t id, double now_s);

  /// The device's guest takes `factor` times as long as its group declared at first.
  void set_factor(std::uint32_t device, double factor, double now_s);

  /// A prompt of this group should have ended `by_s` seconds ago: later ones may be as late.
  void late(std::uint32_t group, double by_s, double now_s);

  /// A prompt whose first piece has begun, and the planned end of its last one.
  struct begun_prompt {
    std::uint64_t id = 0;
    double end_s = 0;
  };
  /// The prompts that have begun since the last call, in the order of their beginnings.
  std::vector<begun_prompt> take_begun(double now_s);
  /// When the next piece begins or ends; never: not before something is admitted or changes.
  double next_event_s() const;

  double horizon_s() const { return packing_.horizon_s(); }
  std::size_t promised() const { return packing_.promised(); }

 private:
  struct event {
    double at_s = 0;
    std::uint64_t sequence = 0;
    std::uint32_t device = 0;
    bool operator<(const event& o) const {  // later
      return at_s != o.at_s ? at_s > o.at_s : sequence > o.sequence;
    }
  };
  struct device_state {
    std::optional<prefill_piece> piece;  // that runs
    std::uint64_t expected = 0;  // sequence of its valid event; older ones are stale. 0: none
  };

  void advance(double now_s);
  void expect(std::uint32_t device, double at_s);
  void look(std::uint32_t device, double now_s);
  void look_at_group(std::uint32_t group, double now_s);

  prefill_packing packing_{{}, {}, {}};
  std::vector<device_state> devices_;
  std::vector<event> due_;  // a heap
  std::uint64_t sequence_ = 0;
  std::map<std::uint64_t, std::uint32_t> group_of_;  // promised prompts, by id
  std::vector<std::uint64_t> begun_;
};

}  // namespace troupe::planners
