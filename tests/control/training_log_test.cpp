#include "actors/control/training_history.hpp"

#include <utility>

#include <catch2/catch.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::actors;

namespace {

training_report told(lease_id lease, std::uint64_t sequence, std::uint64_t first,
                     std::uint64_t last, double loss = 1) {
  training_report r;
  r.lease = lease;
  r.job = 7;
  r.sequence = sequence;
  for (auto i = first; i <= last; ++i)
    r.iterations.push_back({i, loss, 0, double(i), double(i) + 1, 0});
  return r;
}

}  // namespace

TEST_CASE("the history of a long training is bounded, exact at its end and even before") {
  training_history log;
  constexpr std::uint64_t all = 100'000;
  for (std::uint64_t i = 1; i <= all; i += 10) log.add(told(1, i, i, i + 9));
  const auto kept = log.since(7, 0)->first.iterations;
  CHECK(kept.size() <= 2 * training_history::exact_iterations);
  CHECK(kept.size() > training_history::exact_iterations + training_history::exact_iterations / 3);
  CHECK(kept.front().iteration == 1);
  for (std::uint64_t back = 0; back < training_history::exact_iterations; ++back)
    REQUIRE(kept[kept.size() - 1 - back].iteration == all - back);
  std::uint64_t widest = 0;
  for (std::size_t i = 1; i < kept.size(); ++i)
    widest = std::max(widest, kept[i].iteration - kept[i - 1].iteration);
  CHECK(widest <= 2 * all / training_history::exact_iterations);
  CHECK(log.reached(7, 2) == all);
  CHECK(log.took_s(7, 2) == 1);
}

TEST_CASE("a follower that says what it has is told only what is newer, and ends with everything") {
  training_history log;
  training_report followed;
  std::uint64_t position = 0;
  for (std::uint64_t i = 1; i <= 5000; i += 5) {
    auto r = told(1, i, i, i + 4);
    if (i % 500 == 1) r.news.push_back("at " + std::to_string(i));
    log.add(r);
    const auto [newer, at] = *log.since(7, position);
    REQUIRE(newer.iterations.size() == 5);
    append(followed, newer);
    position = at;
  }
  CHECK(log.since(7, position)->first.iterations.empty());
  REQUIRE(followed.iterations.size() == 5000);
  for (std::uint64_t i = 0; i < 5000; ++i) REQUIRE(followed.iterations[i].iteration == i + 1);
  CHECK(followed.news.size() == 10);
}

TEST_CASE("iterations that are done again after a checkpoint replace the earlier ones") {
  training_history log;
  training_report followed;
  log.add(told(1, 1, 1, 3000));
  auto [first, position] = *log.since(7, 0);
  append(followed, first);
  log.add(told(2, 1, 1501, 1600, 2));
  const auto [second, at] = *log.since(7, position);
  CHECK(second.iterations.size() == 100);
  append(followed, second);
  const auto kept = *log.since(7, 0);
  for (const training_report* r : {&std::as_const(followed), &kept.first}) {
    CHECK(r->iterations.back().iteration == 1600);
    CHECK(r->iterations.back().loss == 2);
    CHECK(std::ranges::is_sorted(r->iterations, {}, &iteration_record::iteration));
  }
}

TEST_CASE("sentences are bounded, and trainings that ended long ago are forgotten") {
  training_history log;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    auto r = told(1, i, i, i);
    r.news.push_back(std::to_string(i));
    log.add(r);
  }
  const auto news = log.since(7, 0)->first.news;
  REQUIRE(news.size() == training_history::kept_news);
  CHECK(news.back() == "1000");
  log.ended(7);
  log.ended(7);
  for (job_id job = 100; job < 100 + training_history::kept_ended; ++job) {
    CHECK(log.since(7, 0).has_value());
    auto r = told(1, 1, 1, 1);
    r.job = job;
    log.add(r);
    log.ended(job);
  }
  CHECK_FALSE(log.since(7, 0).has_value());
  CHECK(log.since(100, 0).has_value());
}
