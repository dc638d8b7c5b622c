#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "messages/base/descriptor.hpp"
#include "messages/base/reason.hpp"

namespace troupe::gpu::python {

/// Memory that another process may map, too: a memfd that is sealed against changes of its size, so
/// that none of its users can make another one fault. Zero at first; all pages are there.
class shared_memory {
 public:
  static expected<std::shared_ptr<shared_memory>> make(std::uint64_t bytes);
  ~shared_memory();
  shared_memory(const shared_memory&) = delete;
  shared_memory& operator=(const shared_memory&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  /// To be passed to the other process. -1 after close_file().
  int file() const { return file_; }
  /// The memory stays mapped.
  void close_file() { file_.close(); }

 private:
  shared_memory(descriptor file, std::span<std::byte> bytes)
      : file_{std::move(file)}, bytes_{bytes} {}

  descriptor file_;
  std::span<std::byte> bytes_;
};

}  // namespace troupe::gpu::python
