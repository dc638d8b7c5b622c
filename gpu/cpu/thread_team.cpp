#include "gpu/cpu/thread_team.hpp"

#include "gpu/cpu/kernels/matrix.hpp"
#include "messages/base/invariant.hpp"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace troupe::gpu::cpu {

namespace {

constexpr std::uint64_t one_work = 1ull << 32, blocks_mask = one_work - 1;

// Some 200 microseconds: longer than what lies between two works of a token and between two tokens,
// shorter than what anybody would notice of an idle server.
constexpr int looks_before_sleep = 8000;

void pause_processor() {
#ifdef __SSE2__
  _mm_pause();
#endif
}

}  // namespace

thread_team::thread_team(std::size_t threads) {
  try {
    for (std::size_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error&) {  // fewer compute the same values
  }
}

thread_team::~thread_team() {
  {
    const std::lock_guard hold{mutex_};
    ends_ = true;
  }
  wake_.notify_all();
  for (auto& w : workers_) w.join();
}

// The caller takes blocks like the others, so that a work ends although the others get no processor
// time; it waits only for blocks that they have begun. Sequentially consistent: a worker counts
// itself as asleep before it looks at the ticket for the last time, and the caller writes the
// ticket before it looks for sleepers, so that one of the two sees the other.
void thread_team::share(std::size_t blocks, void* what, call* how) {
  TROUPE_INVARIANT(blocks <= blocks_mask, "a ticket counts all blocks of a work");
  TROUPE_INVARIANT((ticket_.load(std::memory_order_relaxed) & blocks_mask) == 0,
                   "a team has one task at a time, which its threads read from the team");
  what_ = what;
  how_ = how;
  done_.store(0, std::memory_order_relaxed);
  ticket_.store((ticket_.load(std::memory_order_relaxed) & ~blocks_mask) + one_work + blocks);
  if (asleep_.load() > 0) {
    { const std::lock_guard hold{mutex_}; }
    wake_.notify_all();
  }
  while (take_block(0)) {
  }
  for (int looks = 0; done_.load(std::memory_order_acquire) < blocks; ++looks) {
    if (looks < looks_before_sleep)
      pause_processor();
    else
      std::this_thread::yield();
  }
  TROUPE_INVARIANT(done_.load(std::memory_order_relaxed) == blocks,
                   "each block of a work is done once");
}

// The function is read after a block has been taken: until that block is done, the work cannot end,
// and nobody writes the function.
bool thread_team::take_block(std::size_t thread) {
  auto t = ticket_.load(std::memory_order_acquire);
  do {
    if ((t & blocks_mask) == 0) return false;
  } while (!ticket_.compare_exchange_weak(t, t - 1, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
  how_(what_, (t & blocks_mask) - 1, thread);
  done_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

void thread_team::work(std::size_t thread) {
  prepare_thread();
  const auto is_work = [this] { return (ticket_.load() & blocks_mask) > 0; };
  for (int looks = 0;;) {
    if (take_block(thread)) {
      looks = 0;
    } else if (++looks < looks_before_sleep) {
      pause_processor();
    } else {
      std::unique_lock hold{mutex_};
      asleep_.fetch_add(1);
      wake_.wait(hold, [&] { return ends_ || is_work(); });
      asleep_.fetch_sub(1);
      if (ends_) return;
      looks = 0;
    }
  }
}

}  // namespace troupe::gpu::cpu
