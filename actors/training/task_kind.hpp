#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "messages/stage.hpp"

namespace troupe::actors {

/// What a stage spends time on: the numbers of timed_task::what.
enum class task_kind : std::uint8_t {
  forward,
  recompute,
  backward,
  reduce,
  update,
  checkpoint,
  activation_transfer,  // to this stage, over the WAN
  gradient_transfer,
  prefill  // the stage's guest; on the device again
};

/// Does it keep a device busy? Transfers do not.
constexpr bool is_on_device(task_kind k) {
  return k != task_kind::activation_transfer && k != task_kind::gradient_transfer;
}

/// Its name in a timeline, and its colour in chrome://tracing.
struct task_style {
  std::string_view name, colour;
};
inline constexpr std::array<task_style, 9> task_styles{{{"forward", "good"},
                                                        {"recompute", "yellow"},
                                                        {"backward", "thread_state_running"},
                                                        {"reduce", "olive"},
                                                        {"update", "grey"},
                                                        {"checkpoint", "black"},
                                                        {"activation", "rail_load"},
                                                        {"gradient", "rail_response"},
                                                        {"prefill", "rail_animation"}}};

constexpr std::size_t index_of(task_kind k) {
  return static_cast<std::size_t>(k);
}
static_assert(index_of(task_kind::prefill) + 1 == task_styles.size());

constexpr task_kind kind_of(stage_step::kind k) {
  switch (k) {
    case stage_step::kind::forward:
      return task_kind::forward;
    case stage_step::kind::recompute:
      return task_kind::recompute;
    case stage_step::kind::backward:
      break;
  }
  return task_kind::backward;
}

constexpr timed_task task_of(task_kind k, std::uint32_t microbatch, double begin_s, double end_s) {
  return {static_cast<std::uint8_t>(k), microbatch, begin_s, end_s};
}

}  // namespace troupe::actors
