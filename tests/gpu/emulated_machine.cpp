#include "gpu/emulated_machine.hpp"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "gpu/cpu/matrix.hpp"
#include "gpu/cuda/launches.hpp"
#include "gpu/emulation.hpp"

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

/// A thread that does what it is asked for in order, as a GPU's stream does.
class stream_thread final : public emulated_stream {
 public:
  ~stream_thread() override {
    {
      std::lock_guard lock{guard_};
      closing_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  void ask(std::function<void()> what) override {
    {
      std::lock_guard lock{guard_};
      waiting_.push_back(std::move(what));
      ++asked_;
    }
    wake_.notify_all();
  }
  std::uint64_t asked() {
    std::lock_guard lock{guard_};
    return asked_;
  }
  bool reached(std::uint64_t mark) {
    std::lock_guard lock{guard_};
    return done_ >= mark;
  }
  void wait(std::uint64_t mark) {
    std::unique_lock lock{guard_};
    reached_.wait(lock, [&] { return done_ >= mark; });
  }

 private:
  void work() {
    cpu::prepare_thread();
    std::unique_lock lock{guard_};
    for (;;) {
      wake_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      auto next = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      next();
      next = nullptr;
      lock.lock();
      ++done_;
      reached_.notify_all();
    }
  }

  std::mutex guard_;
  std::condition_variable wake_, reached_;
  std::deque<std::function<void()>> waiting_;
  std::uint64_t asked_ = 0, done_ = 0;
  bool closing_ = false;
  std::thread thread_{[this] { work(); }};
};

class emulated final : public launches<emulated>, public emulated_stream {
 public:
  explicit emulated(const collectives* c) : collectives_{c} {}
  ~emulated() override { finish_all(); }  // each may wait for the other

  std::string name() const override { return "emulated"; }
  void enter() override { cpu::prepare_thread(); }
  void* take(std::size_t bytes) override {
    auto* memory = ::operator new(bytes, alignment);
    std::memset(memory, 0xff, bytes);
    return memory;
  }
  void give(void* memory) noexcept override {
    finish_all();  // as cudaFree does
    ::operator delete(memory, alignment);
  }
  void* take_host(std::size_t bytes) override { return take(bytes); }
  void give_host(void* memory) noexcept override { give(memory); }
  void copy_in(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void copy_out(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void* mark() override { return new std::uint64_t{stream_.asked()}; }
  void wait(void* mark) override {
    const std::unique_ptr<std::uint64_t> m{static_cast<std::uint64_t*>(mark)};
    stream_.wait(*m);
  }
  bool reached(void* mark) override { return stream_.reached(*static_cast<std::uint64_t*>(mark)); }
  const collectives* sums_with_others(std::string& why) override {
    if (!collectives_) why = "this machine has no NCCL";
    return collectives_;
  }
  void* stream() override { return static_cast<emulated_stream*>(this); }
  void* beside() override {
    beside_.ask([this, made = stream_.asked()] { stream_.wait(made); });
    return static_cast<emulated_stream*>(&beside_);
  }
  void join_beside() override {
    stream_.ask([this, summed = beside_.asked()] { beside_.wait(summed); });
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    ask([=] { std::memcpy(to, from, bytes); });
  }
  void zero(void* to, std::size_t bytes) override {
    ask([=] { std::memset(to, 0, bytes); });
  }

  bool begin_graph() override {
    kept_ = std::make_unique<graph>();
    return true;
  }
  void* end_graph() override { return kept_.release(); }
  void run_graph(void* g) override {
    for (const auto& one : *static_cast<graph*>(g)) stream_.ask(one);
  }
  void drop_graph(void* g) noexcept override { delete static_cast<graph*>(g); }
  void ask(std::function<void()> what) override {
    if (kept_)
      kept_->push_back(std::move(what));
    else
      stream_.ask(std::move(what));
  }

  void multiply(const product& p) override {
    ask([=] { calculate(p); });
    finish(p);
  }

  template <class Kernel>
  void launch(const Kernel& k, std::size_t blocks, std::size_t blocks_y, std::size_t shared) {
    ask([=] { run_kernel(k, blocks, blocks_y, shared); });
  }
  template <class Use>
  void with_tiles(std::uint32_t width, Use use) {
    if (width <= 16)
      use(attention_tiles<16, 1, 16, 16>{});  // small, so that small models are quick
    else if (width <= 64)
      use(attention_tiles<64, 4, 64, 32>{});
    else
      use(attention_tiles<128, 4, 32, 32>{});
  }

 private:
  using graph = std::vector<std::function<void()>>;

  void finish_all() {
    for (auto* s : {&stream_, &beside_}) s->wait(s->asked());
  }

  static void calculate(const product& p) {
    const auto a = values_of(p.a), b = values_of(p.b);
    const auto rows = p.a.rows, columns = p.b.columns;
    std::vector<float> c(rows * columns);
    cpu::multiply(view(p.a, a), view(p.b, b), cpu::matrix{c.data(), rows, columns});
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

  const collectives* collectives_;
  std::unique_ptr<graph> kept_;  // what is asked for now is kept there
  stream_thread stream_, beside_;
};

}  // namespace

std::unique_ptr<machine> emulated_machine(const collectives* sums) {
  return std::make_unique<emulated>(sums);
}

}  // namespace troupe::test
