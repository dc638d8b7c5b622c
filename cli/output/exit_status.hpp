#pragma once

namespace troupe::cli {

/// Exit statuses.
inline constexpr int exit_done = 0;
inline constexpr int exit_no = 1;   // infeasible, failed, a difference: with the reason
inline constexpr int exit_bad = 2;  // bad usage or a bad file

}  // namespace troupe::cli
