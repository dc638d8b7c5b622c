#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "messages/reason.hpp"

namespace troupe::gpu {

/// A memory-mapped file, unmapped by its last owner.
struct mapped_file {
  std::shared_ptr<const std::byte> bytes;
  std::size_t size = 0;
};
expected<mapped_file> map_file(const std::filesystem::path& file);

}  // namespace troupe::gpu
