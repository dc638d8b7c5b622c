#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "messages/reason.hpp"

// Which lease may write into a checkpoint's directory: the newest that has opened it. An attempt
// that was taken for lost and is not (its process was stopped, its network cut) is kept out by its
// older number. The file `fence` in the directory has the newest; it changes under its own lock.

namespace troupe::gpu {

/// From now on older leases are kept out; makes the directory if there is none. Refuses (stale) if
/// a newer lease has taken it. Empty text: done.
reason take_fence(const std::filesystem::path& root, std::uint64_t lease);

/// Whether this lease may still write.
reason check_fence(const std::filesystem::path& root, std::uint64_t lease);

/// Does what makes a checkpoint whole, if this lease may: no newer one can take the directory in
/// the meantime.
reason write_fenced(const std::filesystem::path& root, std::uint64_t lease,
                    const std::function<reason()>& write);

}  // namespace troupe::gpu
