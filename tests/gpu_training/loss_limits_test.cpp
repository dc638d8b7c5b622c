#include "gpu_training/loss_limits.hpp"

#include <catch2/catch.hpp>
#include <cmath>

using namespace troupe::bench;

namespace {

/// 200 losses, off by these fractions from step 1 and from step 51 on.
std::vector<double> losses(double early, double later) {
  std::vector<double> all;
  for (int i = 0; i < 200; ++i) all.push_back(3.0 * (1 + (i < 50 ? early : later)));
  return all;
}

const std::vector<double> reference = losses(0, 0);

bool good(double early, double later, const std::optional<loss_distance>& peer) {
  return is_within(distance_of(losses(early, later), reference), limits_beside(peer));
}

}  // namespace

TEST_CASE("the distance of losses is that of the first 50 steps, and that of those after them") {
  auto off = reference;
  off[49] *= 1.002;
  off[50] *= 0.99;
  const auto d = distance_of(off, reference);
  CHECK(d.early == Approx(0.002));
  CHECK(d.later == Approx(0.01));
}

TEST_CASE(
    "losses in 16 bits are within 0.5 % at first, and later within twice PyTorch's distance") {
  const auto peer = distance_of(losses(0.001, -0.004), reference);
  CHECK(good(0.0049, 0.0079, peer));
  CHECK_FALSE(good(0.0051, 0, peer));
  CHECK_FALSE(good(-0.0051, 0, peer));
  CHECK_FALSE(good(0, 0.0081, peer));
  // PyTorch's largest distance may be in its first steps.
  CHECK(good(0, 0.0079, distance_of(losses(0.004, 0.0001), reference)));
  CHECK_FALSE(good(0, 0.0081, distance_of(losses(0.004, 0.0001), reference)));
  // Two trainings that are both near may be one much nearer than the other.
  const auto near = distance_of(losses(0.0001, 0.0002), reference);
  CHECK(good(0.0049, 0.0009, near));
  CHECK_FALSE(good(0, 0.0011, near));
}

TEST_CASE("without PyTorch all losses in 16 bits are within 0.5 %") {
  CHECK(good(0.0049, 0.0049, std::nullopt));
  CHECK_FALSE(good(0, 0.0051, std::nullopt));
  CHECK_FALSE(good(0.0051, 0, std::nullopt));
}

TEST_CASE("a PyTorch that is far from the start is no yardstick, and fails itself") {
  const auto broken = distance_of(losses(0.3, 0.5), reference);
  CHECK_FALSE(is_within(broken, limits_of_peer));
  CHECK_FALSE(good(0, 0.0051, broken));
  CHECK(is_within(distance_of(losses(0.001, 0.5), reference), limits_of_peer));
}

TEST_CASE("losses that are missing or not finite are too far") {
  auto off = reference;
  off[120] = NAN;
  const auto peer = distance_of(losses(0.004, 1), reference);
  CHECK_FALSE(is_within(distance_of(off, reference), limits_beside(peer)));
  CHECK_FALSE(is_within(distance_of(off, reference), limits_of_peer));
  off = reference;
  off.pop_back();
  CHECK_FALSE(is_within(distance_of(off, reference), limits_beside(peer)));
}
