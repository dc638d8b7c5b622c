// Measured times of a program's layers: the sums that stages take, the cuts that they give, and
// the plans of every planner.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "messages/base/random.hpp"
#include "messages/base/time.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/crius/cell_tuner.hpp"
#include "planners/devices/profile.hpp"
#include "planners/espresso/cheapest_plan.hpp"
#include "planners/plans/fits.hpp"
#include "planners/policy/adaptive_plan.hpp"
#include "planners/sample.hpp"
#include "planners/search/job_space/find_pipelines.hpp"
#include "planners/search/stage_table.hpp"

using namespace troupe;
using namespace troupe::planners;
using Catch::Contains;

namespace {

part_times seconds(double s) {
  return {s, 2 * s, 4 * s, 8 * s, 16 * s, 0, 0};
}

/// Layers of equal FLOPs, which all send 1000 bytes of each sample.
model layers(std::size_t n) {
  model m;
  m.name = "its";
  m.family = "layers";
  m.tied_head = false;
  m.layers = static_cast<std::uint32_t>(n);
  for (std::size_t i = 0; i < n; ++i)
    m.operators.push_back({std::to_string(i) + "-Layer", 1e9, 1e6, 1000, 4000, 8e6, false});
  return m;
}

/// At 1 and 3 rows; each layer takes `forward_s` of a row.
device_profile measured(const model& m, const std::vector<double>& forward_s) {
  device_profile p;
  p.device = "a made-up device";
  p.kind = "cpu";
  p.date = "2026-11-28T12:00:00Z";
  layers_profile entry{m.name, layers_key(m), 1, 0, {}};
  for (const std::uint32_t rows : {1, 3}) {
    layers_point point{rows, {}, seconds(0.5 * rows), {}, seconds(0.25)};
    point.tied.update_s = 7, point.tied.gradients_s = 3;
    for (std::size_t i = 0; i < m.operators.size(); ++i)
      point.layers.push_back({m.operators[i].name, seconds(rows * forward_s[i])});
    entry.points.push_back(std::move(point));
  }
  p.programs = {entry};
  return p;
}

job_spec program(const model& m, std::uint32_t stages = 0) {
  auto j = sample::job(m, 8);
  j.train.emplace();
  j.train->device = "cpu";
  j.train->program.emplace().file = "/its.py";
  j.pipeline.stages = stages;
  j.pipeline.data_parallel = 1;
  j.pipeline.microbatches = 4;
  return j;
}

gpu_type with_profile(const device_profile& p) {
  auto gpu = sample::a100_40;
  gpu.profile = p;
  return gpu;
}

}  // namespace

TEST_CASE("a stage takes the sum of its layers' measured times and of what every stage takes") {
  const auto m = layers(4);
  const auto p = measured(m, {1, 10, 100, 1000});
  const auto& entry = p.programs[0];
  const auto middle = put_together(entry, m, {1, 2}, 3);
  CHECK(middle.forward_s == Approx(3 * 110 + 0.25));
  CHECK(middle.recompute_s == Approx(2 * (3 * 110 + 0.25)));
  CHECK(middle.backward_s == Approx(4 * (3 * 110 + 0.25)));
  CHECK(middle.update_s == Approx(8 * (3 * 110 + 0.25)));
  CHECK(middle.gradients_s == Approx(16 * (3 * 110 + 0.25)));
  CHECK(put_together(entry, m, {1, 2}, 2).forward_s == Approx(2 * 110 + 0.25));
  CHECK(put_together(entry, m, {1, 2, true}, 3).forward_s == middle.recompute_s);
  CHECK(put_together(entry, m, {1, 2, true}, 3).recompute_s == 0);
  // The last of several has the loss, keeps its activations, and updates a tied parameter again.
  const auto last = put_together(entry, m, {3, 1}, 1);
  CHECK(last.forward_s == Approx(2 * (1000 + 0.5 + 0.25)));
  CHECK(last.recompute_s == 0);
  CHECK(last.update_s == Approx(8 * 1000.75 + 7));
  CHECK(last.gradients_s == Approx(16 * 1000.75 + 3));
  CHECK(put_together(entry, m, {0, 4}, 1).update_s == Approx(8 * 1111.75));
  CHECK_FALSE(put_together(entry, m, {0, 4}, 2).extrapolated);
  CHECK(put_together(entry, m, {0, 4}, 5).extrapolated);
}

TEST_CASE("tensors that enter or leave a stage take their time, in both directions") {
  auto m = layers(3);
  m.operators[1].output_bytes = 3000;
  auto p = measured(m, {1, 1, 1});
  const auto free = put_together(p.programs[0], m, {1, 1}, 2);
  p.programs[0].tensors_gbytes_s = 1e-6;  // 1000 bytes a second
  const auto copied = [&](std::uint32_t first, std::uint32_t count) {
    return put_together(p.programs[0], m, {first, count, true}, 2);
  };
  CHECK(copied(1, 1).backward_s == Approx(free.backward_s + 2 * (1 + 3)));
  CHECK(copied(1, 1).forward_s == Approx(free.recompute_s + 2 * (1 + 3)));
  CHECK(copied(0, 1).backward_s == Approx(free.backward_s + 2 * 1));
  CHECK(copied(2, 1).backward_s == Approx(free.backward_s + 2 * 4 * 0.5 + 2 * 3));
  CHECK(copied(0, 3).backward_s == Approx(4 * (6 + 1.25)));
}

TEST_CASE("a profile has a program's layers only if all of them are the same") {
  const auto m = layers(3);
  const auto p = measured(m, {1, 1, 1});
  CHECK(covers(p, m));
  const auto refusal = [&](const model& other) {
    const auto r = covers(p, other);
    REQUIRE_FALSE(r);
    return r.error().text;
  };
  auto other = m;
  other.operators[2].flops += 1;
  CHECK_THAT(refusal(other), Contains("has 1 programs, none with the layers of 'its'") &&
                                 Contains("troupe profile --program"));
  CHECK(layers_key(other) != layers_key(m));
  for (const auto part : {&model_operator::parameters, &model_operator::output_bytes,
                          &model_operator::kept_bytes, &model_operator::state_bytes}) {
    other = m;
    other.operators[0].*part += 1;
    CHECK(layers_key(other) != layers_key(m));
  }
  CHECK(layers_key(layers(4)) != layers_key(m));
  CHECK_THAT(refusal(sample::gpt2_small), Contains("no model with the dimensions of"));
  auto renamed = m;
  renamed.name = "another file";
  CHECK(covers(p, renamed));
}

TEST_CASE("estimates of a program use its profile: its own first, and of as many threads") {
  const auto m = layers(3);
  const auto gpu = with_profile(measured(m, {1, 2, 4}));
  auto job = program(m, 2);
  CHECK(profile_of(job, gpu) == &*gpu.profile);
  CHECK(source_of(job, gpu, 3) == "the profile of a made-up device, 2026-11-28T12:00:00Z");
  CHECK_THAT(source_of(job, gpu, 4), Contains("extrapolated beyond the measured rows (4)"));
  const auto parts = split_model(job, 2, {}, gpu);
  const auto first = costs_of_stage(job, gpu, parts, 0, 3);
  CHECK(first.backward_s == Approx(4 * (3 * 3 + 0.25)));
  CHECK(first.activation_bytes == 3 * 1000);
  const auto last = costs_of_stage(job, gpu, parts, 1, 3);
  CHECK(last.forward_s == Approx(2 * (3 * 4 + 1.5 + 0.25)));
  CHECK(profiled_iteration_of(job, gpu, 4, 3, 1).s ==
        Approx(4 * 6 * (3 * 7 + 1.5 + 0.25) + 8 * (3 * 7 + 1.5 + 0.25)));
  CHECK(profiled_flops_s(*gpu.profile, m) == Approx(3 * 3e9 * 3 / (6 * (3 * 7 + 1.5 + 0.25))));
  job.train->program->threads = 2;
  CHECK(profile_of(job, gpu) == nullptr);
  CHECK(costs_of_stage(job, gpu, parts, 0, 3).backward_s != first.backward_s);
  job.train->program->threads = 1;
  job.train->profile = {measured(m, {100, 100, 100})};
  CHECK(profile_of(job, gpu) == &job.train->profile[0]);
}

namespace {

/// The smallest time of the slowest stage, by every cut that keeps glued layers together. The last
/// stage takes this share of its time.
double best_slowest(const model& m, const std::vector<double>& weights, std::uint32_t stages,
                    double last_share) {
  const auto n = m.operators.size();
  double best = never;
  for (std::uint32_t cuts = 0; cuts < 1U << (n - 1); ++cuts) {
    double sum = weights[0], slowest = 0;
    std::uint32_t parts = 1;
    bool allowed = true;
    for (std::size_t i = 1; i < n; ++i) {
      if (cuts >> (i - 1) & 1) {
        allowed &= !m.operators[i].glued;
        ++parts;
        slowest = std::max(slowest, sum);
        sum = 0;
      }
      sum += weights[i];
    }
    slowest = std::max(slowest, sum * last_share);
    if (allowed && parts == stages) best = std::min(best, slowest);
  }
  return best;
}

}  // namespace

TEST_CASE(
    "a program is cut so that its slowest stage by measured time is the fastest of all cuts") {
  random_source random{11};
  for (int round = 0; round < 300; ++round) {
    auto m = layers(2 + random.below(8));
    std::vector<double> forward_s;
    std::uint32_t links = 0;
    for (std::size_t i = 0; i < m.operators.size(); ++i) {
      forward_s.push_back(1 + static_cast<double>(random.below(50)));
      m.operators[i].flops = 1e9 * (1 + static_cast<double>(random.below(50)));  // otherwise
      m.operators[i].glued = i > 0 && random.chance(0.25);
      links += !m.operators[i].glued;
    }
    const auto gpu = with_profile(measured(m, forward_s));
    const auto stages = 1 + static_cast<std::uint32_t>(random.below(links));
    auto job = program(m, stages);
    job.pipeline.recompute = random.chance(0.5);
    const auto weights = layer_weights(*gpu.profile, m, 1, job.pipeline.recompute);
    const double last = job.pipeline.recompute ? 6.0 / 7 : 1;
    const auto parts = split_model(job, stages, {}, gpu);
    REQUIRE(parts.size() == stages);
    double slowest = 0;
    for (const auto& p : parts) {
      double sum = 0;
      for (auto i = p.first; i < p.first + p.count; ++i) sum += weights[i];
      slowest = std::max(slowest, sum * (p.last ? last : 1));
      CHECK_FALSE(is_glued(m, p.first));
    }
    CHECK(slowest == Approx(best_slowest(m, weights, stages, last)).epsilon(1e-9));
  }
}

TEST_CASE("layers of equal FLOPs and unequal times are cut by their times") {
  const auto m = layers(6);
  const auto gpu = with_profile(measured(m, {8, 1, 1, 1, 1, 3.5}));
  auto job = program(m, 2);
  job.pipeline.recompute = false;
  const auto by_flops = split_model(job, 2);
  CHECK(by_flops[0].count == 3);
  const auto by_time = split_model(job, 2, {}, gpu);
  CHECK(by_time[0].count == 1);
  const auto slowest = [&](const std::vector<stage_part>& parts) {
    double s = 0;
    for (std::uint32_t i = 0; i < 2; ++i) {
      const auto k = costs_of_stage(job, gpu, parts, i, 1);
      s = std::max(s, k.forward_s + k.backward_s);
    }
    return s;
  };
  CHECK(slowest(by_flops) > 1.2 * slowest(by_time));
}

// -- planners

namespace {

/// A tied first and last layer, and two pairs of glued ones among eight.
model eight_layers() {
  auto m = layers(8);
  m.tied_head = true;
  m.tied_parameters = 5e5;
  m.operators[3].glued = m.operators[6].glued = true;
  m.operators[7].output_bytes = 0;
  return m;
}

cluster two_nodes(const gpu_type& gpu) {
  cluster c;
  sample::add_nodes(c, gpu, 2, 2);
  return c;
}

void check_plan(const cluster& c, const job_spec& job, const plan& how) {
  const auto parts = parts_of(job, how.stages);
  REQUIRE(parts);
  CHECK(how.tensor_parallel == 1);
  for (const auto& s : how.stages) {
    CHECK_FALSE(is_glued(job.model, s.first));
    CHECK(s.bytes_per_gpu > 0);
    CHECK(s.bytes_per_gpu < c.gpus[0].memory_bytes());
  }
}

}  // namespace

TEST_CASE("Algorithm 1 places a program by its measured times, with its cut and memory") {
  const auto m = eight_layers();
  const auto c = two_nodes(with_profile(measured(m, {21, 1, 1, 1, 1, 1, 1, 1})));
  const auto job = program(m, 2);
  const auto placed = place_pipelines(c, idle_index{c}, job, true);
  REQUIRE(placed);
  check_plan(c, job, placed->how);
  REQUIRE(placed->how.stages.size() == 2);
  CHECK(placed->how.stages[0].count == 1);
  const auto e = evaluate(c, job, placed->how, placed->where, fidelity::simulated);
  REQUIRE(e);
  // The first stage's forward, recompute and backward of four micro-batches of two rows, its
  // gradients, which have a tied part, and its update.
  CHECK(e->iteration_s ==
        Approx(4 * 7 * (2 * 21 + 0.25) + (8 + 16) * (3 * 21 + 0.25)).epsilon(0.01));
}

TEST_CASE("no GPU holds a stage that cuts glued layers apart") {
  const auto m = eight_layers();  // layers 3 and 6 are glued to those before them
  const auto c = two_nodes(sample::a100_40);
  const stage_table table{c, program(m), 1, 2, {{0, {}}}};
  for (std::uint32_t first = 0; first < 8; ++first) {
    const bool cuts = first == 3 || first == 6;
    CHECK((table.last(0, first).bytes == never) == cuts);
    for (std::uint32_t end = first + 1; end < 8; ++end) {
      const auto& stage = table.middle(0, first, end - first);
      CHECK((stage.bytes == never) == (cuts || end == 3 || end == 6));
      CHECK(stage.bytes_each >= 0);
    }
  }
}

TEST_CASE("a searched plan does not cut glued layers apart") {
  const auto m = eight_layers();
  for (const bool profiled : {false, true}) {
    const auto gpu =
        profiled ? with_profile(measured(m, {4, 1, 3, 1, 1, 2, 1, 1})) : sample::a100_40;
    const auto c = two_nodes(gpu);
    auto job = program(m);
    job.pipeline = {};
    job.objective = "fastest";
    planning_budget budget;
    const auto found = find_pipelines(c, idle_index{c}, job, widest_space(), 5, budget);
    REQUIRE(found);
    for (const auto& p : found->plans) check_plan(c, job, p.how);
  }
}

TEST_CASE("Espresso plans a program's layers") {
  const auto m = eight_layers();
  const auto c = two_nodes(with_profile(measured(m, {4, 1, 3, 1, 1, 2, 1, 1})));
  auto job = program(m);
  job.pipeline = {};
  for (const auto placer : {provision_placer::exact, provision_placer::greedy}) {
    planning_budget budget;
    const auto found = cheapest_plan(c, idle_index{c}, job, budget, {.placer = placer});
    INFO(found.why.text);
    REQUIRE(found.plan);
    check_plan(c, job, found.plan->how);
  }
}

TEST_CASE("Crius' Cells have stages of whole layers, by their measured times") {
  const auto m = eight_layers();
  const auto c = two_nodes(with_profile(measured(m, {21, 1, 1, 1, 1, 1, 1, 1})));
  auto job = program(m);
  job.pipeline = {};
  job.global_batch = 64;
  job.request.gpus = 2;
  const auto cells = best_cells(c, pools_of(c, idle_index{c}), job);
  REQUIRE_FALSE(cells.empty());
  std::uint32_t deep = 0;
  for (const auto& x : cells)
    if (x.tuned) {
      check_plan(c, job, *x.tuned);
      deep = std::max(deep, x.tuned->pipeline_parallel);
    }
  for (const auto& x : cells_of(c, pools_of(c, idle_index{c}), job)) {
    for (const auto& s : x.stages.stages) CHECK_FALSE(is_glued(m, s.first));
    if (x.gpus == 2 && x.stages.stages.size() == 2) CHECK(x.stages.stages[0].count == 1);
  }
}

TEST_CASE("the stages of a Cell are the best of those that cut no infinite edge") {
  std::vector<chain_operator> chain(4, {1, 1});
  chain[1].output_bytes = never;
  const auto cut = determine_stages(chain, 2, 2);
  REQUIRE(cut.stages.size() == 2);
  CHECK(cut.stages[0].count != 2);
  CHECK(cut.cut_bytes == 1);
}

TEST_CASE("an even plan of a program keeps glued layers together") {
  const auto m = eight_layers();
  const auto c = two_nodes(sample::a100_40);
  auto job = program(m);
  job.pipeline = {};
  const auto pools = pools_of(c, idle_index{c});
  for (const std::uint32_t stages : {1, 2, 4}) {
    const auto how = even_plan(c, pools.front(), job, {1, stages, 1});
    REQUIRE(how);
    check_plan(c, job, *how);
  }
  CHECK_FALSE(even_plan(c, pools.front(), job, {1, 2, 2}));
}

TEST_CASE("the last of several stages has a tied parameter and its optimizer's state once more") {
  const auto m = eight_layers();
  const auto job = program(m, 2);
  const auto parts = split_model(job, 2);
  CHECK(parts[0].parameters + parts[1].parameters == 8e6 + 5e5);
  CHECK(parts[0].state_bytes + parts[1].state_bytes == 8 * 8e6 + 8 * 5e5);
  const auto alone = split_model(program(m, 1), 1);
  CHECK(alone[0].parameters == 8e6);
  const auto last = costs_of_stage(job, sample::a100_40, parts, 1, 1);
  CHECK(last.tied_bytes == 4 * 500'000);
}

TEST_CASE("a plan that cuts glued layers apart is refused by their numbers") {
  const auto job = program(eight_layers(), 2);
  const auto parts = parts_of(job, {{0, 3, 1, {}, 0}, {3, 5, 1, {}, 0}});
  REQUIRE_FALSE(parts);
  CHECK_THAT(parts.error().text, Contains("stage 1 of the plan begins with layer 3 of 'its'"));
}
