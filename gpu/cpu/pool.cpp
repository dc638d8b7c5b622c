#include "gpu/cpu/pool.hpp"

#include <new>

namespace troupe::gpu::cpu {

namespace {

constexpr std::align_val_t alignment{64};

}  // namespace

pool::free_list::~free_list() {
  for (const auto& [size, block] : blocks) ::operator delete(block, alignment);
}

// Blocks are recycled by exact size: a stage takes the same sizes in every iteration, so from the
// second on nothing is allocated and no fresh page is faulted in. Sizes are multiples of 64 so that
// every buffer fills whole cache lines. The deleter holds the list, not the pool: a buffer may
// outlive the pool, and may be released on any thread.
std::shared_ptr<std::byte> pool::take_bytes(std::size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  std::byte* block = nullptr;
  {
    std::lock_guard lock{free_->guard};
    if (const auto found = free_->blocks.find(bytes); found != free_->blocks.end()) {
      block = found->second;
      free_->blocks.erase(found);
    }
  }
  if (block == nullptr) block = static_cast<std::byte*>(::operator new(bytes, alignment));
  return {block, [list = free_, bytes](std::byte* b) {
            std::lock_guard lock{list->guard};
            try {
              list->blocks.emplace(bytes, b);
            } catch (const std::bad_alloc&) {
              ::operator delete(b, alignment);
            }
          }};
}

}  // namespace troupe::gpu::cpu
