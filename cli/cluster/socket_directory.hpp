#pragma once

#include <filesystem>

#include "messages/base/reason.hpp"

namespace troupe::cli {

/// A directory for the Unix sockets of the cluster whose files are in `state`. It is private to
/// this user, and so short that a socket with a name of `longest_name` bytes fits the kernel's
/// limit. It is state/sockets if that is short enough; otherwise it is created elsewhere with an
/// unpredictable name, which is recorded in state/sockets.path. Fails if it belongs to another
/// user, or is accessible to others and cannot be restricted.
expected<std::filesystem::path> socket_directory(const std::filesystem::path& state,
                                                 std::size_t longest_name);

/// Removes it with its contents if it is outside of `state`.
void remove_socket_directory(const std::filesystem::path& state);

}  // namespace troupe::cli
