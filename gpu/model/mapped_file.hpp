#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "messages/reason.hpp"

namespace troupe::gpu {

/// A file's bytes, mapped until the last owner lets go.
struct mapped_file {
  std::shared_ptr<const std::byte> bytes;
  std::size_t size = 0;
};
expected<mapped_file> map_file(const std::filesystem::path& file);

}  // namespace troupe::gpu
