#pragma once

#include <optional>
#include <string_view>

#include "planners/search/stage_placer.hpp"

// How the systems that Espresso's paper compares with choose and place GPUs (section V.A). All get
// Espresso's search over sets of GPUs, as in the paper.

namespace troupe::planners {

enum class provision_placer : std::uint8_t {
  exact,   // the best order and cut (stage_cut.hpp)
  greedy,  // Algorithm 2 (cmr_placer.hpp)
  sia,     // 2^n GPUs of one type, with the best cut
  whale,  // the largest memory first; as much work for each stage as its speed, where memory allows
  hph,    // the slowest GPUs first, with the best cut
  closed_form  // of `exact`, without what longer chains of events say (fidelity::closed)
};

/// exact, greedy, sia, whale, hph.
std::optional<provision_placer> provision_placer_named(std::string_view name);

/// The plan that the placer makes of a set; none: it makes none, or the exact one none within the
/// limit. `effort`: of the exact one.
set_plan place_with(provision_placer how, stage_placer& placer, const cluster& c,
                    std::size_t division, const stage_counts& counts, double limit_s,
                    const cut_effort& effort = {});

}  // namespace troupe::planners
