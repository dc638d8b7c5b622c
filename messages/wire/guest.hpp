#pragma once

#include <cstdint>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/serving.hpp"
#include "messages/domain/stage_name.hpp"

// Guests in the bubbles of a stage, as its setup has them: apart from the messages about prefill,
// so that what deals with stages alone does not depend on those.

namespace troupe {

/// A guest of a prefill pipeline: layers of the served model on the device of a training's stage.
struct guest_place {
  stage_name stage;
  address node = 0;  // address of the stage's node
  std::uint32_t first_layer = 0, layers = 0;
  double token_s = 0;      // of a layer, for each token (planners/bubbletea/prefill_times.hpp)
  double pair_s = 0;       // of a layer, for each token and each earlier one
  double half_tokens = 0;  // rows on which an operation runs at half of the full rate

  TROUPE_FIELDS(guest_place, stage, node, first_layer, layers, token_s, pair_s, half_tokens);
};

/// An interval in which a stage computes, in seconds from the beginning of the first stage's first
/// step after a barrier. Lists have one for each step of the order, then those of the gradients'
/// copy and the update; some may touch or be empty. A list describes each of the first `shown`
/// iterations after the barrier. After these, the last iteration before the next barrier is like
/// the last of the list, and every other one is like the one before that, each `iteration_s` later
/// (planners/bubbletea/window_plan.hpp).
struct busy_time {
  double begin_s = 0;
  double end_s = 0;  // exclusive

  TROUPE_FIELDS(busy_time, begin_s, end_s);
};
/// The planned busy times of a stage, from one barrier to the next.
struct stage_timetable {
  std::vector<busy_time> busy;  // in the first iterations after a barrier
  double iteration_s = 0;       // from an iteration's begin to the next one's
  std::uint64_t window = 0;     // iterations from one barrier to the next; 0: there are none
  /// The planned wait of the stage before its first step after a barrier.
  double barrier_s = 0;
  static constexpr std::size_t required = 2;

  TROUPE_FIELDS(stage_timetable, busy, iteration_s, window, barrier_s);
};

/// The guest of a stage, and the plan for its time.
struct guest_setup {
  bubble_lending how;
  guest_place place;
  stage_timetable times;  // when the plan has the stage compute

  TROUPE_FIELDS(guest_setup, how, place, times);
};

}  // namespace troupe
