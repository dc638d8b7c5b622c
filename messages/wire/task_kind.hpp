#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "messages/wire/stage.hpp"

namespace troupe {

/// The uses of a stage's time: the numbers of timed_task::what, on the wire and in the dashboard.
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

/// The meaning of timed_task::microbatch.
enum class task_number : std::uint8_t { none, microbatch, prompt };

struct task_facts {
  std::string_view name;  // in timelines, metrics and the dashboard
  bool on_device;         // does it keep a device busy? Transfers do not
  task_number number;
};
/// By kind. A new kind is an enumerator, a row here, its colours in the two pictures
/// (actors/training/trainer/timeline.cpp, web/page/style.css); tests compare. docs/wire.md is made
/// from it.
inline constexpr std::array<task_facts, 9> task_kinds{
    {{"forward", true, task_number::microbatch},
     {"recompute", true, task_number::microbatch},
     {"backward", true, task_number::microbatch},
     {"reduce", true, task_number::none},
     {"update", true, task_number::none},
     {"checkpoint", true, task_number::none},
     {"activation", false, task_number::microbatch},
     {"gradient", false, task_number::microbatch},
     {"prefill", true, task_number::prompt}}};

constexpr std::size_t index_of(task_kind k) {
  return static_cast<std::size_t>(k);
}
static_assert(index_of(task_kind::prefill) + 1 == task_kinds.size());

/// The facts of a timed_task::what. Null: an unknown kind, from a host of another version.
constexpr const task_facts* facts_of_task(std::size_t what) {
  return what < task_kinds.size() ? &task_kinds[what] : nullptr;
}

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

}  // namespace troupe
