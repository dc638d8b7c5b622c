// A device on a machine of N bytes: its error when they are used up, and its operations after that.
#include <catch2/catch.hpp>

#include <future>

#include "gpu/cuda/host/device.hpp"
#include "gpu/emulation/counted_machine.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/pipeline.hpp"
#include "gpu/tensor_parallel/shared_stage.hpp"
#include "harness/scratch.hpp"

using namespace troupe;
using namespace troupe::test;
using namespace troupe::gpu::cuda;
namespace step = gpu::operations;

namespace {

expected<gpu::outcome> asked(gpu::stage_device& d, gpu::operation o) {
  std::promise<expected<gpu::outcome>> result;
  d.submit(std::move(o), [&](expected<gpu::outcome> r) { result.set_value(std::move(r)); });
  return result.get_future().get();
}

const lesson& one_lesson() {
  static const auto l = lessons(small_model(), 1, 1, 1)[0];
  return l;
}

gpu::operation forward() {
  return {
      step::forward{.keep = true, .input = one_lesson().input, .targets = one_lesson().targets}};
}

std::shared_ptr<machine> machine_of(std::size_t bytes) {
  return emulated_machine(nullptr, 1, bytes);
}

/// Bytes that a stage takes until it is created, has gone forward, and has gone back.
struct needs {
  std::size_t created, forward, backward;
};
needs needed() {
  const auto count = std::make_shared<taken_memory>();
  device d{whole_model(small_model()),
           std::make_shared<counting_machine>(std::shared_ptr{emulated_machine()}, count)};
  needs n{count->bytes, 0, 0};
  run(d, forward());
  n.forward = count->bytes;
  run(d, step::backward{});
  n.backward = count->bytes;
  return n;
}

}  // namespace

TEST_CASE("a stage that does not fit on its GPU is not created, for lack of memory") {
  const auto n = needed();
  try {
    const device d{whole_model(small_model()), machine_of(n.created - 1)};
    FAIL("it was created");
  } catch (const std::runtime_error& e) {
    CHECK(code_of(e, reason::kind::insufficient) == reason::kind::out_of_memory);
    CHECK_THAT(e.what(), Catch::Contains("bytes: out of memory; ") &&
                             Catch::Contains(" of " + std::to_string(n.created - 1) + " bytes"));
  }
  CHECK_NOTHROW(device{whole_model(small_model()), machine_of(n.created)});
}

TEST_CASE("a forward without memory is refused as such, and the device's weights stay valid") {
  const auto n = needed();
  REQUIRE(n.forward > n.created);
  device d{whole_model(small_model()), machine_of(n.forward - 1)};
  for (int i = 0; i < 2; ++i) {  // not half of it is left behind the first time
    const auto r = asked(d, forward());
    REQUIRE_FALSE(r);
    CHECK(r.error().code == reason::kind::out_of_memory);
  }
  const troupe::test::scratch room;
  CHECK(asked(d, {step::save{room.path()}}));
}

TEST_CASE("after a backward without memory all else is refused for the same reason") {
  const auto n = needed();
  REQUIRE(n.backward > n.forward);
  device d{whole_model(small_model()), machine_of(n.forward)};
  run(d, forward());
  const auto r = asked(d, {step::backward{}});
  REQUIRE_FALSE(r);
  CHECK(r.error().code == reason::kind::out_of_memory);
  const auto later = asked(d, {step::update{}});
  REQUIRE_FALSE(later);
  CHECK(later.error().code == reason::kind::out_of_memory);
  CHECK(later.error().text ==
        "device state is invalid; load a checkpoint first: " + r.error().text);
}

TEST_CASE("a shared stage reports the GPU that is out of memory, not one that was aborted") {
  auto m = small_model();
  m.heads = 2, m.hidden = 32;
  const auto whole = whole_model(m);
  const auto of_all = [&](std::size_t second) {
    return share_stage(whole, {machine_of(std::size_t{1} << 40), machine_of(second)});
  };
  // Found by bisection: what its second GPU needs to be created, its rehearsal included, is more
  // than what a micro-batch takes, so the next one in flight is the one without memory.
  std::size_t low = 0, high = std::size_t{1} << 24;
  while (high - low > 256) {
    const auto middle = (low + high) / 2;
    try {
      of_all(middle);
      high = middle;
    } catch (const std::runtime_error& e) {
      CHECK(code_of(e) == reason::kind::out_of_memory);
      low = middle;
    }
  }
  const auto d = of_all(high);
  const auto l = lessons(m, 1, 2, 1);
  REQUIRE(asked(*d, {step::forward{.keep = true, .input = l[0].input, .targets = l[0].targets}}));
  const auto r = asked(
      *d,
      {step::forward{.microbatch = 1, .keep = true, .input = l[1].input, .targets = l[1].targets}});
  REQUIRE_FALSE(r);
  CHECK(r.error().code == reason::kind::out_of_memory);
}
