// The order of plugin.cu's streams, whatever their pace, and its graphs.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "gpu/cuda/host/graphs.hpp"
#include "gpu/plugin/fake_cuda.hpp"
#include "gpu/plugin/plugin_machines.hpp"

using namespace troupe;
using namespace troupe::gpu::cuda;
using namespace troupe::test;
using Catch::Contains;

namespace {

constexpr std::size_t count = 64, bytes = count * sizeof(float);

/// A GPU with a few blocks of memory, all of them not numbers.
struct bench {
  explicit bench(int index = 0) : m{open_gpu(index).m} {
    for (auto& b : on_gpu) b = static_cast<float*>(m->take(bytes));
    for (auto& b : on_host) b = static_cast<float*>(m->take_host(bytes));
  }
  ~bench() {
    for (auto* b : on_gpu) m->give(b);
    for (auto* b : on_host) m->give_host(b);
  }
  bench(const bench&) = delete;

  void fill_host(std::size_t which, float value) { std::fill_n(on_host[which], count, value); }
  bool host_is(std::size_t which, float value) const {
    return std::all_of(on_host[which], on_host[which] + count, [=](float v) { return v == value; });
  }
  void finish() { m->wait(m->record_event()); }

  std::shared_ptr<machine> m;
  std::array<float*, 4> on_gpu{}, on_host{};
};

}  // namespace

TEST_CASE("kernels see what was copied in, and copies out what kernels wrote") {
  fake_cuda::settings how;
  how.paces(GENERATE(from_range(fake_cuda::all_paces())));
  bench b;
  b.fill_host(0, 1), b.fill_host(1, 2);
  b.m->copy_in(b.on_gpu[0], b.on_host[0], bytes);
  b.m->copy_in(b.on_gpu[1], b.on_host[1], bytes);
  b.m->add(b.on_gpu[0], b.on_gpu[1], count);
  b.m->copy_out(b.on_host[2], b.on_gpu[0], bytes);
  b.finish();
  CHECK(b.host_is(2, 3));
  // The next copies into the same memory come after the kernel.
  b.fill_host(0, 10);
  b.m->copy_in(b.on_gpu[0], b.on_host[0], bytes);
  b.m->add(b.on_gpu[0], b.on_gpu[1], count);
  b.m->copy_out(b.on_host[3], b.on_gpu[0], bytes);
  b.finish();
  CHECK(b.host_is(3, 12));
}

TEST_CASE("an event is reached when kernels and copies out before it are done") {
  fake_cuda::settings how;
  how.paces(GENERATE(from_range(fake_cuda::all_paces())));
  bench b;
  b.m->zero(b.on_gpu[0], bytes);
  b.m->copy_out(b.on_host[0], b.on_gpu[0], bytes);
  auto* event = b.m->record_event();
  while (!b.m->reached(event)) {
  }
  CHECK(b.host_is(0, 0));
  b.m->wait(event);
}

TEST_CASE("the side stream sees earlier kernels, and joined kernels see its work") {
  fake_cuda::settings how;
  how.paces(GENERATE(from_range(fake_cuda::all_paces())));
  bench b;
  b.fill_host(0, 5);
  b.m->copy_in(b.on_gpu[0], b.on_host[0], bytes);
  b.m->copy(b.on_gpu[1], b.on_gpu[0], bytes);
  const auto beside = static_cast<cudaStream_t>(b.m->side_stream());
  CHECK(cudaMemcpyAsync(b.on_gpu[2], b.on_gpu[1], bytes, cudaMemcpyDeviceToDevice, beside) ==
        cudaSuccess);
  b.m->join_beside();
  b.m->copy(b.on_gpu[3], b.on_gpu[2], bytes);
  b.m->copy_out(b.on_host[1], b.on_gpu[3], bytes);
  b.finish();
  CHECK(b.host_is(1, 5));
}

TEST_CASE("memory of the host that one GPU allocated is copied from and to by another") {
  bench a{0}, b{1};
  a.fill_host(0, 7);
  b.m->enter();
  CHECK_NOTHROW(b.m->copy_in(b.on_gpu[0], a.on_host[0], bytes));
  CHECK_NOTHROW(b.m->copy_out(a.on_host[1], b.on_gpu[0], bytes));
  b.finish();
  CHECK(a.host_is(1, 7));
}

TEST_CASE("a graph repeats its kernels, copies and products with the arguments they had") {
  fake_cuda::settings how;
  how.paces(GENERATE(from_range(fake_cuda::all_paces())));
  bench b;
  const auto product_of = [&](float* to, const float* bias) {
    auto* ones = reinterpret_cast<bf16*>(b.on_gpu[0]);
    return product{.a = {ones, 8, 8}, .b = {ones, 8, 8}, .wide = to, .stride = 8, .bias = bias};
  };
  std::array<bf16, 2 * count> ones;
  ones.fill(to_bf16(1.0f));
  std::memcpy(b.on_host[0], ones.data(), bytes);
  b.m->copy_in(b.on_gpu[0], b.on_host[0], bytes);
  b.m->copy_in(b.on_gpu[3], b.on_host[0], bytes);
  b.m->zero(b.on_gpu[2], bytes);
  b.m->multiply(product_of(b.on_gpu[1], b.on_gpu[2]));  // its plan is made before the graph

  REQUIRE(b.m->begin_graph());
  b.m->zero(b.on_gpu[3], bytes);
  b.m->multiply(product_of(b.on_gpu[1], b.on_gpu[2]));  // 8, with a bias of 0
  b.m->add(b.on_gpu[3], b.on_gpu[1], count);
  b.m->add(b.on_gpu[3], b.on_gpu[1], count);
  b.m->copy(b.on_gpu[2], b.on_gpu[3], bytes);  // the next one's bias
  auto* graph = b.m->end_graph();
  REQUIRE(graph != nullptr);
  b.m->multiply(product_of(b.on_gpu[1], b.on_gpu[3]));  // another bias for the same plan

  float bias = 0;
  for (int times = 0; times < 3; ++times) {
    fake_cuda::seen() = {};
    b.m->run_graph(graph);
    b.m->copy_out(b.on_host[1], b.on_gpu[3], bytes);
    b.finish();
    bias = 2 * (8 + bias);
    CHECK(b.host_is(1, bias));
    CHECK(fake_cuda::seen().graphs == 1);
    CHECK(fake_cuda::seen().launches + fake_cuda::seen().products == 0);
  }
  b.m->drop_graph(graph);
}

TEST_CASE("a pass with another argument is not replayed with the earlier one") {
  bench b;
  b.fill_host(0, 1), b.fill_host(1, 10);
  b.m->copy_in(b.on_gpu[0], b.on_host[0], bytes);
  b.m->copy_in(b.on_gpu[1], b.on_host[1], bytes);
  pass_graphs graphs{b.m};
  const auto tripled = [&](std::size_t from) {
    graphs.begin_pass();
    graphs.zero(b.on_gpu[2], bytes);
    for (int times = 0; times < 3; ++times) graphs.add(b.on_gpu[2], b.on_gpu[from], count);
    graphs.end_pass();
    b.m->copy_out(b.on_host[2], b.on_gpu[2], bytes);
    b.finish();
    return b.on_host[2][0];
  };
  for (int times = 0; times < 3; ++times) CHECK(tripled(0) == 3);
  CHECK(graphs.so_far().run == 2);
  CHECK(tripled(1) == 30);
  CHECK(tripled(0) == 3);
}

TEST_CASE("a copy to the host in the middle of a graph ends the graph, and the GPU goes on") {
  bench b;
  REQUIRE(b.m->begin_graph());
  b.m->zero(b.on_gpu[0], bytes);
  CHECK_THROWS_WITH(b.m->copy_in(b.on_gpu[1], b.on_host[0], bytes),
                    Contains("cudaStreamWaitEvent"));
  CHECK(b.m->end_graph() == nullptr);
  REQUIRE(b.m->begin_graph());
  CHECK_THROWS_WITH(b.m->copy_out(b.on_host[0], b.on_gpu[0], bytes), Contains("cudaEventRecord"));
  CHECK(b.m->end_graph() == nullptr);
  b.m->zero(b.on_gpu[0], bytes);
  b.m->copy_out(b.on_host[0], b.on_gpu[0], bytes);
  b.finish();
  CHECK(b.host_is(0, 0));
}

TEST_CASE("new memory is not a number where TROUPE_CUDA_POISON is 1, and as it is elsewhere") {
  fake_cuda::settings how;
  how.new_memory(0);
  how.paces(GENERATE(from_range(fake_cuda::all_paces())));
  CHECK(bench{}.on_gpu[0][count - 1] == 0);
  ::setenv("TROUPE_CUDA_POISON", "1", 1);
  bench b;
  ::unsetenv("TROUPE_CUDA_POISON");
  CHECK(std::isnan(b.on_gpu[0][0]));
  CHECK(std::isnan(b.on_gpu[0][count - 1]));
  b.fill_host(0, 3);  // copied next, and not overwritten
  b.m->copy_in(b.on_gpu[0], b.on_host[0], bytes);
  b.m->copy_out(b.on_host[1], b.on_gpu[0], bytes);
  b.finish();
  CHECK(b.host_is(1, 3));
}

TEST_CASE("time between two events is asked for when both are reached") {
  fake_cuda::settings how;
  how.paces(GENERATE(from_range(fake_cuda::all_paces())));
  bench b;
  auto* first = b.m->timing_event();
  b.m->zero(b.on_gpu[0], bytes);
  auto* second = b.m->timing_event();
  CHECK(b.m->seconds(first, second) == Approx(fake_cuda::elapsed_s));
  b.m->forget(first);
  b.m->forget(second);
}
