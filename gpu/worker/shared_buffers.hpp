#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/worker/buffer_place.hpp"
#include "gpu/worker/shared_memory.hpp"
#include "messages/wire/frame.hpp"

namespace troupe::gpu::python {

/// Memory for tensors, shared with a worker, in pieces (buffers) that are used again: fresh memory
/// is five times slower to fill. It grows up to a limit by further regions, which the worker must
/// be given before it is asked to use them. Thread-safe: payloads return their buffers from any
/// thread.
class shared_buffers {
 private:
  struct state;

 public:
  /// Free again when the last owner lets go.
  class shared_buffer {
   public:
    shared_buffer(std::shared_ptr<state> from, std::span<std::byte> bytes, buffer_place place)
        : from_{std::move(from)}, bytes_{bytes}, place_{place} {}
    ~shared_buffer();
    shared_buffer(const shared_buffer&) = delete;
    shared_buffer& operator=(const shared_buffer&) = delete;

    std::span<std::byte> bytes() const { return bytes_; }
    buffer_place place() const { return place_; }
    /// Gives back what lies behind these bytes.
    void shorten(std::uint64_t bytes);

   private:
    std::shared_ptr<state> from_;
    std::span<std::byte> bytes_;
    buffer_place place_;
  };

  struct region {
    std::uint32_t number = 0;
    std::shared_ptr<shared_memory> memory;
  };

  explicit shared_buffers(std::uint64_t limit_bytes);

  /// Fails if that much is free nowhere and the limit forbids more, or if the machine has no more.
  expected<std::shared_ptr<shared_buffer>> take(std::uint64_t bytes);
  /// Could a buffer of this size be had now?
  bool has_room(std::uint64_t bytes) const;
  /// Those that the worker has not been given.
  std::vector<region> take_new_regions();

 private:
  std::shared_ptr<state> state_;
};

using shared_buffer = shared_buffers::shared_buffer;

/// The bytes of a buffer, which stays taken as long as the payload lives.
payload as_payload(std::shared_ptr<const shared_buffer> s);

}  // namespace troupe::gpu::python
