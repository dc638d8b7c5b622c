#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "planners/bubbletea/prefill_packing.hpp"

// The fate of a trace's prompts if the training keeps its timetable and operations take what is
// predicted: the packing alone, without actors, network or decoders. The bench and the tests of the
// packing use it, too.

namespace bubbletea {

using namespace troupe;  // an example's own header

struct replay_options {
  std::size_t saturated = 0;  // keep that many prompts promised, whenever they arrive; 0: no
  double until_s = never;     // no prompt is admitted from then on
};

/// A prompt whose prefill ended.
struct served_prefill {
  std::uint64_t id = 0;
  std::uint32_t tokens = 0, group = 0;
  double arrival_s = 0;
  double promised_s = 0;  // predicted at its admission
  double end_s = 0;

  double seconds() const { return end_s - arrival_s; }
};

struct prefill_replay {
  std::uint64_t offered = 0;
  std::vector<served_prefill> served;                               // in the order of their ends
  std::array<std::uint64_t, planners::decline_reasons> declined{};  // by decline_reason
  std::vector<std::vector<planners::prefill_piece>> pieces;         // by device, in order

  std::uint64_t all_declined() const;
  /// When a device was in use.
  planners::idle_windows used(std::size_t device) const;
};

/// Offers the requests (in the order of their arrival; ids are unique) and runs what is promised to
/// its end. Saturated: requests are taken in turn, again and again, with new ids and without
/// deadlines, and each arrives when it is offered. `devices`: that the packing has windows for.
prefill_replay replay_prefills(planners::prefill_packing packing, std::size_t devices,
                               std::span<const planners::prefill_prompt> requests,
                               const replay_options& options = {});

}  // namespace bubbletea
