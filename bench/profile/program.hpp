#pragma once

namespace troupe::bench {

/// bench_profile --program: the same for layers of a program (unequal.py), on one and on two
/// stages, and how even the cut by time is. Returns the exit status.
int profile_program(int rounds, bool as_json);

}  // namespace troupe::bench
