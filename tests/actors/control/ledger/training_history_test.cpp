#include "actors/control/ledger/training_history.hpp"

#include <utility>

#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>

#include <filesystem>
#include <fstream>
#include <string>

#include "actors/training/device/stage_backend.hpp"
#include "actors/training/trainer/curve_file.hpp"
#include "gpu/model/checkpoint_fence.hpp"
#include "messages/codec/codec.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

training_report report_of(lease_id lease, std::uint64_t sequence, std::uint64_t first,
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

TEST_CASE("a timeline is told as it is, is not stored in the journal, and has a bounded size") {
  training_history log;
  auto r = report_of(1, 1, 1, 1);
  r.timeline = iteration_timeline{1, 2, {{0, 0, 3, {1}, {{0, 0, 0, 1}}, {1}}}};
  REQUIRE(log.to_keep(r));
  CHECK_FALSE(log.to_keep(r)->timeline);
  log.add(r);
  CHECK(log.since(7, 0)->first.timeline == r.timeline);
  CHECK_FALSE(log.snapshot().at(0).timeline);
  auto huge = report_of(1, 2, 2, 2);
  huge.timeline = r.timeline;
  huge.timeline->stages[0].tasks.resize(training_history::max_tasks);
  log.add(huge);
  CHECK_FALSE(log.since(7, 0)->first.timeline);
  CHECK(log.since(7, 0)->first.iterations.size() == 2);
}

TEST_CASE("a long training's history is bounded, exact at its end and evenly thinned before") {
  training_history log;
  constexpr std::uint64_t all = 100'000;
  for (std::uint64_t i = 1; i <= all; i += 10) log.add(report_of(1, i, i, i + 9));
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
  CHECK(log.median_iteration_s(7, 2) == 1);
  // Iterations that a lease's own trainer reported are not from before the lease.
  CHECK(log.reached(7, 1) == 0);
  CHECK(log.median_iteration_s(7, 1) == 0);
  CHECK(log.reached(8, 2) == 0);
}

TEST_CASE(
    "over a million iterations, followers get proportional bytes and the kept history stays "
    "small") {
  training_history log;
  training_report followed;
  constexpr std::uint64_t all = 1'000'000, a_report = 250;
  std::uint64_t position = 0;
  std::size_t bytes = 0, largest = 0;
  const auto size_of = [](training_report r) {
    return encode(first_client_address, controller_address, training_reply{1, std::move(r), {}, 0})
        .size();
  };
  for (std::uint64_t i = 1; i <= all; i += a_report) {
    log.add(report_of(1, i, i, i + a_report - 1));
    if (i % (4 * a_report) == 1) continue;  // it polls now and then
    auto [newer, at] = *log.since(7, position);
    position = at;
    const auto size = size_of(newer);
    bytes += size;
    largest = std::max(largest, size);
    append(followed, newer);
  }
  REQUIRE(followed.iterations.size() == all);
  CHECK(followed.iterations.back().iteration == all);
  CHECK(bytes < 100 * all);
  CHECK(largest < 200'000);
  // The kept history, the answer to a new follower, and the entries at the journal's compaction.
  CHECK(size_of(log.since(7, 0)->first) < 200'000);
  REQUIRE(log.snapshot().size() == 1);
  CHECK(size_of(log.snapshot()[0]) < 200'000);
}

TEST_CASE("a follower that sends its position gets only newer iterations, and in the end all") {
  training_history log;
  training_report followed;
  std::uint64_t position = 0;
  for (std::uint64_t i = 1; i <= 5000; i += 5) {
    auto r = report_of(1, i, i, i + 4);
    if (i % 500 == 1) r.events.push_back("at " + std::to_string(i));
    log.add(r);
    const auto [newer, at] = *log.since(7, position);
    REQUIRE(newer.iterations.size() == 5);
    append(followed, newer);
    position = at;
  }
  CHECK(log.since(7, position)->first.iterations.empty());
  REQUIRE(followed.iterations.size() == 5000);
  for (std::uint64_t i = 0; i < 5000; ++i) REQUIRE(followed.iterations[i].iteration == i + 1);
  CHECK(followed.events.size() == 10);
}

TEST_CASE("iterations repeated after a checkpoint replace the earlier ones") {
  training_history log;
  training_report followed;
  log.add(report_of(1, 1, 1, 3000));
  auto [first, position] = *log.since(7, 0);
  append(followed, first);
  log.add(report_of(2, 1, 1501, 1600, 2));
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

TEST_CASE("a training's events are bounded, and trainings that ended long ago are forgotten") {
  training_history log;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    auto r = report_of(1, i, i, i);
    r.events.push_back(std::to_string(i));
    log.add(r);
  }
  const auto events = log.since(7, 0)->first.events;
  REQUIRE(events.size() == training_history::max_events);
  CHECK(events.back() == "1000");
  log.ended(7);
  log.ended(7);
  for (job_id job = 100; job < 100 + training_history::kept_ended; ++job) {
    CHECK(log.since(7, 0).has_value());
    auto r = report_of(1, 1, 1, 1);
    r.job = job;
    log.add(r);
    log.ended(job);
  }
  CHECK_FALSE(log.since(7, 0).has_value());
  CHECK(log.since(100, 0).has_value());
}

TEST_CASE("the whole curve of a training is on disk, and repeated iterations replace their lines") {
  namespace fs = std::filesystem;
  const auto directory = fs::temp_directory_path() / ("troupe-curve-" + std::to_string(::getpid()));
  fs::create_directories(directory);
  const auto lines = [&] {
    std::vector<std::string> all;
    std::ifstream in{directory / "curve.csv"};
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  };
  const auto add = [](curve_file& curve, std::uint64_t first, std::uint64_t last, double loss) {
    for (auto i = first; i <= last; ++i) curve.add({i, loss, 0.5, double(i), double(i) + 2, 0.25});
    return curve.write();
  };
  REQUIRE(gpu::take_fence(directory.string(), 1));
  curve_file first{directory.string(), 1};
  REQUIRE(first.resume(0, 0));
  constexpr double third = 1.0 / 3;  // its digits do not end
  REQUIRE(add(first, 1, 700, third));
  REQUIRE(add(first, 701, 1000, 3));
  REQUIRE(lines().size() == 1001);
  CHECK(lines()[0] == "iteration,end_unix_s,seconds,loss,gradient_norm,busy_s");
  CHECK(lines()[1000] == "1000,1002.000000,2,3,0.5,0.25");
  // Killed while it wrote.
  std::ofstream{directory / "curve.csv", std::ios::app} << "1001,10";
  REQUIRE(gpu::take_fence(directory.string(), 2));
  curve_file second{directory.string(), 2};
  const auto unknown = second.resume(900, 698);
  REQUIRE(unknown);
  REQUIRE(unknown->size() == 202);
  CHECK(unknown->at(0) == iteration_record{699, third, 0.5, 699, 701, 0.25});
  CHECK(unknown->back().iteration == 900);
  REQUIRE(add(second, 901, 902, 2));
  REQUIRE(lines().size() == 903);
  CHECK(lines()[900] == "900,902.000000,2,3,0.5,0.25");
  CHECK(lines()[901] == "901,903.000000,2,2,0.5,0.25");
  // The first trainer counted as lost but is alive: it may no longer write.
  CHECK(add(first, 1001, 1001, 3).error().code == reason::kind::stale);
  CHECK(add(first, 1002, 1002, 3));
  CHECK(lines().size() == 903);
  curve_file nowhere;
  CHECK(nowhere.resume(0, 0).value().empty());
  CHECK(add(nowhere, 1, 1, 1));
  fs::remove_all(directory);
}
