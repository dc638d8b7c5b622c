#pragma once

namespace troupe::slots {

/// Sixty stages and micro-batches over five datacenters, in slots, by C: what a simulation that is
/// not of this project found.
inline constexpr struct {
  const char* name;
  int two, three;
} sixty_over_five[] = {{"varuna", 484, 540},
                       {"varuna-forward-first", 431, 440},
                       {"atlas", 483, 544},
                       {"atlas-least-progress", 425, 429}};

}  // namespace troupe::slots
