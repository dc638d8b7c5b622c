#include "actors/training/trainer/device_times.hpp"

#include <catch2/catch.hpp>

#include "harness/small_cluster.hpp"
#include "messages/wire/task_kind.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

/// One pipeline of two stages on the first and the third node.
training_plan two_stages() {
  const auto c = harness::small_cluster();
  training_plan plan;
  for (std::uint32_t s = 0; s < 2; ++s) {
    stage_setup x;
    x.name = {1, 0, s};
    x.devices = {static_cast<std::uint16_t>(3 + s)};
    x.neighbours = {node_address(0), node_address(2)};
    plan.stages.push_back(x);
  }
  return plan;
}

stage_report report_of(std::uint32_t stage, std::uint64_t iteration,
                       std::vector<timed_task> tasks) {
  stage_report r;
  r.name = {1, 0, stage};
  r.iteration = iteration;
  r.tasks = std::move(tasks);
  return r;
}

timed_task forward(double begin_s, double end_s) {
  return task_of(task_kind::forward, 0, begin_s, end_s);
}

}  // namespace

TEST_CASE("the newest iteration of all stages is told, while a stage is ahead of the others") {
  const auto c = harness::small_cluster();
  const auto plan = two_stages();
  device_times times;
  times.add(report_of(0, 1, {forward(10, 11)}));
  times.add(report_of(0, 2, {forward(13, 14)}));
  CHECK_FALSE(times.report(plan));
  times.add(report_of(1, 1, {forward(11, 12.5)}));
  times.complete(1, 10, 13);
  const auto notified = times.report(plan);
  REQUIRE(notified);
  CHECK(notified->iteration == 1);
  CHECK(notified->length_s == 3);
  REQUIRE(notified->stages.size() == 2);
  CHECK(notified->stages[0].node == 0);
  CHECK(notified->stages[1].node == 2);
  CHECK(notified->stages[1].devices == std::vector<std::uint16_t>{4});
  REQUIRE(notified->stages[1].tasks.size() == 1);
  CHECK(notified->stages[1].tasks[0].begin_s == 1);
  CHECK(notified->stages[1].tasks[0].end_s == 2.5);
  // A device's total includes the iteration that is under way.
  CHECK(notified->stages[0].busy_s.at(index_of(task_kind::forward)) == 2);
  times.add(report_of(1, 2, {forward(14, 15)}));
  times.complete(2, 13, 16);
  CHECK(times.report(plan)->iteration == 2);
}

TEST_CASE("a task of an unknown kind is left out, and a timeline of too many tasks has none") {
  const auto c = harness::small_cluster();
  const auto plan = two_stages();
  device_times times;
  times.add(report_of(0, 1, {timed_task{200, 0, 0, 1}, forward(0, 1)}));
  times.complete(1, 0, 1);
  CHECK(times.report(plan)->stages[0].tasks.size() == 1);
  times.add(report_of(0, 2, std::vector(device_times::max_tasks, forward(1, 2))));
  times.complete(2, 1, 2);
  CHECK(times.report(plan)->stages[0].tasks.size() == device_times::max_tasks);
  times.add(report_of(0, 3, std::vector(device_times::max_tasks, forward(2, 3))));
  times.add(report_of(1, 3, {forward(2, 3)}));
  times.complete(3, 2, 3);
  const auto notified = times.report(plan);
  CHECK(notified->iteration == 3);
  CHECK(notified->stages[0].tasks.empty());
  CHECK(notified->stages[0].busy_s.at(0) == 1.0 + 2 * double(device_times::max_tasks));
}
