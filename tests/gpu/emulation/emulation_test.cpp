// The emulated machine exposes errors that a GPU would have, and the CUDA device has none of them.
#include "gpu/emulation/emulation.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <future>
#include <thread>

#include "gpu/cuda/host/device.hpp"
#include "gpu/cuda/kernels/portable.hpp"
#include "gpu/cuda/runtime/calls.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/pipeline.hpp"

using namespace troupe;
using namespace troupe::test;
using namespace troupe::gpu::cuda;
using Catch::Contains;

namespace {

/// A thread copies to shared memory, and reads what its neighbour copied.
struct copying_kernel {
  static constexpr int threads = lanes;
  const eight* from;
  float* out;
  bool awaits;

  void operator()() const {
    auto* shared = reinterpret_cast<eight*>(shared_memory());
    const int i = thread_id();
    copy_ahead(shared + i, from + i, true);
    if (awaits) await_copies();
    sync_threads();
    float v[4];
    std::memcpy(v, shared + (i + 1) % threads, sizeof v);
    out[i] = v[0];
  }
};

/// A block leaves its number for a later one.
struct racing_kernel {
  static constexpr int threads = lanes;
  int* last;
  void operator()() const { *last = block_id(); }
};

std::vector<float> copied(bool awaits, kernel_schedule::copies when) {
  std::vector<float> values(4 * lanes, 1.5f), out(lanes, 0.0f);
  std::vector<eight> from(lanes);
  std::memcpy(from.data(), values.data(), values.size() * sizeof(float));
  set_kernel_schedule({.ahead = when});
  run_kernel(copying_kernel{from.data(), out.data(), awaits}, 1, 1, lanes * sizeof(eight));
  set_kernel_schedule({});
  return out;
}

tested_device delayed(std::uint64_t seed) {
  return {"emulated", [seed](const gpu::stage_spec& s) {
            return expected<std::unique_ptr<gpu::stage_device>>{
                std::make_unique<device>(s, emulated_machine(nullptr, seed))};
          }};
}

}  // namespace

TEST_CASE("emulation with late copies exposes a kernel that does not wait for its copies") {
  using when = kernel_schedule::copies;
  CHECK(copied(true, when::at_once) == std::vector<float>(lanes, 1.5f));
  CHECK(copied(true, when::when_awaited) == std::vector<float>(lanes, 1.5f));
  CHECK(copied(false, when::at_once) == std::vector<float>(lanes, 1.5f));
  CHECK(std::isnan(copied(false, when::when_awaited)[0]));
}

TEST_CASE("emulation with several block orders exposes blocks that depend on their order") {
  std::vector<int> seen;
  for (const auto& s : kernel_schedules()) {
    int last = -1;
    set_kernel_schedule(s);
    run_kernel(racing_kernel{&last}, 9, 1, 0);
    seen.push_back(last);
  }
  set_kernel_schedule({});
  CHECK(seen[0] == 8);
  CHECK(seen[1] == 0);
  CHECK(seen[2] != seen[3]);
}

TEST_CASE("a machine refuses a thread on which another device is current") {
  const auto a = emulated_machine(), b = emulated_machine();
  CHECK_THROWS_WITH(a->take(8), Contains("the GPU refused memory: this is device"));
  b->enter();
  CHECK_THROWS_WITH(a->record_event(), Contains("the GPU refused an event"));
  CHECK_THROWS_WITH(a->zero(nullptr, 0), Contains("the GPU refused to clear memory"));
  a->enter();
  auto* memory = a->take(8);
  b->enter();
  a->give(memory);  // anybody may give back
}

TEST_CASE("a stage can be created on any thread, whichever device is current there") {
  const auto s = whole_model(small_model());
  const std::shared_ptr<machine> machines[] = {emulated_machine(), emulated_machine()};
  for (const auto& m : machines) m->enter();  // the last one is current, as after opening them
  for (const auto& m : machines) CHECK_NOTHROW(device{s, m});
  std::thread{[&] { CHECK_NOTHROW(device{s, machines[0]}); }}.join();
}

TEST_CASE("training results do not depend on how late copies and kernels run") {
  const auto m = small_model();
  const std::vector<std::uint32_t> split{5, 7};
  pipeline first{delayed(0), m, split};
  std::vector<pipeline::iteration> all;
  for (std::uint64_t i = 0; i < 2; ++i) all.push_back(first.learn(lessons(m, 2, 3, i)));
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    pipeline other{delayed(seed), m, split};
    for (std::uint64_t i = 0; i < 2; ++i) {
      const auto it = other.learn(lessons(m, 2, 3, i));
      CHECK(it.losses == all[i].losses);
      CHECK(it.own == all[i].own);
    }
    CHECK(other.weights() == first.weights());
  }
}

TEST_CASE("attention heads of 128 values run on every machine of a process") {
  for (int i = 0; i < 2; ++i) {
    const auto m = emulated_machine();
    m->enter();
    std::vector<bf16> qkv(std::size_t{3} * 128 * 4, to_bf16(0.25f)), out(128 * 4);
    std::vector<float> log_sums(4);
    m->attention({4, 1, 128}, 1, qkv.data(), out.data(), log_sums.data());
    m->wait(m->record_event());
    CHECK(to_float(out.back()) == 0.25f);
  }
}

TEST_CASE("a lost GPU is reported as lost, not as busy or unavailable") {
  class lost_machine final : public kernel_interceptor {
   public:
    lost_machine(std::shared_ptr<machine> m, const std::atomic<bool>& lost)
        : kernel_interceptor{std::move(m)}, lost_{lost} {}
    void* record_event() override {
      if (lost_) throw gpu_lost("the GPU refused cudaEventRecord: an illegal address");
      return kernel_interceptor::record_event();
    }

   private:
    void perform(call, std::function<void(machine&)> how) override { how(behind()); }
    const std::atomic<bool>& lost_;
  };
  std::atomic<bool> lost = false;
  device d{whole_model(small_model()),
           std::make_shared<lost_machine>(std::shared_ptr{emulated_machine()}, lost)};
  run(d, gpu::operations::weights{});
  lost = true;
  std::promise<expected<gpu::outcome>> result;
  d.submit({gpu::operations::weights{}},
           [&](expected<gpu::outcome> r) { result.set_value(std::move(r)); });
  const auto why = result.get_future().get();
  REQUIRE_FALSE(why);
  CHECK(why.error().code == reason::kind::device_lost);
}
