#pragma once

#include <string>

#include "messages/base/reason.hpp"

namespace troupe::runtime {

/// Creates a directory (and its parents) with mode 0700, or restricts an existing one to its owner.
/// Fails if it belongs to another user, who could replace what is written there.
expected<void> prepare_private_directory(const std::string& path);

/// Sets the umask to 077 for this process. Programs that it starts get the previous umask.
void make_files_private();
unsigned umask_of_programs();

/// The mode of files in a state directory: readable and writable for their owner only.
inline constexpr unsigned private_file_mode = 0600;

}  // namespace troupe::runtime
