#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "gpu/worker/shared_memory.hpp"
#include "gpu/worker/tensors.hpp"
#include "gpu/worker/worker_protocol.hpp"

namespace troupe::gpu::python {

/// The gradients of a member, in memory that the worker has, too: own and then tied ones.
class gradient_memory {
 public:
  gradient_memory() = default;
  gradient_memory(std::shared_ptr<shared_memory> memory, const worker_stage_ready& sizes)
      : memory_{std::move(memory)},
        own_bytes_{sizes.own_parameters * sizeof(float)},
        tied_bytes_{sizes.tied_parameters * sizeof(float)} {}

  static std::uint64_t size_of(const worker_stage_ready& sizes) {
    return aligned(sizes.own_parameters * sizeof(float)) +
           aligned(sizes.tied_parameters * sizeof(float));
  }
  const std::shared_ptr<shared_memory>& memory() const { return memory_; }
  std::span<std::byte> own() const { return part(0, own_bytes_); }
  std::span<std::byte> tied() const { return part(aligned(own_bytes_), tied_bytes_); }
  std::uint64_t bytes() const { return own_bytes_ + tied_bytes_; }

 private:
  std::span<std::byte> part(std::uint64_t from, std::uint64_t bytes) const {
    return memory_ ? memory_->bytes().subspan(from, bytes) : std::span<std::byte>{};
  }

  std::shared_ptr<shared_memory> memory_;
  std::uint64_t own_bytes_ = 0, tied_bytes_ = 0;
};

}  // namespace troupe::gpu::python
