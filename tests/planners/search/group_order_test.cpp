#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <numeric>

#include "messages/base/random.hpp"
#include "messages/base/time.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/search/group_order.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Price and seconds of the sums over an order's boundaries, counted stage by stage.
std::pair<double, double> sums_of(const cluster& c, const std::vector<pipeline_group>& groups,
                                  const std::vector<std::uint64_t>& bytes,
                                  const std::vector<std::size_t>& order) {
  double price = 0, seconds = 0;
  for (std::size_t s = 0; s < bytes.size(); ++s)
    for (std::size_t i = 1; i < order.size(); ++i) {
      const auto a = *groups[order[i - 1]].stages[s].datacenter,
                 b = *groups[order[i]].stages[s].datacenter;
      if (a == b) continue;
      const auto size = static_cast<double>(bytes[s]);
      price += size / 1e9 * (traffic_price_per_gb(c, a, b) + traffic_price_per_gb(c, b, a));
      const auto wan = link_between(c, a, b, 0);
      seconds += 2 * (wan.latency_us * 1e-6 + size / wan.bytes_s(size, 1));
    }
  return {price, seconds};
}

struct drawn_groups {
  cluster c;
  std::vector<pipeline_group> groups;
  std::vector<std::uint64_t> bytes;
};

/// Prices and times of links differ by less than twice, so that no way over a third is shorter.
drawn_groups draw(random_source& r, std::uint32_t sites, std::uint32_t count, bool priced) {
  drawn_groups x;
  for (std::uint32_t d = 0; d < sites; ++d) x.c.datacenters.push_back({std::to_string(d), ""});
  for (std::uint32_t a = 0; a < sites; ++a)
    for (std::uint32_t b = 0; b < a; ++b) {
      wan_link w{a, b, 10 + 9 * r.uniform(), 5 + 4 * r.uniform(), 0};
      if (priced) w.price_per_gb = 0.01 * static_cast<double>(4 + r.below(4));
      x.c.wan.push_back(w);
    }
  const auto stages = 1 + r.below(3);
  for (std::uint64_t s = 0; s < stages; ++s) x.bytes.push_back(1'000'000 * (1 + r.below(900)));
  for (std::uint32_t g = 0; g < count; ++g) {
    pipeline_group group;
    for (std::uint64_t s = 0; s < stages; ++s) {
      plan_stage stage;
      stage.datacenter = static_cast<std::uint32_t>(r.below(sites));
      group.stages.push_back(stage);
    }
    x.groups.push_back(std::move(group));
  }
  return x;
}

}  // namespace

TEST_CASE("groups are in the order in which their sums cost least, as all orders show") {
  random_source r{11};
  int changed = 0;
  for (int i = 0; i < 300; ++i) {
    const auto sites = 1 + static_cast<std::uint32_t>(r.below(5));
    const auto x = draw(r, sites, 1 + static_cast<std::uint32_t>(r.below(6)), i % 3 != 0);
    const auto found = order_of_groups(x.c, x.groups, x.bytes);
    std::vector<std::size_t> order(x.groups.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    REQUIRE(std::is_permutation(found.begin(), found.end(), order.begin(), order.end()));
    changed += found != order;
    std::vector<std::pair<double, double>> all;
    do all.push_back(sums_of(x.c, x.groups, x.bytes, order));
    while (std::next_permutation(order.begin(), order.end()));
    const double price = std::ranges::min(all).first;
    double min_s = never;
    for (const auto& [p, s] : all)
      if (p <= price * (1 + 1e-12)) min_s = std::min(min_s, s);
    const auto cost = sums_of(x.c, x.groups, x.bytes, found);
    INFO("case " << i);
    CHECK(cost.first == Approx(price).epsilon(1e-12));
    CHECK(cost.second == Approx(min_s).epsilon(1e-12));
  }
  CHECK(changed > 100);
}

TEST_CASE("more than six datacenters are ordered by their nearest neighbours") {
  cluster c;
  std::vector<pipeline_group> groups;
  // On a line, dearer with distance, and given in another order.
  constexpr std::uint32_t sites = 9;
  for (std::uint32_t d = 0; d < sites; ++d) c.datacenters.push_back({std::to_string(d), ""});
  for (std::uint32_t a = 0; a < sites; ++a)
    for (std::uint32_t b = 0; b < a; ++b) {
      wan_link w{a, b, 10, 5, 0};
      w.price_per_gb = 0.01 * (a - b);
      c.wan.push_back(w);
    }
  for (const std::uint32_t d : {4, 0, 8, 2, 6, 1, 7, 3, 5}) {
    groups.emplace_back().stages.resize(1);
    groups.back().stages[0].datacenter = d;
  }
  std::vector<std::uint32_t> at;
  for (const auto g : order_of_groups(c, groups, std::vector<std::uint64_t>{1'000'000'000}))
    at.push_back(*groups[g].stages[0].datacenter);
  CHECK((std::ranges::is_sorted(at) || std::ranges::is_sorted(at, std::greater{})));
}
