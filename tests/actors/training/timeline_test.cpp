#include "actors/training/trainer/timeline.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

#include <fstream>

#include <fmt/format.h>

#include "harness/scratch.hpp"
#include "harness/small_cluster.hpp"
#include "messages/wire/task_kind.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

/// Three pipelines of two stages, from the first datacenter to the second.
training_plan three_pipelines(bool shares_wan) {
  const auto c = harness::small_cluster();
  training_plan plan;
  plan.shapes[0].stages = 2;
  plan.shapes[0].pipelines = 3;
  plan.shapes[0].microbatches = 4;
  plan.shapes[0].cell = 2;
  plan.schedules[0].shares_wan = shares_wan;
  plan.schedule_name = "atlas";
  for (std::uint32_t p = 0; p < 3; ++p)
    for (std::uint32_t s = 0; s < 2; ++s) {
      stage_setup x;
      x.name = {1, p, s};
      x.backend = "sim";
      x.devices = {static_cast<std::uint16_t>(p % 2)};
      x.neighbours = {node_address(p / 2), node_address(2 + p / 2)};
      plan.stages.push_back(x);
    }
  return plan;
}

stage_report report_of(std::uint32_t p, std::uint32_t s, std::vector<timed_task> tasks,
                       double begin_s = 10, std::uint64_t iteration = 5) {
  stage_report r;
  r.name = {1, p, s};
  r.iteration = iteration;
  r.begin_s = begin_s;
  r.tasks = std::move(tasks);
  return r;
}

timed_task task(task_kind k, std::uint32_t microbatch, double begin_s, double end_s) {
  return task_of(k, microbatch, begin_s, end_s);
}

/// The lines that are not about what a track is.
std::vector<std::string> written(const timeline& t, const training_plan& plan,
                                 const job_spec& job = harness::small_job("a job")) {
  const troupe::test::scratch room;
  REQUIRE(t.write(room / "timeline.json", *harness::small_cluster(), plan, job));
  std::ifstream in{room / "timeline.json"};
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string about(const std::vector<std::string>& lines, const std::string& what) {
  std::string all;
  for (const auto& l : lines)
    if (l.find(what) != std::string::npos) all += l + '\n';
  return all;
}

}  // namespace

TEST_CASE("a guest's operations are on the track of their stage's device") {
  timeline t;
  t.add(
      report_of(0, 1, {task(task_kind::prefill, 4, 10, 11), task(task_kind::forward, 0, 11, 12)}));
  const auto lines = written(t, three_pipelines(false));
  CHECK(about(lines, R"("cat":"prefill")").find(R"("pid":1,"tid":2000,)") != std::string::npos);
  CHECK(about(lines, R"("cat":"forward")").find(R"("pid":1,"tid":2000,)") != std::string::npos);
}

TEST_CASE("a timeline is a list of events, of which each but the last is followed by a comma") {
  timeline t;
  t.add(report_of(0, 0, {task(task_kind::forward, 1, 10.5, 11.25)}));
  auto job = harness::small_job("a \"job\" of \\ and\n");
  const auto lines = written(t, three_pipelines(true), job);
  const std::vector<std::string> wanted{
      R"({"traceEvents":[)",
      R"({"ph":"M","pid":0,"name":"process_name","args":{"name":"dc1"}},)",
      R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"dc2"}},)",
      R"({"ph":"M","pid":2,"name":"process_name","args":{"name":"dc3"}},)",
      R"({"ph":"M","pid":1000000,"name":"process_name","args":{"name":"WAN"}},)",
      R"({"ph":"M","pid":0,"tid":0,"name":"thread_name","args":)"
      R"x({"name":"pipeline 0 stage 0 (a-0)","pipeline":0,"stage":0}},)x",
      R"({"ph":"M","pid":0,"tid":0,"name":"thread_sort_index","args":{"sort_index":0}},)",
      R"({"ph":"X","pid":0,"tid":0,"name":"forward 1","cat":"forward","cname":"good",)"
      R"("ts":500000.000,"dur":750000.000,"args":{"pipeline":0,"microbatch":1}})",
      R"(],"displayTimeUnit":"ms","otherData":{"job":"a \"job\" of \\ and ",)"
      R"("schedule":"atlas","device":"sim","unit":"s","iteration":5,"stages":2,"pipelines":3,)"
      R"("microbatches":4}})"};
  CHECK(lines == wanted);
  job.slots.emplace();
  CHECK(about(written(t, three_pipelines(true), job), R"("unit":"slot")").size() > 0);
}

TEST_CASE("every stage has a track of its own, by its node and its device") {
  timeline t;
  for (std::uint32_t p = 0; p < 3; ++p)
    for (std::uint32_t s = 0; s < 2; ++s)
      t.add(report_of(p, s, {task(task_kind::update, 0, 11, 12)}, 9 + p));
  const auto lines = written(t, three_pipelines(true));
  const auto track = [&](const std::string& name, const std::string& ids) {
    CHECK(about(lines, "\"name\":\"" + name + "\"").starts_with(R"({"ph":"M",)" + ids));
  };
  track("pipeline 0 stage 0 (a-0)", R"("pid":0,"tid":0,)");
  track("pipeline 0 stage 1 (b-0)", R"("pid":1,"tid":2000,)");
  track("pipeline 1 stage 0 (a-0)", R"("pid":0,"tid":1,)");
  track("pipeline 1 stage 1 (b-0)", R"("pid":1,"tid":2001,)");
  track("pipeline 2 stage 0 (a-1)", R"("pid":0,"tid":1000,)");
  track("pipeline 2 stage 1 (b-1)", R"("pid":1,"tid":3000,)");
  // Times count from where the first stage began.
  CHECK(about(lines, R"("pid":1,"tid":3000,"name":"update 0")").find(R"("ts":2000000.000,)") !=
        std::string::npos);
  CHECK(about(lines, R"("sort_index":5)").find(R"("tid":3000)") != std::string::npos);
}

TEST_CASE(
    "transfers of a cell are one track a direction, and begin when the one before has ended") {
  using enum task_kind;
  timeline t;
  t.add(report_of(0, 0,
                  {task(gradient_transfer, 0, 11, 12), task(gradient_transfer, 1, 11.5, 12.5),
                   task(activation_transfer, 0, 10, 11)}));  // there is none to the first stage
  t.add(report_of(0, 1,
                  {task(activation_transfer, 0, 10.25, 10.5),
                   task(gradient_transfer, 0, 10, 11)}));  // nor a gradient's to the last one
  t.add(report_of(1, 1,
                  {task(activation_transfer, 2, 10.25, 11), task(activation_transfer, 3, 10.75, 11),
                   task(activation_transfer, 0, 10, 10.25)}));
  auto unknown = task(forward, 0, 10, 10.25);
  unknown.what = static_cast<std::uint8_t>(task_kinds.size());  // one beyond the last kind
  t.add(report_of(2, 1, {task(activation_transfer, 1, 10.5, 11), unknown}));
  const auto lines = written(t, three_pipelines(true));
  const auto wan = about(lines, R"("pid":1000000,)");
  const std::string wan_is = R"({"ph":"M","pid":1000000,)";
  const auto track = [&](int tid, int index, const std::string& name, const std::string& args) {
    return wan_is +
           fmt::format(R"("tid":{},"name":"thread_name","args":{{"name":"{}",{}}}}},)", tid, name,
                       args) +
           '\n' + wan_is +
           fmt::format(R"("tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}},)", tid,
                       index) +
           '\n';
  };
  const auto span = [](int tid, const std::string& what, int microbatch, int from_ms, int for_ms,
                       int pipeline) {
    const bool forward = what == "activation";
    return fmt::format(R"({{"ph":"X","pid":1000000,"tid":{},"name":"{} {}","cat":"{}",)", tid, what,
                       microbatch, what) +
           fmt::format(R"("cname":"{}","ts":{:.3f},"dur":{:.3f},)",
                       forward ? "rail_load" : "rail_response", from_ms * 1e3, for_ms * 1e3) +
           fmt::format(R"("args":{{"pipeline":{},"microbatch":{}}}}})", pipeline, microbatch);
  };
  const std::string wanted = wan_is + R"("name":"process_name","args":{"name":"WAN"}},)" + '\n' +
                             track(0, 4, "dc1 to dc2, hop 0, pipelines 0 to 1",
                                   R"("hop":0,"backward":false,"pipelines":[0,1])") +
                             span(0, "activation", 0, 0, 250, 1) + ",\n" +
                             span(0, "activation", 0, 250, 250, 0) + ",\n" +
                             span(0, "activation", 2, 500, 500, 1) + ",\n" +
                             track(1, 5, "dc1 to dc2, hop 0, pipeline 2",
                                   R"("hop":0,"backward":false,"pipelines":[2,2])") +
                             span(1, "activation", 1, 500, 500, 2) + ",\n" +
                             track(10'000, 6, "dc2 to dc1, hop 0, pipelines 0 to 1",
                                   R"("hop":0,"backward":true,"pipelines":[0,1])") +
                             span(10'000, "gradient", 0, 1000, 1000, 0) + ",\n" +
                             span(10'000, "gradient", 1, 2000, 500, 0) + '\n';
  CHECK(wan == wanted);
  // A task of a kind that this version does not know is not drawn at all.
  const auto drawn = about(lines, R"("ph":"X")");
  CHECK(std::ranges::count(drawn, '\n') == 6);
  // Where the WAN is not shared every pipeline has its own.
  const auto apart = about(written(t, three_pipelines(false)), R"("name":"thread_name")");
  CHECK(apart.find(R"("name":"dc1 to dc2, hop 0, pipeline 1","hop":0)") != std::string::npos);
  CHECK(apart.find("pipelines") == apart.find(R"(pipelines":[0,0])"));
}

TEST_CASE("every hop has its own tracks") {
  const auto c = harness::small_cluster();
  training_plan plan;
  plan.shapes[0].stages = 3;
  for (std::uint32_t s = 0; s < 3; ++s) {
    stage_setup x;
    x.devices = {0};
    x.neighbours = {node_address(0), node_address(2), node_address(4)};
    plan.stages.push_back(x);
  }
  timeline t;
  t.add(report_of(0, 1, {task(task_kind::gradient_transfer, 0, 10, 11)}));
  t.add(report_of(0, 2, {task(task_kind::activation_transfer, 0, 10, 11)}));
  const auto lines = written(t, plan);
  CHECK(about(lines, "\"dc2 to dc3, hop 1, pipeline 0\"").find(R"("tid":20000,)") !=
        std::string::npos);
  CHECK(about(lines, "\"dc3 to dc2, hop 1, pipeline 0\"").find(R"("tid":30000,)") !=
        std::string::npos);
}

TEST_CASE("only the newest iteration is written") {
  timeline t;
  t.add(report_of(0, 0, {task(task_kind::forward, 1, 10, 11)}, 10, 5));
  t.add(report_of(0, 0, {task(task_kind::forward, 0, 10, 11)}, 10, 4));
  t.add(report_of(1, 0, {task(task_kind::forward, 2, 10, 11)}, 10, 5));
  auto spans = about(written(t, three_pipelines(true)), R"("ph":"X")");
  CHECK(spans.find("forward 0") == std::string::npos);
  CHECK(spans.find("forward 1") != std::string::npos);
  CHECK(spans.find("forward 2") != std::string::npos);
  t.add(report_of(1, 0, {task(task_kind::forward, 3, 10, 11)}, 10, 6));
  spans = about(written(t, three_pipelines(true)), R"("ph":"X")");
  CHECK(spans.find("forward 1") == std::string::npos);
  CHECK(spans.find("forward 3") != std::string::npos);
}

TEST_CASE("a timeline that cannot be written is refused") {
  const troupe::test::scratch room;
  CHECK_FALSE(timeline{}.write(room / "missing/timeline.json", *harness::small_cluster(),
                               three_pipelines(true), harness::small_job("a job")));
}
