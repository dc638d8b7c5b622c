#pragma once

#include <string>

#include "messages/reason.hpp"

namespace troupe::runtime {

/// Makes a directory (and those above it) that its owner alone can look into, or takes one that is
/// there and closes it to others. Refuses one that belongs to another user: they could put anything
/// in the place of what is written there.
expected<void> prepare_private_directory(const std::string& path);

/// From now on all files that this process makes are its owner's alone. Programs that it starts
/// have the umask that it had before.
void make_files_private();
unsigned umask_of_programs();

/// What a file in a state directory is made with: its owner alone may read and write it.
inline constexpr unsigned private_file_mode = 0600;

}  // namespace troupe::runtime
