#pragma once

namespace troupe {

/// Which bug of planted.txt is switched on; 0: none.
extern int planted_bug;

inline bool planted(int bug) {
  return planted_bug == bug;
}

}  // namespace troupe
