// The machine that is a GPU (gpu/cuda/runtime/plugin.cu) over a fake CUDA: that it keeps CUDA's
// rules, with several GPUs in one process.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>

#include "gpu/cuda/host/device.hpp"
#include "gpu/plugin/fake_cuda.hpp"
#include "gpu/plugin/plugin_machines.hpp"
#include "gpu/tensor_parallel/shared_stage.hpp"

using namespace troupe;
using namespace troupe::gpu::cuda;
using namespace troupe::test;
using Catch::Contains;
namespace step = gpu::operations;

namespace {

gpu::stage_spec whole() {
  gpu::stage_spec s;
  s.model.hidden = 32;
  s.model.layers = 2;
  s.model.heads = 4;
  s.model.sequence = 8;
  s.model.vocabulary = 17;
  s.sublayers = 4;
  s.has_embedding = s.has_head = true;
  s.rows = 2;
  return s;
}

expected<gpu::outcome> asked(gpu::stage_device& d, gpu::operation o) {
  std::promise<expected<gpu::outcome>> result;
  d.submit(std::move(o), [&](expected<gpu::outcome> r) { result.set_value(std::move(r)); });
  return result.get_future().get();
}

/// A step of training.
void learn(gpu::stage_device& d) {
  const payload tokens{std::vector<std::byte>(2 * 8 * 4)};
  const auto well = [](const expected<gpu::outcome>& r) {
    INFO((r ? "" : r.error().text));
    CHECK(r);
  };
  well(asked(d, {step::forward{.keep = true, .input = tokens, .targets = tokens}}));
  well(asked(d, {step::backward{}}));
  well(asked(d, {step::update{}}));
}

}  // namespace

TEST_CASE("every GPU of a process is used as itself, whichever thread opened it") {
  const auto a = open_gpu(0), b = open_gpu(1);
  REQUIRE((a.m && b.m));
  CHECK(fake_cuda::current_device() == 1);
  fake_cuda::seen() = {};
  for (const auto& m : {a.m, b.m}) {
    device d{whole(), m};
    learn(d);
  }
  CHECK(fake_cuda::seen().launches > 50);
  CHECK(fake_cuda::seen().products > 20);
  CHECK(fake_cuda::seen().late_loads == 0);  // all kernels were loaded when it was opened
}

TEST_CASE("GPUs of a process share a stage") {
  ::setenv("TROUPE_COLLECTIVES", "hosts", 1);
  {
    auto d = share_stage(whole(), {open_gpu(0).m, open_gpu(2).m});
    learn(*d);
  }
  ::unsetenv("TROUPE_COLLECTIVES");
}

TEST_CASE("wide attention heads and many rows are launched on every GPU") {
  fake_cuda::settings how;
  how.rules_only();
  for (int index = 0; index < fake_cuda::device_count; ++index) {
    CAPTURE(index);
    const auto o = open_gpu(index);
    CHECK_NOTHROW(o.m->attention({1024, 8, 128}, 4, nullptr, nullptr, nullptr));
    CHECK_NOTHROW(o.m->attention({16, 12, 64}, 8192, nullptr, nullptr, nullptr));
    CHECK_NOTHROW(o.m->attention_backward({16, 12, 128}, 8192, nullptr, nullptr, nullptr, nullptr,
                                          nullptr, nullptr));
  }
}

TEST_CASE("returning memory to one GPU does not change a thread's current GPU") {
  fake_cuda::settings how;
  how.rules_only();
  const auto a = open_gpu(0);
  auto *memory = a.m->take(100), *host = a.m->take_host(100);
  const auto b = open_gpu(1);
  a.m->give(memory);
  a.m->give_host(host);
  a.m->drop_graph(nullptr);
  CHECK(fake_cuda::current_device() == 1);
  open_gpu(2);  // and closed again
  b.m->enter();
  open_gpu(0).m.reset();
  b.m->enter();
  CHECK_NOTHROW(b.m->narrow(nullptr, 4, nullptr));
}

TEST_CASE("a CUDA error names the failed function, and is not reported again by a later call") {
  fake_cuda::settings how;
  how.rules_only();
  const auto o = open_gpu(0);
  fake_cuda::refuse_once("cudaHostAlloc", cudaErrorMemoryAllocation);
  CHECK_THROWS_WITH(o.m->take_host(100), Contains("refused cudaHostAlloc of 100 bytes: "));
  fake_cuda::refuse_once("cudaMalloc", cudaErrorMemoryAllocation);
  try {
    o.m->take(100);
    FAIL("there was memory");
  } catch (const std::runtime_error& e) {
    CHECK(code_of(e) == reason::kind::out_of_memory);
    const auto free = o.m->memory();
    CHECK(e.what() == "the GPU refused cudaMalloc of 100 bytes: out of memory; " +
                          std::to_string(free.free_bytes) + " of " +
                          std::to_string(free.total_bytes) + " bytes are free");
  }
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK_NOTHROW(o.m->narrow(nullptr, 4, nullptr));
  fake_cuda::refuse_once("cudaLaunchKernel", cudaErrorInvalidConfiguration);
  CHECK_THROWS_WITH(o.m->narrow(nullptr, 4, nullptr), Contains("refused cudaLaunchKernel: "));
  CHECK(cudaGetLastError() == cudaSuccess);
  auto* event = o.m->record_event();
  fake_cuda::refuse_once("cudaEventQuery", cudaErrorNotReady);
  CHECK_FALSE(o.m->reached(event));
  CHECK(cudaGetLastError() == cudaSuccess);
  o.m->wait(event);
}

TEST_CASE("a GPU without memory for cuBLASLt's workspace is out of memory, not unusable") {
  fake_cuda::refuse_once("cudaMalloc", cudaErrorMemoryAllocation);
  const auto full = open_gpu(0);
  CHECK_FALSE(full.m);
  CHECK(full.kind == open_failure::out_of_memory);
  CHECK_THAT(full.why, Contains("out of memory"));
  CHECK(open_gpu(fake_cuda::device_count).kind == open_failure::unusable);
  CHECK(open_gpu(0).m);
}

TEST_CASE("a GPU that fails every call is lost, and the others are not") {
  const auto a = open_gpu(0), b = open_gpu(1);
  device d{whole(), a.m};
  fake_cuda::lose(0, cudaErrorIllegalAddress);
  const auto why = asked(d, {step::weights{}});
  REQUIRE_FALSE(why);
  CHECK(why.error().code == reason::kind::device_lost);
  CHECK_THAT(why.error().text, Contains("an illegal memory access was encountered; this GPU is "
                                        "lost until the process is restarted"));
  const auto again = open_gpu(0);
  CHECK_FALSE(again.m);
  CHECK(again.kind == open_failure::lost);
  device other{whole(), b.m};
  learn(other);
  fake_cuda::lose(0, cudaSuccess);
}

TEST_CASE("the alignment of a matrix does not change the multiplication algorithm") {
  const auto o = open_gpu(0);
  auto* memory = static_cast<std::byte*>(o.m->take(1 << 16));
  fake_cuda::seen() = {};
  for (const std::size_t at : {0, 16, 32, 64, 128, 48}) {
    auto* m = reinterpret_cast<bf16*>(memory + at);
    o.m->multiply({.a = {m, 8, 8}, .b = {m, 8, 8}, .narrow = m, .stride = 8});
  }
  CHECK(fake_cuda::seen().products == 6);
  CHECK(fake_cuda::seen().choices == 1);
  o.m->give(memory);
}
