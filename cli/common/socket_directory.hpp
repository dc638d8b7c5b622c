#pragma once

#include <filesystem>

#include "messages/reason.hpp"

namespace troupe::cli {

/// A directory for the Unix sockets of the cluster whose files are in `state`: this user's alone,
/// and so short that a socket's path with a name of `longest_name` bytes is one that the kernel
/// takes. It is state/sockets if that is short enough, else one that is made elsewhere under a name
/// nobody can foresee, and on record in state/sockets.path. What is there and is somebody else's,
/// or open to others and not to be closed, is refused.
expected<std::filesystem::path> socket_directory(const std::filesystem::path& state,
                                                 std::size_t longest_name);

/// Removes it with what is in it, if it lies outside of `state`.
void remove_socket_directory(const std::filesystem::path& state);

}  // namespace troupe::cli
