#pragma once

#include <filesystem>
#include <string>

namespace troupe::gpu {

/// The text of a file of the kernel's (/proc, /sys), which says that it has no bytes; empty: there
/// is none.
std::string kernel_file(const std::filesystem::path& file);

}  // namespace troupe::gpu
