#include "gpu/emulation/emulation.hpp"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "gpu/cuda/kernels/portable.hpp"
#include "messages/base/random.hpp"

#if defined(__x86_64__)
// ucontext asks the kernel at every switch; this is 20 times as fast.
extern "C" void troupe_test_switch(void** from, void* to);
asm(R"(
.text
.type troupe_test_switch, @function
troupe_test_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");
#endif

namespace troupe::test {

namespace {

using gpu::cuda::lanes;

constexpr std::size_t stack_bytes = 256 * 1024;  // sanitizers' frames are large

/// A target of a switch: the caller, or a thread of the block.
struct context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
  void begin(std::byte* stack, void (*entry)()) {
    auto* top = reinterpret_cast<void**>(stack + stack_bytes);
    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void*>(entry);
    for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
    stack_pointer = top - 8;
  }
  static void change(context& from, context& to) {
    troupe_test_switch(&from.stack_pointer, to.stack_pointer);
  }
#else
  ucontext_t state;
  void begin(std::byte* stack, void (*entry)()) {
    getcontext(&state);
    state.uc_stack.ss_sp = stack;
    state.uc_stack.ss_size = stack_bytes;
    state.uc_link = nullptr;
    makecontext(&state, entry, 0);
  }
  static void change(context& from, context& to) {
    swapcontext(&from.state, &to.state);
  }
#endif
};

/// A barrier of several threads: all of a warp, or of a block.
struct barrier_state {
  int arrived = 0;
  std::uint64_t round = 0;
};

struct slot {
  alignas(8) std::array<std::byte, 24> bytes;
};

/// A copy to shared memory that a thread has asked for and not yet awaited.
struct copy_under_way {
  gpu::cuda::eight* to;
  const gpu::cuda::eight* from;  // null: zeros
  void make() const { *to = from ? *from : gpu::cuda::eight{{0, 0, 0, 0}}; }
};

kernel_schedule now;
using threads_of = kernel_schedule::threads;
using blocks_of = kernel_schedule::blocks;

struct warp {
  barrier_state together;
  std::array<std::array<slot, lanes>, 2> slots;  // of this round and of the next
};

class block {
 public:
  void run(void (*body)(const void*), const void* argument, int threads, int x, int y,
           std::size_t shared_bytes) {
    body_ = body;
    argument_ = argument;
    x_ = x;
    y_ = y;
    live_ = count_ = threads;
    all_ = {};
    warps_.assign(static_cast<std::size_t>(threads / lanes), {});
    shared_.reset(new (std::align_val_t{64}) std::byte[shared_bytes]);
    std::memset(shared_.get(), 0xff, shared_bytes);  // NaN: uninitialized
    fibers_.resize(static_cast<std::size_t>(threads));
    done_.assign(fibers_.size(), false);
    copies_.assign(fibers_.size(), {});
    while (stacks_.size() < fibers_.size()) stacks_.emplace_back(new std::byte[stack_bytes]);
    for (std::size_t i = 0; i < fibers_.size(); ++i)
      fibers_[i].begin(stacks_[i].get(), [] { the_block().thread(); });
    current_ = now.first_turn == threads_of::ascending ? 0 : threads - 1;
    context::change(main_, fiber(current_));
  }

  void barrier(barrier_state& m, int participants) {
    ++progress_;
    if (++m.arrived == participants) {
      m.arrived = 0;
      ++m.round;
      return;
    }
    const auto round = m.round;
    auto seen = progress_;
    for (int idle = 0; m.round == round; ++idle) {
      if (progress_ != seen) seen = progress_, idle = 0;
      if (idle > 2 * count_) {
        std::fputs("a thread waits for others of its block, which never come\n", stderr);
        std::abort();
      }
      next();
    }
  }
  void barrier_all() { barrier(all_, count_); }
  /// The values of all lanes, once all lanes have called it.
  template <class T>
  const std::array<slot, lanes>& exchange(const T& mine) {
    static_assert(sizeof(T) <= sizeof(slot));
    auto& w = warps_[static_cast<std::size_t>(current_ / lanes)];
    auto& slots = w.slots[w.together.round % 2];
    std::memcpy(slots[static_cast<std::size_t>(current_ % lanes)].bytes.data(), &mine, sizeof(T));
    barrier(w.together, lanes);
    return slots;
  }

  void copy_ahead(copy_under_way c) {
    if (now.ahead == kernel_schedule::copies::at_once) return c.make();
    std::memset(c.to, 0xff, sizeof *c.to);
    copies_[static_cast<std::size_t>(current_)].push_back(c);
  }
  void await_copies() {
    for (const auto& c : std::exchange(copies_[static_cast<std::size_t>(current_)], {})) c.make();
  }

  static block& the_block() {
    static thread_local block b;
    return b;
  }
  int current() const { return current_; }
  int x() const { return x_; }
  int y() const { return y_; }
  std::byte* shared() { return shared_.get(); }

 private:
  struct free_shared {
    void operator()(std::byte* b) const { ::operator delete[](b, std::align_val_t{64}); }
  };

  context& fiber(int i) { return fibers_[static_cast<std::size_t>(i)]; }
  void thread() {
    body_(argument_);
    done_[static_cast<std::size_t>(current_)] = true;
    ++progress_;
    --live_;
    context nobody;
    if (live_ == 0)
      context::change(nobody, main_);
    else
      next();
  }
  void next() {
    const int before = current_, step = now.first_turn == threads_of::ascending ? 1 : count_ - 1;
    do current_ = (current_ + step) % count_;
    while (done_[static_cast<std::size_t>(current_)]);
    if (current_ != before) context::change(fiber(before), fiber(current_));
  }

  void (*body_)(const void*) = nullptr;
  const void* argument_ = nullptr;
  int x_ = 0, y_ = 0, count_ = 0, live_ = 0, current_ = 0;
  std::uint64_t progress_ = 0;
  barrier_state all_;
  std::vector<warp> warps_;
  std::unique_ptr<std::byte, free_shared> shared_;
  std::vector<context> fibers_;
  std::vector<bool> done_;
  std::vector<std::vector<copy_under_way>> copies_;  // of each thread
  std::vector<std::unique_ptr<std::byte[]>> stacks_;
  context main_;
};

block& here() {
  return block::the_block();
}

template <class T>
T value_in(const slot& s) {
  T v;
  std::memcpy(&v, s.bytes.data(), sizeof(T));
  return v;
}

std::size_t lane() {
  return static_cast<std::size_t>(here().current() % lanes);
}

}  // namespace

void set_kernel_schedule(kernel_schedule s) {
  now = s;
}

std::vector<kernel_schedule> kernel_schedules() {
  using s = kernel_schedule;
  return {{s::threads::ascending, s::copies::at_once, s::blocks::ascending, 1},
          {s::threads::descending, s::copies::when_awaited, s::blocks::descending, 1},
          {s::threads::ascending, s::copies::when_awaited, s::blocks::shuffled, 1},
          {s::threads::descending, s::copies::at_once, s::blocks::shuffled, 2}};
}

std::vector<std::size_t> block_order(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (now.order == blocks_of::descending) std::reverse(all.begin(), all.end());
  random_source random{now.seed};
  if (now.order == blocks_of::shuffled)
    for (auto n = count; n > 1; --n) std::swap(all[n - 1], all[random.below(n)]);
  return all;
}

void run_block(void (*body)(const void*), const void* argument, int threads, int x, int y,
               std::size_t shared_bytes) {
  here().run(body, argument, threads, x, y, shared_bytes);
}

}  // namespace troupe::test

namespace troupe::gpu::cuda {

using namespace troupe::test;

namespace {

template <class T>
T shuffled(T v, int mask) {
  const auto& all = here().exchange(v);
  return value_in<T>(all[lane() ^ static_cast<std::size_t>(mask)]);
}

float half(std::uint32_t word, std::size_t which) {
  return to_float(bf16{static_cast<std::uint16_t>(word >> (16 * which))});
}

}  // namespace

int thread_id() {
  return here().current();
}
int block_id() {
  return here().x();
}
int block_id_y() {
  return here().y();
}
void sync_threads() {
  here().barrier_all();
}
float shuffle_xor(float v, int mask) {
  return shuffled(v, mask);
}
double shuffle_xor(double v, int mask) {
  return shuffled(v, mask);
}
void copy_ahead(eight* to, const eight* from, bool there) {
  here().copy_ahead({to, there ? from : nullptr});
}
void await_copies() {
  here().await_copies();
}
unsigned char* shared_memory() {
  return reinterpret_cast<unsigned char*>(here().shared());
}

void load_matrices(std::uint32_t (&to)[4], const bf16* row) {
  const auto& rows = here().exchange(row);
  for (std::size_t m = 0; m < 4; ++m) {
    const auto* from = value_in<const bf16*>(rows[m * 8 + lane() / 4]) + lane() % 4 * 2;
    to[m] = from[0].bits | static_cast<std::uint32_t>(from[1].bits) << 16;
  }
}

void load_matrices_turned(std::uint32_t (&to)[4], const bf16* row) {
  const auto& rows = here().exchange(row);
  for (std::size_t m = 0; m < 4; ++m) {
    const auto first = m * 8 + lane() % 4 * 2, column = lane() / 4;
    to[m] = value_in<const bf16*>(rows[first])[column].bits |
            static_cast<std::uint32_t>(value_in<const bf16*>(rows[first + 1])[column].bits) << 16;
  }
}

// The layout is in PTX's manual under mma.m16n8k16. Lane 4 g + t has of a the rows g and g + 8, of
// b the column g, and in both the values 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 along what is summed
// over; of c the columns 2 t and 2 t + 1.
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  struct words {
    std::uint32_t at[6];
  };
  const auto& all = here().exchange(words{{a[0], a[1], a[2], a[3], b0, b1}});
  const auto g = lane() / 4, t = lane() % 4;
  for (std::size_t other = 0; other < 4; ++other) {
    const auto left = value_in<words>(all[4 * g + other]);
    for (std::size_t j = 0; j < 2; ++j) {
      const auto right = value_in<words>(all[4 * (2 * t + j) + other]);
      for (std::size_t k = 0; k < 2; ++k)
        for (std::size_t h = 0; h < 2; ++h) {
          const float b = half(right.at[4 + k], h);
          c[j] += half(left.at[2 * k], h) * b;
          c[2 + j] += half(left.at[2 * k + 1], h) * b;
        }
    }
  }
}

}  // namespace troupe::gpu::cuda
