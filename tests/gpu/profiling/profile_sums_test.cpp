// The measurement of all-reduces among GPUs, on emulated machines with an emulated NCCL: that it is
// complete and never hangs. The times themselves depend on the machine.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "gpu/cuda/runtime/machine.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/emulation/emulated_nccl.hpp"
#include "gpu/profiling/profile.hpp"
#include "harness/facts.hpp"

using namespace troupe;
using namespace troupe::gpu;
using Catch::Contains;

namespace {

expected<std::shared_ptr<cuda::machine>> open(int) {
  return troupe::test::emulated_machine(&troupe::test::emulated_nccl());
}

constexpr double never = 1e6;  // longer than a test may take

copy_rates measured(sums_wish w, const machine_opener& opener = open) {
  copy_rates c;
  c.on_device_gbytes_s = 7;
  w.bytes = 1 << 16;
  measure_sums(w, opener, c);
  CHECK(c.on_device_gbytes_s == 7);
  return c;
}

}  // namespace

TEST_CASE(
    "all-reduces are measured among 2, 4, ... and all GPUs of a machine, from the profiled one "
    "on") {
  std::vector<int> opened;
  const auto c = measured({.first = 3, .devices = 5}, [&](int index) {
    opened.push_back(index);
    return open(index);
  });
  CHECK(opened == std::vector{3, 4, 0, 1, 2});
  REQUIRE(c.all_reduces.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(c.all_reduces[i].devices == std::vector<std::uint32_t>{2, 4, 5}[i]);
    CHECK((c.all_reduces[i].gbytes_s > 0 && c.all_reduces[i].gbytes_s < 1e3));
    CHECK((c.all_reduces[i].small_us > 0 && c.all_reduces[i].small_us < 1e7));
  }
  CHECK(troupe::test::has_facts(c.all_reduce, {"NCCL", "2, 4, 5", "3", "5 rounds"}));
}

TEST_CASE("a missing all-reduce measurement has its reason in a sentence") {
  CHECK(troupe::test::has_facts(measured({}).all_reduce, {"not measured", "one device"}));
  const auto without = [](int) -> expected<std::shared_ptr<cuda::machine>> {
    return troupe::test::emulated_machine();
  };
  CHECK(troupe::test::has_facts(measured({.devices = 2}, without).all_reduce,
                                {"not measured", "NCCL"}));
  const auto one_broken = [](int index) -> expected<std::shared_ptr<cuda::machine>> {
    if (index == 1) return refuse(reason::kind::unavailable, "it fell off the bus");
    return open(index);
  };
  CHECK(troupe::test::has_facts(measured({.devices = 2}, one_broken).all_reduce,
                                {"not measured", "device 1", "it fell off the bus"}));
  ::setenv("TROUPE_COLLECTIVES", "hosts", 1);
  CHECK(troupe::test::has_facts(measured({.devices = 2}).all_reduce,
                                {"not measured", "TROUPE_COLLECTIVES"}));
  ::unsetenv("TROUPE_COLLECTIVES");
}

TEST_CASE("an NCCL error during the measurement ends it with NCCL's error text") {
  const auto sum = GENERATE(0, 20, 40);  // while warming up, in the large ones, in the small ones
  CAPTURE(sum);
  const troupe::test::nccl_fault fault{1, sum};
  const auto c = measured({.devices = 3, .patience_s = never});
  CHECK(c.all_reduces.empty());
  CHECK(troupe::test::has_facts(c.all_reduce,
                                {"not measured", "member 1", "2 GPUs", "unhandled system error"}));
}

TEST_CASE("a group that fails keeps the measurements of smaller groups") {
  static auto table = troupe::test::emulated_nccl();
  table.join = [](void** to, int size, const void* id, int rank) {
    constexpr int invalid_usage = 5;
    return size == 3 ? invalid_usage : troupe::test::emulated_nccl().join(to, size, id, rank);
  };
  const auto c = measured({.devices = 3}, [](int) {
    return expected<std::shared_ptr<cuda::machine>>{troupe::test::emulated_machine(&table)};
  });
  REQUIRE(c.all_reduces.size() == 1);
  CHECK(c.all_reduces[0].devices == 2);
  CHECK_THAT(
      c.all_reduce,
      Contains("the fastest of 5 rounds; not measured over 3 of the machine's devices: member ") &&
          Contains("NCCL reports: invalid usage"));
}

TEST_CASE("GPUs that never join or never sum delay the measurement no longer than the timeout") {
  static bool joins = true;
  auto table = troupe::test::emulated_nccl();
  joins = GENERATE(true, false);
  CAPTURE(joins);
  table.state = [](void* m, int* now) {
    if (joins) return troupe::test::emulated_nccl().state(m, now);
    *now = cuda::collectives::under_way;
    return cuda::collectives::well;
  };
  static std::atomic<int> asked;
  asked = 0;
  if (joins)
    table.sum = [](void* m, void* values, std::size_t n, bool narrow, void* stream) {
      // One of two keeps the other waiting.
      return ++asked == 1 ? cuda::collectives::well
                          : troupe::test::emulated_nccl().sum(m, values, n, narrow, stream);
    };
  const auto c = measured({.devices = 2, .patience_s = 0.2}, [&](int) {
    return expected<std::shared_ptr<cuda::machine>>{troupe::test::emulated_machine(&table)};
  });
  CHECK(c.all_reduces.empty());
  CHECK_THAT(c.all_reduce, Contains(joins ? "all-reduce not complete within 0.2 s"
                                          : "did not form within 0.2 s"));
}

TEST_CASE("a GPU without memory for the sums ends the measurement, and no member waits for it") {
  copy_rates c;
  measure_sums({.devices = 2, .bytes = std::size_t{1} << 60, .patience_s = never}, open, c);
  CHECK(c.all_reduces.empty());
  CHECK_THAT(c.all_reduce,
             Contains("not measured: over 2 of the machine's devices: the GPU refused memory of "));
}
