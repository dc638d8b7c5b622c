// Every device trains like the CPU device, within its precision.
#include <catch2/catch.hpp>
#include <cmath>

#include "gpu/pipeline.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const device_kind cpu{"cpu", gpu::make_cpu_device};

}  // namespace

TEST_CASE("every device has the CPU's losses, gradients and norms within its tolerance") {
  const auto kind = GENERATE(from_range(devices()));
  const bool tied = GENERATE(true, false);
  CAPTURE(kind.name, tied);
  auto m = small_model(tied);
  m.layers = 2;
  m.heads = 2;
  m.hidden = GENERATE(48u, 128u);  // heads of 24 values, and of 64
  m.sequence = 70;                 // more than a tile
  m.vocabulary = 131;
  pipeline reference{cpu, m, {1, 3}}, other{kind, m, {1, 3}};
  const auto all = lessons(m, 2, 2, 3);
  check_near(reference.learn(all), other.learn(all), kind.gradients_off, kind.losses_off);
}

TEST_CASE("every device's loss follows the CPU's, step by step") {
  const auto kind = GENERATE(from_range(devices()));
  CAPTURE(kind.name);
  const auto m = small_model();
  const int steps = kind.name == "emulated" ? 40 : 200;
  pipeline reference{cpu, m, {12}, {.learning_rate = 1e-3}},
      other{kind, m, {12}, {.learning_rate = 1e-3}};
  double off = 0;
  for (int i = 0; i < steps; ++i) {
    const auto all = lessons(m, 2, 1, static_cast<std::uint64_t>(i % 4));
    const auto a = reference.learn(all).losses[0], b = other.learn(all).losses[0];
    off = std::max(off, std::abs(a - b) / a);
  }
  CAPTURE(off);
  CHECK(off <= 5 * kind.losses_off);  // differences grow with what is learnt
}
