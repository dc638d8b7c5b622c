#include "messages/base/duration_counts.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include "messages/base/random.hpp"
#include "messages/base/statistics.hpp"

using namespace troupe;

TEST_CASE("a histogram of durations knows quantiles to 19 %") {
  random_source random{1};
  std::vector<double> all;
  duration_counts counts;
  for (int i = 0; i < 10'000; ++i) {
    all.push_back(std::exp(-10 + 10 * random.uniform()));
    counts.add(all.back());
  }
  for (const double q : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const double exact_s = statistics::quantile(all, q);
    CAPTURE(q, exact_s);
    CHECK(counts.quantile_s(q) >= exact_s);
    CHECK(counts.quantile_s(q) <= 1.1893 * exact_s);
  }
}

TEST_CASE("adding two histograms gives the histogram of all their durations") {
  duration_counts a, b, both;
  for (const double s : {0.0, 1e-5, 2e-3, 2e-3}) a.add(s), both.add(s);
  for (const double s : {5e-4, 7.0, 1e9}) b.add(s), both.add(s);
  a.add(b);
  CHECK(a == both);
  CHECK(a.buckets.size() == duration_counts::max_buckets);
}

TEST_CASE("an empty histogram has no quantile, and foreign buckets are ignored") {
  CHECK(duration_counts{}.quantile_s(0.99) == 0);
  duration_counts sum;
  sum.add(duration_counts{std::vector<std::uint64_t>(1000, 1)});
  CHECK(sum.buckets.size() == duration_counts::max_buckets);
}
