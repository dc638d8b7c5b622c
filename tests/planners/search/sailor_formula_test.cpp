#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "planners/search/sailor_formula.hpp"

// The plans of Sailor's pools of which its own simulator's seconds and dollars are recorded.

using namespace troupe::harness;

namespace {

struct recorded_plan {
  std::string name;
  sailor_plan plan;
  double seconds = 0, dollars = 0;
};

std::vector<recorded_plan> recorded_plans() {
  const auto a = [](std::uint32_t t, std::uint32_t zone = 0) { return sailor_seat{0, t, zone}; };
  const auto v = [](std::uint32_t t, std::uint32_t zone = 0) { return sailor_seat{1, t, zone}; };
  const auto one = [](std::uint32_t pipelines, std::vector<sailor_seat> seats) {
    return std::vector<sailor_group>{{pipelines, 0, std::move(seats)}};
  };
  const auto in_zones = [](std::vector<std::uint32_t> zones, std::vector<sailor_seat> seats) {
    std::vector<sailor_group> groups;
    for (const auto z : zones) {
      for (auto& s : seats) s.zone = z;
      groups.push_back({8, 0, seats});
    }
    return groups;
  };
  return {
      {"h32 A4", {8, {0}, one(8, {a(4)})}, 7.9932, 0.2657},
      {"h32 A2", {2, {0}, one(16, {a(2)})}, 8.0772, 0.2685},
      {"h32 A2", {4, {0}, one(16, {a(2)})}, 7.7097, 0.2563},
      {"h32 A1 A1", {4, {0, 13}, one(16, {a(1), a(1)})}, 8.3234, 0.2767},
      {"x128 V2 V2 A2", {2, {0, 5, 9}, one(16, {v(2), v(2), a(2)})}, 6.1879, 0.5137},
      {"x128 V2 V2 A2", {2, {0, 6, 11}, one(16, {v(2), v(2), a(2)})}, 5.6314, 0.4675},
      {"x128 V4 A2", {4, {0, 10}, one(16, {v(4), a(2)})}, 5.4893, 0.4557},
      {"x128 V2 V2 V2 A2", {2, {0, 5, 9, 13}, one(16, {v(2), v(2), v(2), a(2)})}, 5.0705, 0.5472},
      {"x128 Sailor's",
       {2, {0, 13}, {{3, 0, {a(1), a(1)}}, {24, 0, {v(4), a(1)}}}},
       5.8837,
       0.6227},
      {"x512 Sailor's",
       {1, {0, 3, 6, 10, 14, 18, 22}, one(32, {v(4), a(1), a(1), a(1), a(1), v(4), v(4)})},
       1.9124,
       0.8255},
      {"x512 V4 V4 V4 A2 A2",
       {2, {0, 5, 9, 13, 20}, one(32, {v(4), v(4), v(4), a(2), a(2)})},
       1.7584,
       0.7590},
      {"x512 V4 V4 A4", {4, {0, 6, 11}, one(32, {v(4), v(4), a(4)})}, 1.9006, 0.6312},
      {"x512 A1", {1, {0}, one(128, {a(1)})}, 4.0369, 0.5368},
      {"g160 f c b a", {8, {0}, in_zones({3, 2, 1, 0}, {a(4)})}, 2.4105, 0.4468},
      {"g160 b c f a", {8, {0}, in_zones({1, 2, 3, 0}, {a(4)})}, 2.4080, 0.4465},
      {"m512 V4 V4 A4",
       {4, {0, 6, 11}, in_zones({1, 2, 3, 0}, {v(4), v(4), a(4)})},
       1.9106,
       0.7608},
  };
}

}  // namespace

TEST_CASE("Sailor's formula gives the recorded times, prices and memory of 16 plans") {
  const auto folder = shared_data("sailor");
  if (!folder) {
    WARN("skipped: this checkout has no ../shared/data/sailor");
    return;
  }
  const sailor_formula formula{*folder};
  double worst = 0;
  for (const auto& r : recorded_plans()) {
    const auto v = formula.value(r.plan);
    CAPTURE(r.name, r.plan.rows, v.seconds, r.seconds, v.dollars, r.dollars);
    CHECK(v.fits);
    CHECK(v.seconds == Approx(r.seconds).epsilon(2e-3));
    CHECK(v.dollars == Approx(r.dollars).epsilon(2e-3));
    worst = std::max(worst, std::abs(v.seconds / r.seconds - 1));
  }
  UNSCOPED_INFO("largest difference of a time: " << worst);
  CHECK(worst <= 2e-3);
}
