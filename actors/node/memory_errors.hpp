#pragma once

#include <string>
#include <string_view>

namespace troupe::actors {

/// The line of a failed program's last output that says that it ran out of GPU memory; empty: there
/// is none, or the program went on and failed with another error.
std::string memory_error_in(std::string_view last_output);

/// Did the program run out of GPU memory? True for the agreed exit status (launch_environment.hpp),
/// and for a failed one whose last output has such a line.
bool ran_out_of_memory(int exit_code, std::string_view last_output);

}  // namespace troupe::actors
