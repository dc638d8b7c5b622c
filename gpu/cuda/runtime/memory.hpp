#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "gpu/cuda/runtime/machine.hpp"

namespace troupe::gpu::cuda {

/// A pool of reusable memory. Buffers may outlive the pool, and keep the machine alive.
///
/// A kernel may still use a released buffer: the next owner's kernels are launched later in the
/// same stream and so run after it. That does not hold for copies from and to the host, which run
/// concurrently with kernels: their memory comes from a separate pool, whose buffers are released
/// only after the machine has reached an event behind the copy.
class block_pool {
 public:
  enum class where { gpu, copied, host };  // copied: GPU memory for copies from and to the host
  block_pool(std::shared_ptr<machine> m, where w)
      : blocks_{std::make_shared<blocks>(std::move(m), w)} {}

  /// n uninitialized values.
  template <class T>
  std::shared_ptr<T> take(std::size_t n) {
    const auto bytes = (n * sizeof(T) + 255) / 256 * 256;
    const std::shared_ptr<void> memory{blocks_->take(bytes),
                                       [all = blocks_, bytes](void* b) { all->give(b, bytes); }};
    return {memory, static_cast<T*>(memory.get())};
  }

 private:
  struct blocks {
    blocks(std::shared_ptr<machine> m, where w) : from{std::move(m)}, place{w} {}
    ~blocks() {
      for (const auto& [size, all] : free)
        for (auto* b : all) release(b);
    }
    void* take(std::size_t bytes) {
      {
        std::lock_guard lock{guard};
        if (const auto found = free.find(bytes); found != free.end() && !found->second.empty())
          return found->second.extract(found->second.begin()).value();
      }
      return place == where::host ? from->take_host(bytes) : from->take(bytes);
    }
    void give(void* b, std::size_t bytes) {
      if (place != where::gpu) from->let_go(b, bytes);
      std::lock_guard lock{guard};
      free[bytes].insert(b);
    }
    void release(void* b) { place == where::host ? from->give_host(b) : from->give(b); }

    std::shared_ptr<machine> from;
    where place;
    std::mutex guard;
    // By size. The lowest address is used first, so that a pass with the same allocations as the
    // one before has the same memory.
    std::map<std::size_t, std::set<void*, std::less<>>> free;
  };

  std::shared_ptr<blocks> blocks_;
};

}  // namespace troupe::gpu::cuda
