#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "messages/base/reason.hpp"

// Determines which lease may write to a checkpoint directory: the newest that has opened it. An
// attempt that was wrongly considered lost (its process was stopped, its network cut) has an older
// number and is excluded. The file `fence` in the directory has the newest number, and is changed
// under its own lock.

namespace troupe::gpu {

/// From now on older leases are kept out; makes the directory if there is none. Refuses (stale) if
/// a newer lease has taken it.
expected<void> take_fence(const std::filesystem::path& root, std::uint64_t lease);

/// May this lease still write?
expected<void> check_fence(const std::filesystem::path& root, std::uint64_t lease);

/// Completes a checkpoint if this lease may: no newer lease can open the directory meanwhile.
expected<void> write_fenced(const std::filesystem::path& root, std::uint64_t lease,
                            const std::function<expected<void>()>& write);

}  // namespace troupe::gpu
