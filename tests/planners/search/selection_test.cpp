#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>

#include "harness/facts.hpp"
#include "harness/pipeline_shapes.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/policy/placement.hpp"
#include "planners/sample.hpp"
#include "planners/schedule/named_schedule.hpp"
#include "planners/search/datacenter_selection.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

expected<selection> placement_of(const cluster& c, const idle_index& idle, const job_spec& job,
                                 bool as_wished) {
  planning_budget budget;
  return select_placement(c, idle, job, as_wished, budget);
}

/// Datacenters of that many single-GPU nodes each, with 40 ms between them as in the paper.
cluster datacenters(const std::vector<std::uint32_t>& gpus) {
  cluster c;
  for (std::uint32_t dc = 0; dc < gpus.size(); ++dc) {
    c.datacenters.push_back({"dc" + std::to_string(dc), ""});
    const auto first = c.nodes.size();
    sample::add_nodes(c, sample::a100_80, gpus[dc], 1);
    for (auto n = first; n < c.nodes.size(); ++n) c.nodes[n].datacenter = dc;
    for (std::uint32_t other = 0; other < dc; ++other) c.wan.push_back({other, dc, 80, 5, 0.293});
  }
  return c;
}

job_spec study(std::uint32_t stages, std::uint32_t microbatches, double c) {
  job_spec job;
  job.name = "study";
  job.slots = slot_costs{1, 1, 2, 0, c};
  job.pipeline.stages = stages;
  job.pipeline.microbatches = microbatches;
  return job;
}

selection selected(const cluster& c, const job_spec& job, const selection_options& o = {}) {
  const auto made = select_datacenters(c, idle_index{c}, job, o);
  INFO((made ? "" : made.error().text));
  REQUIRE(made);
  return *made;
}

}  // namespace

TEST_CASE("ATLAS's Figure 11 is reproduced: a plateau to 40 %, steps at 50, 70, 90 and 100 %") {
  std::vector<double> gain;
  double one = 0;
  for (std::uint32_t tenths = 0; tenths <= 10; ++tenths) {
    const auto s = selected(datacenters({600, 60 * tenths}), study(60, 60, 2));
    if (tenths == 0) one = s.chosen()->throughput;
    gain.push_back(s.chosen()->throughput / one);
  }
  std::vector<int> steps;
  for (int i = 1; i <= 10; ++i)
    if (gain[i] > gain[i - 1] * 1.001) steps.push_back(10 * i);
  CAPTURE(gain);
  CHECK(steps == std::vector<int>{20, 50, 70, 90, 100});
  CHECK(std::ranges::is_sorted(gain));
}

TEST_CASE("the table follows Algorithm 1: partitions fill datacenters in their order") {
  const auto s = selected(datacenters({600, 300}), study(60, 60, 2));
  CHECK(s.cell == 2);
  CHECK(s.communication_to_compute == 2);
  CHECK(s.rows.size() == 7);  // 900 / (2 * 60)
  CHECK(s.rows[0].partitions == std::vector<std::uint32_t>{60, 0});
  CHECK(s.rows[4].partitions == std::vector<std::uint32_t>{60, 0});
  CHECK(s.rows[5].partitions == std::vector<std::uint32_t>{50, 10});
  CHECK(s.rows[6].partitions == std::vector<std::uint32_t>{42, 18});
  CHECK(s.rows[6].gpus == 14 * 60);
  CHECK(s.rows[0].pipeline_s == 414);
  CHECK(s.simulated);
  CHECK(s.chosen()->throughput == Approx(s.chosen()->data_parallel / s.chosen()->iteration_s));
}

TEST_CASE("DP-cells have C pipelines, or a few more to avoid a smaller remaining cell") {
  const auto cell = [](double c, std::uint32_t pipelines) {
    return cell_of({1, 1, 2, 0, c, 0}, pipelines);
  };
  CHECK(cell(2, 6) == 2);
  CHECK(cell(2, 3) == 3);
  CHECK(cell(2.5, 10) == 5);
  CHECK(cell(3, 7) == 4);  // and one of three
  CHECK(cell(3, 50) == 5);
  CHECK(cell(40, 3) == 3);
  CHECK(cell(0.1, 4) == 1);
}

TEST_CASE("a few distant GPUs are not worth the WAN") {
  const auto s = selected(datacenters({600, 10}), study(60, 60, 2));
  CHECK(s.chosen()->partitions == std::vector<std::uint32_t>{60, 0});
}

TEST_CASE("on small cases the best row is that of trying every D and every division") {
  random_source random{3};
  int feasible = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<std::uint32_t> gpus(1 + random.below(3));
    for (auto& n : gpus) n = static_cast<std::uint32_t>(random.below(9));
    std::ranges::sort(gpus, std::greater{});
    const auto stages = 1 + static_cast<std::uint32_t>(random.below(5));
    const auto cell = 1 + static_cast<std::uint32_t>(random.below(3));
    const auto m = 1 + static_cast<std::uint32_t>(random.below(5));
    selection_options o;
    o.cell = cell;
    const auto c = datacenters(gpus);
    const auto job = study(stages, m, 1 + double(random.below(4)));
    const auto made = select_datacenters(c, idle_index{c}, job, o);
    // Every D; for each the first division, in lexical order, that has the most stages early.
    double best = 0;
    for (std::uint32_t d = cell; d <= 24; d += cell) {
      std::vector<std::uint32_t> division(gpus.size()), first;
      std::function<void(std::size_t, std::uint32_t)> divide = [&](std::size_t at,
                                                                   std::uint32_t left) {
        if (!first.empty()) return;
        if (at == gpus.size()) {
          if (left == 0) first = division;
          return;
        }
        for (std::uint32_t n = left + 1; n-- > 0;) {
          if (n * d > gpus[at]) continue;
          division[at] = n;
          divide(at + 1, left - n);
        }
      };
      divide(0, stages);
      if (first.empty()) continue;
      pipeline_shape shape{stages, cell, m, first, 0, {}, {}};
      shape.costs.wan = job.slots->wan;
      best = std::max(best, d / schedule_pipeline(shape, "atlas-least-progress")->length);
    }
    CHECK(bool(made) == (best > 0));
    if (!made) continue;
    ++feasible;
    CHECK(made->chosen()->throughput == Approx(best));
  }
  CHECK(feasible > 100);
}

TEST_CASE("activations, all-reduce and the gain of many connections match the paper's formulas") {
  auto c = datacenters({6, 6});
  const auto gpt_b = sample::gpt("gpt-b", 8192, 6, 64, 6144);
  auto job = sample::job(gpt_b, 4);
  const auto x = costs_of_stage(job, sample::a100_80, split_model(job, 6), 1, 1);
  CHECK(x.activation_bytes == 96u << 20);
  const auto crossing = [&](std::uint32_t connections) {
    return static_cast<double>(x.activation_bytes) / link_between(c, 0, 1, connections).bytes_s();
  };
  CHECK(crossing(1) == Approx(2.75).margin(0.005));
  CHECK(crossing(0) == Approx(0.161).margin(0.0005));
  CHECK(crossing(1) / crossing(32) == Approx(5000.0 / 293));
  CHECK(crossing(8) == Approx(crossing(1) / 8));

  job.pipeline = {6, 2, 2, 0, 0, 0};
  const auto s = selected(c, job);
  const auto& row = s.rows[0];
  REQUIRE(row.feasible());
  const double n = row.data_parallel;
  const double parameters =
      static_cast<double>(
          costs_of_stage(job, sample::a100_80, split_model(job, 6), 0, 1).gradient_bytes) /
      2;
  CHECK(row.allreduce_s == Approx(4 * parameters * (n - 1) / (n * sample::ethernet.bytes_s())));
}

TEST_CASE("a stage's GPUs divide its work among them, and add the time of their sums") {
  auto job = sample::job(sample::gpt("m", 1024, 4, 16, 512), 8);
  const auto whole = split_model(job, 1)[0];
  job.pipeline.tensor_parallel = 4;
  const auto part = split_model(job, 1)[0];
  const double s = 512, h = 1024, l = 4;
  auto ends = job.model;
  ends.layers = 0;
  const double head = shape_of(ends).forward_flops, table = shape_of(ends).parameters;
  CHECK(part.flops - head == Approx((whole.flops - head) / 4));
  // 12 h^2 + 7 h of a layer are split, 6 h are everybody's.
  CHECK(part.parameters - table == Approx(l * ((12 * h * h + 7 * h) / 4 + 6 * h)));
  CHECK(whole.parameters - table == Approx(l * (12 * h * h + 13 * h)));
  CHECK(part.activation_bytes == Approx(l * s * h * (10 + 24.0 / 4 + 5.0 * 16 * s / h / 4)));
  const troupe::link inside{"nvlink", 1600, 5};
  const auto free = costs_of_stage(job, sample::a100_80, {part}, 0, 2);
  const auto x = costs_of_stage(job, sample::a100_80, {part}, 0, 2, inside);
  const double sum_s = 2 * 3.0 / 4 * (2 * 2 * s * h) / inside.bytes_s() + 2 * 3 * 5e-6;
  CHECK(x.forward_s - free.forward_s == Approx(8 * sum_s));  // two sublayers a layer
  CHECK(x.backward_s - free.backward_s == Approx(8 * sum_s));
}

TEST_CASE("a job with shared stages needs nodes with as many GPUs as share a stage") {
  const auto c = datacenters({6, 6});
  auto job = sample::job(sample::gpt("m", 1024, 8, 16, 512), 8);
  job.train.emplace();
  job.pipeline.stages = 2;
  job.pipeline.data_parallel = 1;
  const auto on = [&](std::uint32_t t) {
    job.pipeline.tensor_parallel = t;
    return place_pipelines(c, idle_index{c}, job, true);
  };
  const auto alone = on(1);
  REQUIRE(alone);
  CHECK(alone->how.gpus() == 2);
  // Nodes of one GPU have none to share.
  CHECK_FALSE(on(2));
}

TEST_CASE("for shapes too large to simulate the bound is within 7 % of least progress first") {
  random_source random{17};
  double worst = 0;
  for (int i = 0; i < 60; ++i) {
    pipeline_shape s;
    s.stages = 20 + static_cast<std::uint32_t>(random.below(40));
    s.microbatches = 20 + static_cast<std::uint32_t>(random.below(40));
    s.stages_of_datacenter =
        troupe::test::split_evenly(s.stages, 5 + static_cast<std::uint32_t>(random.below(40)));
    s.pipelines = 1 + static_cast<std::uint32_t>(random.below(3));
    s.costs.wan = s.pipelines - random.uniform() * 0.9;
    const auto made = schedule_pipeline(s, "atlas-least-progress");
    worst = std::max(worst, made->length / pipeline_lower_bound(s) - 1);
  }
  CHECK(worst < 0.07);
}

TEST_CASE("the order of datacenters depends on price and distance too") {
  auto c = datacenters({120, 120, 120});
  c.gpus.push_back(sample::gpu("cheap", 80, 312, 1));
  for (auto& n : c.nodes)
    if (n.datacenter == 2) n.gpu = 1;
  c.wan[0].rtt_ms = 200;  // dc0 to dc1
  auto job = study(60, 60, 2);
  job.pipeline.data_parallel = 2;
  const auto orders = what_if_orders(c, idle_index{c}, job);
  REQUIRE(!orders.empty());
  CHECK(orders[0].row.throughput >= orders.back().row.throughput);
  // As fast, the cheaper one comes first.
  for (std::size_t i = 1; i < orders.size(); ++i)
    if (orders[i].row.samples_per_s == orders[i - 1].row.samples_per_s)
      CHECK(orders[i].cost_per_batch >= orders[i - 1].cost_per_batch);
  for (const auto& x : orders) {
    CHECK(x.order.size() == x.row.partitions.size());
    CHECK(x.cost_per_batch == Approx(x.row.cost_per_hour / 3600 / x.row.throughput));
    CHECK(std::accumulate(x.row.partitions.begin(), x.row.partitions.end(), 0u) == 60);
  }
  selection_options o;
  o.order = {2, 0};
  const auto s = selected(c, job, o);
  CHECK(s.datacenters[0].datacenter == 2);
  CHECK(s.datacenters[0].price_per_hour == 1);
  CHECK(s.rows[0].cost_per_hour == 120);
}

TEST_CASE("a slow type is left out when a faster one does better alone") {
  auto c = datacenters({8, 2});
  c.gpus.push_back(sample::gpu("slow", 80, 20, 1));
  for (auto& n : c.nodes)
    if (n.datacenter == 1) n.gpu = 1;
  auto job = sample::job(sample::gpt2_350m, 8);
  job.pipeline.microbatches = 4;
  const auto s = selected(c, job);
  CHECK(s.datacenters.size() == 1);
  CHECK(s.min_flops_s == Approx(312e12 * 0.45));
}

TEST_CASE("a placement keeps the job's batch, and follows the request or says why not") {
  const auto c = datacenters({4, 4, 4});
  idle_index idle{c};
  auto job = sample::job(sample::gpt("m", 1024, 12, 16, 512), 16);
  job.pipeline = {6, 2, 4, 2, 0, 0};
  const auto wished = placement_of(c, idle, job, true);
  REQUIRE(wished);
  CHECK(wished->chosen()->data_parallel == 2);
  CHECK(wished->chosen()->partitions == std::vector<std::uint32_t>{2, 2, 2});
  CHECK(wished->chosen()->microbatches == 4);
  CHECK(wished->chosen()->rows == 2);
  job.pipeline.stages = 25;
  CHECK(placement_of(c, idle, job, true).error().text == can_split(job.model, 25).error().text);
  job.pipeline.stages = 6;
  for (node_index n = 0; n < 7; ++n) idle.set_idle(n, 0);
  const auto fewer = placement_of(c, idle, job, true);
  REQUIRE_FALSE(fewer);
  CHECK(troupe::test::has_facts(fewer.error().text, {"6 stages", "5"}));
  const auto rest = placement_of(c, idle, job, false);
  REQUIRE(rest);
  CHECK(rest->chosen()->gpus <= 5);
  for (node_index n = 7; n < 11; ++n) idle.set_idle(n, 0);
  CHECK(placement_of(c, idle, job, false)->chosen()->gpus == 1);
}

TEST_CASE("a placement takes the fastest rows, then the fewest GPUs, or the cheapest") {
  const auto c = datacenters({6, 3});
  const idle_index idle{c};
  auto job = sample::job(sample::gpt2_small, 24);
  const auto best = [&](const char* objective) {
    job.objective = objective;
    return *placement_of(c, idle, job, false)->chosen();
  };
  const auto fastest = best("fastest"), efficient = best("efficient"), cheapest = best("cheapest");
  CHECK(efficient.samples_per_s >= 0.98 * fastest.samples_per_s);
  CHECK(efficient.gpus <= fastest.gpus);
  CHECK(cheapest.cost_per_hour / cheapest.samples_per_s <=
        efficient.cost_per_hour / efficient.samples_per_s * (1 + 1e-9));
}

TEST_CASE("a job that no GPU holds, or that no division fits, is refused with a sentence") {
  auto c = datacenters({4});
  c.gpus[0].memory_gb = 1;
  const auto text = [&](const job_spec& job) {
    const auto made = select_datacenters(c, idle_index{c}, job);
    return made ? "" : made.error().text;
  };
  auto big = sample::job(sample::gpt2_7b, 2);
  CHECK(text(big).find("a stage needs ") == 0);
  CHECK(troupe::test::has_facts(text(study(5, 2, 2)), {"5 stages", "4 GPUs", "1 datacenters"}));
  auto odd = sample::job(sample::gpt("t", 64, 2, 4, 16, 256), 7);
  odd.pipeline.microbatches = 2;
  CHECK(troupe::test::has_facts(text(odd), {"batch 7"}));
}
