// A stage's memory on a GPU, and the bytes and operations of each kernel, against hand counts.
#include <catch2/catch.hpp>
#include <map>

#include "gpu/cuda/host/device.hpp"
#include "gpu/emulation/counted_machine.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/pipeline.hpp"

using namespace troupe;
using namespace troupe::test;
using namespace troupe::gpu::cuda;
namespace step = gpu::operations;

namespace {

void learn(gpu::stage_device& d, const gpu::stage_spec& s, int steps) {
  const auto l = lessons(s.model, s.rows, 1, 1)[0];
  for (int i = 0; i < steps; ++i) {
    run(d, step::forward{.keep = true, .input = l.input, .targets = l.targets});
    run(d, step::backward{});
    run(d, step::update{});
  }
}

std::uint64_t bytes_over(std::shared_ptr<machine> m, const gpu::stage_spec& s, int steps) {
  const auto count = std::make_shared<taken_memory>();
  gpu::cuda::device d{s, std::make_shared<counting_machine>(std::move(m), count)};
  learn(d, s, steps);
  return count->bytes;
}

/// Rounded as memory is taken.
std::uint64_t up(std::uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

/// Notes every call.
class noting_machine final : public kernel_interceptor {
 public:
  using kernel_interceptor::kernel_interceptor;
  std::vector<call> calls;

 private:
  void perform(call what, std::function<void(machine&)> how) override {
    calls.push_back(what);
    how(behind());
  }
};

}  // namespace

TEST_CASE("a stage allocates the bytes that its shape needs, and no more in later steps") {
  const std::uint32_t rows = GENERATE(1u, 2u, 5u);
  const auto s = whole_model(small_model(), rows);
  const std::uint64_t t = 20 * rows, c = 24, heads = 3, words = 37, width = 128, l = 6;
  const std::uint64_t block = 12 * c * c + 13 * c;
  const std::uint64_t own = 20 * c + l * block + 2 * c, tied = words * c, all = own + tied;
  // Copies in 16 bits: each parameter from a multiple of 128 values on; the head's rows too.
  const auto values = [](std::uint64_t n) { return (n + 127) / 128 * 128; };
  const auto copies = values(20 * c) + values(width * c) + 2 * values(c) +
                      l * (values(3 * c * c) + values(3 * c) + values(c * c) +
                           2 * values(4 * c * c) + values(4 * c) + 6 * values(c));
  const std::uint64_t runs = 2 + 2 + l * 12;  // one a parameter, since each is small
  const std::uint64_t parts = (t + 63) / 64;
  const std::uint64_t fixed = 4 * up(all * 4) + up(width * c * 4) + up(copies * 2) + up(runs * 32) +
                              up(runs * 8) + up(2 * parts * 4 * c * 4) + up(t * heads * 4) +
                              2 * up(t * c * 2) + up(t * 4 * c * 2) + up(t * 4);
  const std::uint64_t norms = up(t * c * 2) + 2 * up(t * 4);
  const std::uint64_t a_block = 2 * up(t * c * 4) + 2 * norms + up(t * 3 * c * 2) +
                                up(t * heads * 4) + up(t * c * 2) + 2 * up(t * 4 * c * 2);
  const std::uint64_t kept = l * a_block + up(t * c * 4) + norms + up(t * width * 2);
  const std::uint64_t copied =
      up((4 * t + 1) * 4) + up(t * 4) + up(8) + up(t * c * 4);  // tokens, loss or norm, gradient
  const auto two = bytes_over(std::make_shared<idle_machine>(), s, 2);
  CHECK(two == fixed + kept + copied);
  CHECK(bytes_over(std::make_shared<idle_machine>(), s, 12) == two);
  CHECK(bytes_over(std::shared_ptr{emulated_machine()}, s, 2) == two);
}

TEST_CASE("the bytes and operations of kernel calls match hand counts") {
  const auto s = whole_model(small_model(), 2);
  const double t = 40, c = 24, words = 37, width = 128;
  const auto noted = std::make_shared<noting_machine>(std::shared_ptr{emulated_machine()});
  gpu::cuda::device d{s, noted};
  noted->calls.clear();
  learn(d, s, 1);
  std::map<std::string, int> times;
  std::map<std::string, double> bytes, flops;
  for (const auto& call : noted->calls) {
    ++times[call.name];
    bytes[call.name] += call.bytes;
    flops[call.name] += call.flops;
  }
  CHECK(times["layer norm"] == 13);
  CHECK(bytes["layer norm"] == 13 * (t * c * (4 + 2) + t * 8 + c * 8));
  CHECK(times["layer norm's gradient"] == 13);
  // Eight of 16-bit and 32-bit values in and out; and where nothing is added to, four less.
  CHECK(bytes["layer norm's gradient"] == 12 * t * c * 16 + t * c * 12 + 13 * (t * 8 + c * 20));
  CHECK(times["attention"] == 6);
  CHECK(flops["attention"] == 6 * 2 * 2 * (2.0 * 3 * 20 * 21 / 2) * 8);  // 2 products
  CHECK(bytes["attention"] == 6 * (t * c * 2 * 4 + t * 3 * 4));
  CHECK(flops["attention's gradient"] == 6 * 5 * 2 * (2.0 * 3 * 20 * 21 / 2) * 8);
  CHECK(bytes["attention's gradient"] == 6 * (t * c * 2 * 8 + t * 3 * 8));
  CHECK(bytes["cross entropy and its gradient"] == t * words * 2 + t * width * 2 + t * 12 + 8);
  CHECK(times["product, bias, gelu"] == 6);
  CHECK(bytes["product, bias, gelu"] ==
        6 * (t * c * 2 + 4 * c * c * 2 + 4 * c * 2 + t * 4 * c * 4));
  CHECK(times["AdamW"] == 1);
  // Each weight meets each token three times, the head's with the padding of its rows.
  double operations = 0;
  for (const auto& [name, f] : flops)
    if (name.rfind("product", 0) == 0) operations += f;
  CHECK(operations == 6 * 3 * 2 * t * 12 * c * c + 3 * 2 * t * c * width);
}
