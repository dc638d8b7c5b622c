#pragma once

#include <algorithm>

#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Adds sums; of the guard and the worst delay the largest counts.
inline void add_use(bubble_use& all, const bubble_use& one) {
  all.guest_steps += one.guest_steps;
  all.guest_s += one.guest_s;
  all.delayed_steps += one.delayed_steps;
  all.delay_s += one.delay_s;
  all.worst_delay_s = std::max(all.worst_delay_s, one.worst_delay_s);
  all.guard_s = std::max(all.guard_s, one.guard_s);
  all.paused = all.paused || one.paused;
  all.idle_s = all.idle_s.value_or(0) + one.idle_s.value_or(0);
  if (!one.delays) return;
  if (!all.delays) all.delays.emplace();
  all.delays->add(*one.delays);
}

}  // namespace troupe::actors
