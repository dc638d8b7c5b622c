#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace troupe::gpu::cpu {

/// Threads that share the blocks of a work. Which thread computes a block is not determined, so the
/// caller cuts works into blocks whose results do not depend on that, nor on how many threads there
/// are. Between works the threads wait for the next one for some microseconds, then sleep.
class thread_team {
 public:
  /// `threads`: the caller's own included; 1: none is started.
  explicit thread_team(std::size_t threads);
  ~thread_team();
  thread_team(const thread_team&) = delete;
  thread_team& operator=(const thread_team&) = delete;

  std::size_t size() const { return workers_.size() + 1; }

  /// f(block, thread) for each block below `blocks`; thread < size(), and 0 is the caller's.
  /// Returns when all are done. f must not throw, and must not call this. One caller at a time.
  template <class F>
  void run(std::size_t blocks, F&& f) {
    using function = std::remove_reference_t<F>;
    if (blocks <= 1 || workers_.empty()) return run_alone(blocks, f);
    share(blocks, const_cast<void*>(static_cast<const void*>(&f)),
          [](void* what, std::size_t block, std::size_t thread) {
            (*static_cast<function*>(what))(block, thread);
          });
  }
  /// The same on the caller's thread alone if the work is too small to be worth sharing.
  template <class F>
  void run_if(bool worth_sharing, std::size_t blocks, F&& f) {
    if (worth_sharing)
      run(blocks, f);
    else
      run_alone(blocks, f);
  }

 private:
  template <class F>
  static void run_alone(std::size_t blocks, F&& f) {
    for (std::size_t i = 0; i < blocks; ++i) f(i, std::size_t{0});
  }
  using call = void(void* what, std::size_t block, std::size_t thread);
  void share(std::size_t blocks, void* what, call* how);
  bool take_block(std::size_t thread);
  void work(std::size_t thread);

  // A work's number in the upper half, and its blocks that nobody has taken in the lower one: a
  // thread that comes late cannot take a block of a work that has ended.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<std::uint64_t> done_{0};  // blocks of the present work
  void* what_ = nullptr;
  call* how_ = nullptr;
  std::atomic<std::uint32_t> asleep_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace troupe::gpu::cpu
