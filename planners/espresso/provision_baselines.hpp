#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "planners/search/stage_placer.hpp"

// The placers that Espresso's paper compares with (section V.A; docs/planners/espresso.md,
// "Placers"). All get Espresso's search over sets of GPUs, as the paper's "+" versions do.

namespace troupe::planners {

enum class provision_placer : std::uint8_t {
  exact,   // the best order and cut (stage_cut.hpp)
  greedy,  // Algorithm 2 (cmr_placer.hpp)
  sia,     // Sia+: 2^n GPUs of one type, with the best cut
  whale,   // Whale+: the largest memory first; work in proportion to speed, as memory allows
  hph,     // HPH+: the slowest GPUs first, with the best cut
};

/// By their names.
inline constexpr std::pair<const char*, provision_placer> provision_placers[] = {
    {"exact", provision_placer::exact},
    {"greedy", provision_placer::greedy},
    {"sia", provision_placer::sia},
    {"whale", provision_placer::whale},
    {"hph", provision_placer::hph}};
/// exact, greedy, sia, whale or hph; none: another name.
std::optional<provision_placer> provision_placer_named(std::string_view name);

/// The placer's plan for a set. No plan: the placer has none for it, or, where it searches for the
/// cut, none within `limit_s`. `effort` applies to exact.
set_plan place_with(provision_placer how, stage_placer& placer, const cluster& c,
                    std::size_t division, const stage_counts& counts, double limit_s,
                    const cut_effort& effort = {});

}  // namespace troupe::planners
