#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "gpu/cuda/runtime/machine.hpp"

namespace troupe::gpu::cuda {

/// Memory that is used again. Buffers may outlive the pool, and hold the machine while they do.
///
/// A kernel may still be at work in a buffer that was let go: whoever takes it next asks for its
/// kernels later, and they come later. That does not hold for copies from and to the host, which
/// go on beside the kernels: what those touch comes from a pool whose buffers are let go only after
/// the machine has reached a mark behind them.
class block_pool {
 public:
  enum class where { gpu, copied, host };  // copied: of the GPU, from and to the host
  block_pool(std::shared_ptr<machine> m, where w)
      : blocks_{std::make_shared<blocks>(std::move(m), w)} {}

  /// n values that nobody has set.
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
    // By size. The lowest address is taken first, so that a pass which takes and lets go of as
    // much as the one before has the same memory.
    std::map<std::size_t, std::set<void*, std::less<>>> free;
  };

  std::shared_ptr<blocks> blocks_;
};

}  // namespace troupe::gpu::cuda
