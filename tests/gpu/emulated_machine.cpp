#include "gpu/emulated_machine.hpp"

#include <cstring>
#include <functional>
#include <new>
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

class emulated final : public launches<emulated> {
 public:
  std::string name() const override { return "emulated"; }
  void enter() override { cpu::prepare_thread(); }
  void* take(std::size_t bytes) override {
    auto* memory = ::operator new(bytes, alignment);
    std::memset(memory, 0xff, bytes);
    return memory;
  }
  void give(void* memory) noexcept override { ::operator delete(memory, alignment); }
  void* take_host(std::size_t bytes) override { return take(bytes); }
  void give_host(void* memory) noexcept override { give(memory); }
  void copy_in(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void copy_out(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void* mark() override { return nullptr; }
  void wait(void*) override {}
  void copy(void* to, const void* from, std::size_t bytes) override {
    now_or_kept([=] { std::memcpy(to, from, bytes); });
  }
  void zero(void* to, std::size_t bytes) override {
    now_or_kept([=] { std::memset(to, 0, bytes); });
  }

  bool begin_graph() override {
    kept_ = std::make_unique<graph>();
    return true;
  }
  void* end_graph() override { return kept_.release(); }
  void run_graph(void* g) override {
    for (const auto& one : *static_cast<graph*>(g)) one();
  }
  void drop_graph(void* g) noexcept override { delete static_cast<graph*>(g); }

  void multiply(const product& p) override {
    now_or_kept([p] { calculate(p); });
    finish(p);
  }

  template <class Kernel>
  void launch(const Kernel& k, std::size_t blocks, std::size_t blocks_y, std::size_t shared) {
    now_or_kept([=] { run_kernel(k, blocks, blocks_y, shared); });
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

  template <class Do>
  void now_or_kept(Do what) {
    if (kept_)
      kept_->push_back(what);
    else
      what();
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

  std::unique_ptr<graph> kept_;  // what is asked for now is kept there
};

}  // namespace

std::unique_ptr<machine> emulated_machine() {
  return std::make_unique<emulated>();
}

}  // namespace troupe::test
