#include "gpu/emulation/emulated_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <vector>

#include "gpu/cpu/kernels/matrix.hpp"
#include "gpu/cuda/runtime/launches.hpp"
#include "gpu/emulation/emulation.hpp"
#include "gpu/emulation/late_stream.hpp"

namespace troupe::test {

namespace {

using namespace troupe::gpu::cuda;
namespace cpu = troupe::gpu::cpu;

constexpr std::align_val_t alignment{256};  // as cudaMalloc's

std::vector<float> values_of(const operand& o) {
  const auto rows = o.turned ? o.columns : o.rows, columns = o.turned ? o.rows : o.columns;
  std::vector<float> v(rows * columns);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) v[r * columns + c] = to_float(o.at[r * o.stride + c]);
  return v;
}

cpu::matrix<const float> view(const operand& o, const std::vector<float>& v) {
  if (o.turned) return cpu::matrix<const float>{v.data(), o.columns, o.rows}.transposed();
  return {v.data(), o.rows, o.columns};
}

/// 0: nothing is put off.
stream_pace pace_of(std::uint64_t seed, std::uint64_t stream) {
  using when = stream_pace::when;
  return seed == 0 ? stream_pace{} : stream_pace{when::sometimes_late, seed + stream};
}

std::atomic<int> devices{0}, members_that_wait{0};
/// As with CUDA each thread has one, the first until it names another; no emulated machine is that.
thread_local int current_device = 0;

class emulated final : public launches<emulated>, public emulated_stream {
 public:
  emulated(const collectives* c, std::uint64_t seed, std::size_t capacity_bytes)
      : collectives_{c},
        capacity_{capacity_bytes},
        stream_{pace_of(seed, 0)},
        in_{pace_of(seed, 1)},
        out_{pace_of(seed, 2)},
        beside_{stream_pace{}} {
    prepare_kernels();
  }
  ~emulated() override { finish_all(); }  // each may wait for the other

  std::string name() const override { return "emulated"; }
  void enter() override {
    cpu::prepare_thread();
    current_device = index_;
  }
  void* take(std::size_t bytes) override {
    check_here("memory");
    check_alone("memory");
    std::lock_guard lock{memory_guard_};
    if (bytes > capacity_ - taken_)
      throw gpu_out_of_memory(out_of_memory_text("memory", bytes, capacity_ - taken_, capacity_));
    auto* memory = make(bytes);
    sizes_[memory] = bytes;
    taken_ += bytes;
    return memory;
  }
  void give(void* memory) noexcept override {
    finish_all();  // as cudaFree does
    {
      std::lock_guard lock{memory_guard_};
      taken_ -= sizes_.extract(memory).mapped();
    }
    ::operator delete(memory, alignment);
  }
  memory_state memory() override {
    std::lock_guard lock{memory_guard_};
    return {capacity_ - taken_, capacity_};
  }
  void* take_host(std::size_t bytes) override {
    check_here("memory of the host");
    auto* memory = make(bytes);
    std::lock_guard lock{host_guard_};
    host_[memory] = bytes;
    return memory;
  }
  void give_host(void* memory) noexcept override {
    {
      std::lock_guard lock{host_guard_};
      host_.erase(memory);
    }
    finish_all();  // as cudaFreeHost does
    ::operator delete(memory, alignment);
  }
  void let_go(void* memory, std::size_t bytes) noexcept override {
    std::memset(memory, 0xff, bytes);
  }
  void copy_in(void* to, const void* from, std::size_t bytes) override {
    check_copy();
    in_.may_be_late([=] { std::memcpy(to, from, bytes); });
    stream_.may_be_late([this, arrived = in_.asked()] { in_.wait(arrived); });
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    check_copy();
    out_.may_be_late([this, left = stream_.asked()] { stream_.wait(left); });
    out_.may_be_late([=] { std::memcpy(to, from, bytes); });
  }
  void* record_event() override {
    check_here("an event");
    return new marked{stream_.asked(), out_.asked()};
  }
  void wait(void* event) override {
    const std::unique_ptr<marked> m{static_cast<marked*>(event)};
    stream_.wait(m->stream);
    out_.wait(m->out);
  }
  bool reached(void* event) override {
    const auto* m = static_cast<marked*>(event);
    const bool kernels = stream_.reached(m->stream);
    return out_.reached(m->out) && kernels;
  }
  const collectives* sums_with_others(std::string& why) override {
    if (!collectives_) why = "this machine has no NCCL";
    return collectives_;
  }
  void* stream() override { return static_cast<emulated_stream*>(this); }
  void* side_stream() override {
    check_here("an event");
    beside_.ask([this, made = stream_.asked()] { stream_.wait(made); });
    return static_cast<emulated_stream*>(&beside_);
  }
  void join_beside() override {
    check_here("an event");
    stream_.may_be_late([this, summed = beside_.asked()] { beside_.wait(summed); });
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    check_here("a copy");
    kernel([=] { std::memcpy(to, from, bytes); });
  }
  void zero(void* to, std::size_t bytes) override {
    check_here("to clear memory");
    kernel([=] { std::memset(to, 0, bytes); });
  }

  bool begin_graph() override {
    check_here("a graph");
    kept_ = std::make_unique<graph>();
    return true;
  }
  void* end_graph() override { return kept_.release(); }
  void run_graph(void* g) override {
    check_here("a graph");
    for (const auto& one : *static_cast<graph*>(g)) stream_.may_be_late(one);
  }
  void drop_graph(void* g) noexcept override { delete static_cast<graph*>(g); }
  void ask(std::function<void()> what) override {
    if (kept_)
      kept_->push_back(std::move(what));
    else
      stream_.ask(std::move(what));
  }

  void multiply(const product& p) override {
    check_here("a product");
    for (const void* at : {static_cast<const void*>(p.a.at), static_cast<const void*>(p.b.at),
                           static_cast<const void*>(p.wide), static_cast<const void*>(p.narrow)})
      if (is_on_host(at)) refuse("a product of matrices in memory of the host");
    const std::array shape{p.a.rows, p.b.columns, p.a.columns};
    if (!shapes_.contains(shape)) check_alone("a product of a shape that is new");
    shapes_.insert(shape);
    kernel([=] { calculate(p); });
    finish(p);
  }

  template <class Kernel>
  void prepare(std::size_t shared) {
    if (shared > max_shared_bytes) refuse("so much shared memory");
    prepared_[&tag<Kernel>] = std::max(shared, plain_shared_bytes);
  }
  template <class Kernel>
  void launch(const Kernel& k, std::size_t blocks, std::size_t blocks_y, std::size_t shared) {
    static_assert(Kernel::threads <= 1024 && Kernel::threads % lanes == 0);
    check_here("a kernel");
    const auto prepared = prepared_.find(&tag<Kernel>);
    if (prepared == prepared_.end()) refuse("a kernel that was not prepared");
    if (shared > prepared->second) refuse("a kernel with more shared memory than prepared");
    if (blocks == 0 || blocks > 0x7fffffff || blocks_y == 0 || blocks_y > 65535)
      refuse("a grid so large");
    kernel([=] { run_kernel(k, blocks, blocks_y, shared); });
  }
  template <class Use>
  void with_tiles(std::uint32_t width, Use use) {
    if (width <= 16)
      use(attention_tiles<16, 1, 16, 16>{});  // small, so that small models are quick
    else
      with_gpu_tiles(width, use);
  }

 private:
  using graph = std::vector<std::function<void()>>;
  struct marked {
    std::uint64_t stream, out;
  };
  template <class Kernel>
  static constexpr char tag = 0;

  void* make(std::size_t bytes) {
    auto* memory = ::operator new(bytes, alignment);
    std::memset(memory, 0xff, bytes);
    return memory;
  }
  [[noreturn]] static void refuse(const std::string& what) {
    throw std::runtime_error("the GPU refused " + what);
  }
  void check_here(const std::string& what) const {
    if (current_device != index_)
      refuse(fmt::format("{}: this is device {}, and the thread's current one is {}", what, index_,
                         current_device));
  }
  bool is_on_host(const void* at) {
    std::lock_guard lock{host_guard_};
    auto block = host_.upper_bound(const_cast<void*>(at));
    if (block == host_.begin()) return false;
    --block;
    return static_cast<const std::byte*>(at) <
           static_cast<const std::byte*>(block->first) + block->second;
  }
  /// GPUs that sum with others can reach those others' memory.
  void check_alone(const std::string& what) const {
    if (collectives_ && members_that_wait > 0)
      refuse(what + ": GPUs wait for each other, and would wait for it");
  }
  void check_copy() const {
    check_here("a copy");
    if (kept_) refuse("a copy from or to the host in the middle of a graph");
  }
  void kernel(std::function<void()> what) {
    if (kept_)
      kept_->push_back(std::move(what));
    else
      stream_.may_be_late(std::move(what));
  }
  void finish_all() {
    for (auto* s : {&in_, &stream_, &out_, &beside_}) s->wait(s->asked());
  }

  static void calculate(const product& p) {
    const auto c = multiplied(p.a, p.b);
    const auto rows = p.a.rows, columns = p.b.columns;
    auto* narrowed = p.before ? p.before : p.narrow;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < columns; ++i) {
        const auto at = r * p.stride + i;
        const float v = c[r * columns + i];
        if (p.wide)
          p.wide[at] = v + (p.plus ? p.plus[at] : 0.0f);
        else
          narrowed[at] = to_bf16(v);
      }
  }

  const int index_ = ++devices;
  const collectives* collectives_;
  const std::size_t capacity_;
  std::mutex memory_guard_;
  std::size_t taken_ = 0;
  std::map<void*, std::size_t, std::less<>> sizes_;  // of the memory that is taken
  std::mutex host_guard_;
  std::map<void*, std::size_t, std::less<>> host_;  // memory of the host, and its bytes
  std::map<const char*, std::size_t> prepared_;     // kernels, and the shared memory each may have
  std::set<std::array<std::size_t, 3>> shapes_{};   // of products so far
  std::unique_ptr<graph> kept_;                     // what is asked for now is kept there
  late_stream stream_, in_, out_, beside_;
};

}  // namespace

std::unique_ptr<machine> emulated_machine(const collectives* sums, std::uint64_t seed,
                                          std::size_t capacity_bytes) {
  return std::make_unique<emulated>(sums, seed, capacity_bytes);
}

std::vector<float> multiplied(const operand& a, const operand& b) {
  const auto left = values_of(a), right = values_of(b);
  std::vector<float> c(a.rows * b.columns);
  cpu::multiply(view(a, left), view(b, right), cpu::matrix{c.data(), a.rows, b.columns});
  return c;
}

void members_wait(int more) {
  members_that_wait += more;
}

}  // namespace troupe::test
