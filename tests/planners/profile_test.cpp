#include <catch2/catch.hpp>

#include "planners/cost_model.hpp"
#include "planners/pipeline_costs.hpp"
#include "planners/pipeline_placement.hpp"
#include "planners/profile.hpp"
#include "sample.hpp"

using namespace troupe;
using namespace troupe::planners;
using Catch::Contains;

namespace {

part_times times(double s) {
  return {s, 2 * s, 4 * s, 8 * s, 16 * s, 0, 0};
}

/// Per row: attention 1, MLP 10, embedding 100, head 1000, both ends 10,000 units forward.
profile_point point(std::uint32_t sequence, std::uint32_t rows, double unit) {
  const double s = unit * rows;
  return {sequence, rows,           times(s),        times(10 * s),
          {},       times(100 * s), times(1000 * s), times(10'000 * s)};
}

device_profile made_up() {
  device_profile p;
  p.device = "a made-up device";
  p.kind = "cuda";
  p.date = "2026-11-21T18:00:00Z";
  const auto& m = sample::gpt2_small;
  p.models.push_back({"gpt2", m.hidden, m.heads, 4 * m.hidden, m.vocabulary, true, {}});
  for (const std::uint32_t rows : {2, 4, 8})
    p.models[0].points.push_back(point(1024, rows, rows == 8 ? 2e-6 : 1e-6));
  return p;
}

job_spec training_job(std::uint32_t batch, std::uint32_t stages, std::uint32_t microbatches) {
  auto j = sample::job(sample::gpt2_small, batch);
  j.train.emplace();
  j.pipeline.stages = stages;
  j.pipeline.data_parallel = 1;
  j.pipeline.microbatches = microbatches;
  return j;
}

}  // namespace

TEST_CASE("a stage takes what its parts were measured to take") {
  const auto p = made_up();
  const auto& m = p.models[0];
  const auto middle = put_together(m, 1024, {3, 2, false, false}, 2);
  CHECK(middle.forward_s == Approx(2 * 23e-6));
  CHECK(middle.recompute_s == Approx(2 * 46e-6));
  CHECK(middle.backward_s == Approx(2 * 92e-6));
  CHECK(middle.update_s == Approx(2 * 184e-6));
  CHECK(middle.gradients_s == Approx(2 * 368e-6));
  CHECK_FALSE(middle.extrapolated);
  const auto first = put_together(m, 1024, {1, 0, true, false}, 2);
  CHECK(first.forward_s == Approx(2 * 101e-6));
  // The last stage keeps what its forward makes: it takes as long as a recompute, and needs none.
  const auto last = put_together(m, 1024, {0, 1, false, true}, 2);
  CHECK(last.forward_s == Approx(2 * 2 * 1010e-6));
  CHECK(last.recompute_s == 0);
  CHECK(put_together(m, 1024, {1, 1, true, true}, 2).backward_s == Approx(2 * 4 * 10'011e-6));
  // So does every stage of a pipeline that never recomputes.
  const auto keeps = put_together(m, 1024, {3, 2, false, false, true}, 2);
  CHECK(keeps.forward_s == Approx(2 * 46e-6));
  CHECK(keeps.recompute_s == 0);
  CHECK(keeps.backward_s == middle.backward_s);
}

TEST_CASE("between rows that were measured a line joins them; beyond them it is marked") {
  const auto p = made_up();
  const auto& m = p.models[0];
  const stage_make one{1, 0, false, false};
  CHECK(put_together(m, 1024, one, 3).forward_s == Approx(3e-6));
  const auto between = put_together(m, 1024, one, 6);  // 4e-6 at 4 rows, 16e-6 at 8
  CHECK(between.forward_s == Approx(10e-6));
  CHECK_FALSE(between.extrapolated);
  const auto above = put_together(m, 1024, one, 10);
  CHECK(above.forward_s == Approx(22e-6));
  CHECK(above.extrapolated);
  CHECK(above.update_s == Approx(8 * 16e-6));  // as at 8
  const auto below = put_together(m, 1024, one, 1);
  CHECK(below.forward_s == Approx(1e-6));
  CHECK(below.extrapolated);
  auto alone = m;
  alone.points.resize(1);
  CHECK(put_together(alone, 1024, one, 2).extrapolated == false);
  CHECK(put_together(alone, 1024, one, 6).forward_s == Approx(6e-6));
  CHECK(put_together(alone, 1024, one, 6).extrapolated);
}

TEST_CASE("a profile says which models and sequences it does not know") {
  const auto p = made_up();
  CHECK(sizes_of(p, sample::gpt2_small));
  auto deep = sample::gpt2_small;
  deep.layers = 100;
  CHECK(sizes_of(p, deep));
  CHECK_THAT(sizes_of(p, sample::gpt2_350m).error().text,
             Contains("no model of the sizes of 'gpt2-350m' (hidden 1024, 16 heads, MLP 4096"));
  auto wide = sample::gpt2_small;
  wide.sequence = 2048;
  CHECK_THAT(sizes_of(p, wide).error().text, Contains("not with sequences of 2048 tokens"));
}

TEST_CASE("a profile is used for the kind of device that it is of, and the job's own comes first") {
  auto gpu = sample::a100_40;
  gpu.profile = made_up();
  auto job = training_job(8, 1, 4);
  CHECK(profile_of(job, gpu) == &*gpu.profile);
  job.train->device = "cpu";
  CHECK(profile_of(job, gpu) == nullptr);
  job.train->device = "cuda";
  CHECK(profile_of(job, gpu) == &*gpu.profile);
  CHECK(source_of(job, gpu, 2) == "the profile of a made-up device, 2026-11-21T18:00:00Z");
  CHECK_THAT(source_of(job, gpu, 16), Contains("beyond the rows that were measured (16)"));
  job.train->profile = {made_up()};
  CHECK(profile_of(job, gpu) == &job.train->profile[0]);
  CHECK(profile_of(sample::job(sample::gpt2_350m, 4), gpu) == nullptr);
  CHECK(source_of(sample::job(sample::gpt2_350m, 4), gpu, 1) == "the cost model");
}

TEST_CASE("stages of a pipeline take the profile's times, with the cost model's bytes") {
  auto gpu = sample::a100_40;
  const auto job = training_job(8, 2, 4);
  const auto parts = split_model(job, 2);
  const auto guessed = costs_of_stage(job, gpu, parts, 0, 2);
  gpu.profile = made_up();
  const auto k = costs_of_stage(job, gpu, parts, 0, 2);
  const auto attentions = (parts[0].count + 1) / 2, mlps = parts[0].count / 2;
  CHECK(k.forward_s == Approx(2e-6 * (attentions + 10 * mlps + 100)));
  CHECK(k.activation_bytes == 2 * guessed.activation_bytes);  // the engine sends single precision
  const auto last = costs_of_stage(job, gpu, parts, 1, 2);
  CHECK(last.backward_s == Approx(4 * 2e-6 * (12 - attentions + 10 * (12 - mlps) + 1000)));
}

TEST_CASE("the estimator goes by a profile: pipelines and their updates, and other jobs") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 1);
  c.gpus[0].profile = made_up();
  const auto row = 12 * 11e-6 + 10'000e-6;  // of the whole model
  const auto job = training_job(8, 1, 4);
  const auto plans = plans_for(c, job);
  REQUIRE(plans);
  const double one_s = 4 * 2 * (2 + 4) * row + 2 * 8 * row;
  CHECK(8 / plans->front().samples_per_s == Approx(one_s));
  plan how;
  auto simple = sample::job(sample::gpt2_small, 8);
  simple.microbatches = 4;
  const auto e = estimate_iteration(c, simple, how, {{0, 1}});
  CHECK(e.iteration_s == Approx(one_s));
  c.gpus[0].profile.reset();
  CHECK(estimate_iteration(c, simple, how, {{0, 1}}).iteration_s < e.iteration_s);
}
