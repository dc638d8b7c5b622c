// The order in which Troupe's policy serves jobs, sorted from that of the last decision on, against
// a whole sort.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "messages/base/random.hpp"
#include "planners/troupe/service_order.hpp"

using namespace troupe;
using namespace troupe::planners;

TEST_CASE("jobs are served in their order, whatever the order of the last decision was") {
  random_source r{58};
  const troupe_options o;
  configuration_table table;
  table.fastest_samples_per_s = 1;
  for (int run = 0; run < 300; ++run) {
    std::deque<last_place> places(1 + r.below(80));
    std::vector<contender> jobs(places.size());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      auto& x = jobs[i];
      x.id = i + 1;
      x.table = &table;
      x.assumed_work = 1 + static_cast<double>(r.below(50));  // often the same
      x.whole_samples = static_cast<double>(r.below(200));    // overdue or not at 100 s
      x.priority = r.chance(0.1) ? 1 : 0;
      if (r.chance(0.9)) x.place = &places[i];
      if (r.chance(0.1)) places[i].at = static_cast<std::uint32_t>(r.below(200));
    }
    for (int decision = 0; decision < 6; ++decision) {
      decision_memory memory;
      decision_list<service_rank> ranks{memory.get()};
      for (const auto& x : jobs) ranks.emplace_back(x, 100, o);
      const service_order order{ranks};
      std::ranges::sort(ranks, [](const auto& a, const auto& b) { return b < a; });
      REQUIRE(order.size() == jobs.size());
      for (std::size_t i = 0; i < order.size(); ++i) REQUIRE(&order.at(i) == ranks[i].who);
      const auto rest = order.from(order.size() / 2);
      REQUIRE(rest.size() == order.size() - order.size() / 2);
      CHECK(rest.front() == ranks[order.size() / 2].who);
      // Some have less work left, and one run in four has little in common with the one before.
      const double share = r.chance(0.25) ? 0.9 : 0.1;
      for (auto& x : jobs)
        if (r.chance(share)) x.assumed_work = 1 + static_cast<double>(r.below(50));
    }
  }
}
