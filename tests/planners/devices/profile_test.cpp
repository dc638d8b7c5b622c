#include <catch2/catch.hpp>

#include "planners/cost/measured_memory.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/policy/placement.hpp"
#include "planners/sample.hpp"

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

TEST_CASE("a stage takes the sum of its parts' measured times") {
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

TEST_CASE("between measured rows times are interpolated, and beyond them marked as extrapolated") {
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
  const auto unknown = put_together(m, 17, one, 2);  // no such sequence
  CHECK(unknown.forward_s == 0);
  CHECK_FALSE(unknown.extrapolated);
  auto alone = m;
  alone.points.resize(1);
  CHECK(put_together(alone, 1024, one, 2).extrapolated == false);
  CHECK(put_together(alone, 1024, one, 6).forward_s == Approx(6e-6));
  CHECK(put_together(alone, 1024, one, 6).extrapolated);
}

TEST_CASE(
    "a shared stage takes its measured times, else its part of one GPU's and the all-reduces") {
  auto gpu = sample::a100_40;
  gpu.profile = made_up();
  auto job = training_job(8, 2, 4);
  const auto parts_of_one = split_model(job, 2);
  const auto costs = [&](std::uint32_t tensor_parallel) {
    auto parts = parts_of_one;
    job.pipeline.tensor_parallel = tensor_parallel;
    for (auto& p : parts) p.tensor_parallel = tensor_parallel;
    return costs_of_stage(job, gpu, parts, 1, 2, troupe::link{"nvlink", 100, 1});
  };
  const auto alone = costs(1);
  const auto split = costs(2);
  CHECK(split.update_s == Approx(alone.update_s / 2));
  CHECK(split.backward_s > alone.backward_s / 2);
  CHECK_THAT(source_of(job, gpu, 2), Contains("all-reduce by the cost model"));
  auto shared = point(1024, 2, 0.7e-6);
  shared.tensor_parallel = 2;
  gpu.profile->models[0].points.push_back(shared);
  const auto measured = costs(2);
  CHECK(measured.backward_s == Approx(0.7 * alone.backward_s));
  CHECK(measured.update_s == Approx(0.7 * alone.update_s));
  CHECK_THAT(source_of(job, gpu, 2), Contains("; stages on 2 GPUs as measured by it"));
  CHECK(costs(1) == alone);
  CHECK(costs(4).update_s == Approx(alone.update_s / 4));  // not measured
}

TEST_CASE("a profile names models and sequences that it does not cover") {
  const auto p = made_up();
  CHECK(sizes_of(p, sample::gpt2_small));
  auto deep = sample::gpt2_small;
  deep.layers = 100;
  CHECK(sizes_of(p, deep));
  CHECK_THAT(sizes_of(p, sample::gpt2_350m).error().text,
             Contains("'gpt2-350m' (hidden 1024, 16 heads, MLP 4096"));
  auto wide = sample::gpt2_small;
  wide.sequence = 2048;
  CHECK_THAT(sizes_of(p, wide).error().text, Contains("not with sequences of 2048 tokens"));
}

TEST_CASE("a profile applies to its own kind of device, and the job's own profile comes first") {
  auto gpu = sample::a100_40;
  gpu.profile = made_up();
  auto job = training_job(8, 1, 4);
  CHECK(profile_of(job, gpu) == &*gpu.profile);
  job.train->device = "cpu";
  CHECK(profile_of(job, gpu) == nullptr);
  job.train->device = "cuda";
  CHECK(profile_of(job, gpu) == &*gpu.profile);
  CHECK(source_of(job, gpu, 2) == "the profile of a made-up device, 2026-11-21T18:00:00Z");
  CHECK_THAT(source_of(job, gpu, 16), Contains("extrapolated beyond the measured rows (16)"));
  job.train->profile = {made_up()};
  CHECK(profile_of(job, gpu) == &job.train->profile[0]);
  CHECK(profile_of(sample::job(sample::gpt2_350m, 4), gpu) == nullptr);
  CHECK(source_of(sample::job(sample::gpt2_350m, 4), gpu, 1) == "the cost model");
}

TEST_CASE("a pipeline's stages take the profile's times and the cost model's bytes") {
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

TEST_CASE("the estimator uses a profile for pipelines, their updates and other jobs") {
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

TEST_CASE("an all-reduce takes its measured time, and is interpolated over sizes and GPU counts") {
  const std::vector<all_reduce_rate> all{{2, 200, 10}, {4, 150, 25}, {8, 160, 60}};
  const double large = large_sum_bytes, small = small_sum_bytes;
  for (const auto& r : all) {
    CHECK(sum_s(all, {}, r.devices, large) == Approx(large / (r.gbytes_s * 1e9)));
    CHECK(sum_s(all, {}, r.devices, small) == Approx(r.small_us * 1e-6));
  }
  CHECK(sum_s(all, {}, 1, large) == 0);
  CHECK(sum_s(all, {}, 2, 0) == 0);
  CHECK(sum_s(all, {}, 2, 4) == Approx(10e-6));  // no sum is shorter than a small one
  for (std::uint32_t t = 2; t <= 16; ++t)
    for (double bytes = 1; bytes < 4 * large; bytes *= 3)
      CHECK(sum_s(all, {}, t, bytes) <= sum_s(all, {}, t, 3 * bytes));
  // Between 2 and 4 more GPUs never take less, between 4 and 8 they never take more of large ones.
  for (const double bytes : {small, 1e6, large, 3e9})
    CHECK((sum_s(all, {}, 2, bytes) < sum_s(all, {}, 3, bytes) &&
           sum_s(all, {}, 3, bytes) < sum_s(all, {}, 4, bytes)));
  for (std::uint32_t t = 4; t < 8; ++t)
    CHECK((sum_s(all, {}, t, large) > sum_s(all, {}, t + 1, large) &&
           sum_s(all, {}, t, small) < sum_s(all, {}, t + 1, small)));
  // Beyond what was measured, as a ring has it: 14/8 to 30/16 of the bytes, 14 to 30 steps.
  CHECK(sum_s(all, {}, 16, large) == Approx(large / 160e9 * 15 / 14).epsilon(0.05));
  CHECK(sum_s(all, {}, 16, small) == Approx(60e-6 * 15 / 7));
  const std::vector<all_reduce_rate> many{{8, 160, 70}};
  CHECK(sum_s(many, {}, 2, large) == Approx(large / 160e9 * 4 / 7).epsilon(0.05));
  CHECK(sum_s(many, {}, 2, small) == Approx(10e-6));
  // Noise: a large sum that was quicker than a small one.
  CHECK(sum_s({{2, 1e6, 1000}}, {}, 2, large) == Approx(1e-3));
}

TEST_CASE("an all-reduce without measurements is a ring over the node's link") {
  const auto inside = troupe::link{"pcie", 200, 5};
  CHECK(sum_s({}, inside, 4, 1e9) == Approx(1.5 * 1e9 / 25e9 + 6 * 5e-6));
  CHECK(sum_s({}, {}, 4, 1e9) == 0);
  // A ring that was measured is the same ring.
  const auto ring = [&](std::uint32_t t) {
    return all_reduce_rate{t, large_sum_bytes / sum_s({}, inside, t, large_sum_bytes) / 1e9,
                           1e6 * sum_s({}, inside, t, small_sum_bytes)};
  };
  for (std::uint32_t t = 2; t <= 8; ++t)
    CHECK(sum_s({ring(2), ring(8)}, inside, t, 30e6) ==
          Approx(sum_s({}, inside, t, 30e6)).epsilon(1e-3));
}

TEST_CASE("tensor-parallel sums use the job's or the type's profile, whatever models it has") {
  auto gpu = sample::a100_40;
  auto job = training_job(8, 1, 4);
  job.pipeline.tensor_parallel = 2;
  const auto parts = split_model(job, 1);
  const auto inside = troupe::link{"pcie", 200, 5};
  const double bytes = 2 * parts[0].output_bytes;  // two rows, in half precision
  const auto alone = costs_of_stage(job, gpu, parts, 0, 2);
  const auto ring = costs_of_stage(job, gpu, parts, 0, 2, inside);
  CHECK(ring.forward_s - alone.forward_s == Approx(parts[0].count * sum_s({}, inside, 2, bytes)));
  gpu.profile = made_up();
  gpu.profile->models.clear();
  CHECK(sums_profile_of(job, gpu) == nullptr);
  CHECK(costs_of_stage(job, gpu, parts, 0, 2, inside) == ring);
  const std::vector<all_reduce_rate> slow{{2, 1, 100}}, quick{{2, 300, 10}};
  gpu.profile->copies.all_reduces = slow;
  CHECK(sums_profile_of(job, gpu) == &*gpu.profile);
  const auto measured = costs_of_stage(job, gpu, parts, 0, 2, inside);
  CHECK(measured.forward_s - alone.forward_s == Approx(parts[0].count * sum_s(slow, {}, 2, bytes)));
  CHECK(measured.backward_s - alone.backward_s ==
        Approx(parts[0].count * sum_s(slow, {}, 2, bytes)));
  CHECK(source_of(job, gpu, 2) ==
        "the cost model; all-reduce among 2 GPUs as measured by the profile of a made-up device");
  // The job's own comes first; one of a single GPU has none.
  job.train->profile = {made_up()};
  CHECK(sums_profile_of(job, gpu) == &*gpu.profile);
  job.train->profile[0].copies.all_reduces = quick;
  CHECK(sums_profile_of(job, gpu) == &job.train->profile[0]);
  CHECK_THAT(source_of(job, gpu, 2), Contains("; all-reduce among 2 GPUs as measured by it"));
  job.train->device = "cpu";
  CHECK(sums_profile_of(job, gpu) == nullptr);
}

TEST_CASE("jobs without pipelines sum inside nodes at the slowest node's measured rate") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 2);
  sample::add_nodes(c, sample::a100_80, 1, 2);
  const auto job = sample::job(sample::gpt2_small, 8);
  plan how;
  how.tensor_parallel = 2;
  const auto ring = estimate_iteration(c, job, how, {{0, 2}});
  const auto measure = [&](gpu_index type, double gbytes_s, double small_us) {
    c.gpus[type].profile.emplace();
    c.gpus[type].profile->copies.all_reduces = {{2, gbytes_s, small_us}};
  };
  measure(0, 1, 100);
  const auto measured = estimate_iteration(c, job, how, {{0, 2}});
  CHECK(measured.compute_s == ring.compute_s);
  const auto shape = shape_of(job.model);
  CHECK(measured.tensor_s == Approx(2 * shape.reduces *
                                    sum_s(c.gpus[0].profile->copies.all_reduces, {}, 2,
                                          8 * shape.reduced_bytes / shape.reduces)));
  // Two nodes, of which the other's GPUs were not measured, or are slower, or quicker.
  how.data_parallel = 2;
  const allocation both{{0, 2}, {2, 2}};
  const auto mixed = [&] { return estimate_iteration(c, job, how, both).tensor_s; };
  const double by_ring = mixed();
  measure(1, 0.5, 100);
  const double slower = mixed();
  measure(1, 1000, 1);
  CHECK(slower > mixed());
  CHECK(mixed() == estimate_iteration(c, job, how, {{0, 2}, {1, 2}}).tensor_s);
  c.gpus[0].profile.reset();
  CHECK(mixed() == by_ring);
  // Gradients inside one node.
  how = {};
  how.data_parallel = 2;
  const auto gradients = [&] { return estimate_iteration(c, job, how, {{0, 2}}).data_s; };
  const double link_s = gradients();
  measure(0, 0.1, 100);
  CHECK(gradients() > 2 * link_s);
}

TEST_CASE("peers on one node exchange gradients at the measured rate, others over their link") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 2);
  auto job = training_job(8, 1, 4);
  job.pipeline.data_parallel = 2;
  job.train->device = "cuda";
  const auto how = sample::staged(job, 1, 2);
  const auto exchange_s = [&](const allocation& where) {
    return time_plan(c, job, how, where)->times.stages[0].exchange;
  };
  const allocation near{{0, 2}}, apart{{0, 1}, {1, 1}};
  const auto by_link = exchange_s(apart);
  CHECK(exchange_s(near) > 0);
  CHECK(exchange_s(near) < by_link);  // PCIe, and a network
  c.gpus[0].profile = made_up();
  c.gpus[0].profile->models.clear();
  c.gpus[0].profile->copies.all_reduces = {{2, 300, 10}};
  CHECK(exchange_s(apart) == by_link);
  const auto bytes = costs_of_stage(job, c.gpus[0], split_model(job, 1), 0, 1).gradient_bytes;
  CHECK(exchange_s(near) ==
        Approx(sum_s(c.gpus[0].profile->copies.all_reduces, {}, 2, static_cast<double>(bytes))));
  job.train->device = "sim";  // stages of the virtual world send each other what they sum
  CHECK(exchange_s(near) > 0);
}

TEST_CASE("jobs without stages take a profile's times of as many GPUs as share the model") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 4);
  c.gpus[0].profile = made_up();
  auto job = sample::job(sample::gpt2_small, 8);
  job.microbatches = 4;
  plan how;
  how.tensor_parallel = 2;
  const auto parts = estimate_iteration(c, job, how, {{0, 2}});
  CHECK(parts.tensor_s > 0);
  auto shared = point(1024, 2, 0.7e-6);
  shared.tensor_parallel = 2;
  c.gpus[0].profile->models[0].points.push_back(shared);
  const double row = 12 * 11e-6 + 10'000e-6;  // of the whole model
  const auto e = estimate_iteration(c, job, how, {{0, 2}});
  CHECK(e.iteration_s == Approx(0.7 * (4 * 2 * (2 + 4) * row + 2 * 8 * row)));
  CHECK(e.tensor_s == 0);  // the all-reduces are in these times
  CHECK(e.compute_s < 2 * parts.compute_s);
  // Whatever memory keys the job has.
  job.memory.emplace().precision = "tf32";
  CHECK(estimate_iteration(c, job, how, {{0, 2}}).iteration_s == e.iteration_s);
  how.tensor_parallel = 4;  // not measured
  CHECK(estimate_iteration(c, job, how, {{0, 4}}).tensor_s > 0);
}

TEST_CASE("jobs without stages sum and send four bytes a number in single precision") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 4, 2);
  for (auto& n : c.nodes) n.inter.gbps = n.intra.gbps = 0.01;  // nothing else counts
  auto job = sample::job(sample::gpt2_small, 8);
  job.memory.emplace();
  plan how;
  how.data_parallel = how.tensor_parallel = 2;
  const allocation where{{0, 2}, {1, 2}};
  const auto half = estimate_iteration(c, job, how, where);
  for (const auto* precision : {"fp32", "tf32"}) {
    job.memory->precision = precision;
    const auto single = estimate_iteration(c, job, how, where);
    CHECK(single.data_s == Approx(2 * half.data_s).epsilon(0.01));
    CHECK(single.tensor_s == Approx(2 * half.tensor_s).epsilon(0.01));
  }
  job.memory->precision = "bf16";
  CHECK(estimate_iteration(c, job, how, where).data_s == half.data_s);
}

namespace {

/// The made-up device with peaks of 1 GB of states and 0.25 GB a sample for each attention and MLP,
/// of 3 and 0.5 for the embedding and the head, and of both.
device_profile with_peaks() {
  auto p = made_up();
  for (auto& x : p.models[0].points) {
    const auto gb = [&](double states, double sample) {
      return static_cast<std::uint64_t>((states + sample * x.rows) * bytes_per_gb);
    };
    x.attention.peak_bytes = x.mlp.peak_bytes = gb(1, 0.25);
    x.embedding.peak_bytes = x.head.peak_bytes = gb(3, 0.5);
    x.ends.peak_bytes = gb(6, 1);
  }
  return p;
}

}  // namespace

TEST_CASE("a measured model needs the memory that was measured, with stages and without") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 4, 2);
  const auto job = sample::job(sample::gpt2_small, 8);
  const auto formula = program_bytes_on(c, {0}, job, 2, 1);
  CHECK(formula == program_bytes(job, 2, 1, 0));
  c.gpus[0].profile = with_peaks();
  CHECK(program_bytes_on(c, {0}, job, 2, 1) == Approx((24 + 24 * 0.25 * 4 + 6 + 4) * 1e9));
  CHECK(program_bytes_on(c, {0}, job, 2, 1, 2) == Approx((24 + 24 * 0.25 * 2 + 6 + 2) * 1e9));
  CHECK(program_bytes_on(c, {0}, job, 8, 1) == Approx((24 + 24 * 0.25 + 6 + 1) * 1e9));
  CHECK(program_bytes_on(c, {0}, job, 2, 2) == program_bytes(job, 2, 2, 0));  // not measured
  c.settings.memory_headroom = 0.1;
  CHECK(program_bytes_on(c, {0}, job, 8, 1) == Approx(1.1 * (24 + 24 * 0.25 + 6 + 1) * 1e9));
  c.settings.memory_headroom = 0;
  const auto plans = marp(c, job);
  REQUIRE(plans);
  for (const auto& p : *plans)
    if (p.tensor_parallel == 1)
      CHECK(p.bytes_per_gpu == Approx((30 + 7 * 8.0 / p.data_parallel) * 1e9));
  // The user's figure comes first; states that replicas share are in no profile.
  auto declared = job;
  declared.memory.emplace().zero = 1;
  CHECK(program_bytes_on(c, {0}, declared, 2, 1) == program_bytes(declared, 2, 1, 0));
  declared.memory->zero = 0, declared.memory->gb = 7;
  CHECK(program_bytes_on(c, {0}, declared, 2, 1) == 7e9);
  // Stages of 6 layers, 4 micro-batches of 2 samples: all activations are kept, or inputs alone.
  auto staged = training_job(8, 2, 4);
  staged.train->schedule = "megatron";
  staged.pipeline.recompute = false;
  const auto parts = split_model(staged, 2);
  const auto bytes = [&] {
    return bytes_by_stage(staged, split_batch(staged, 2, 1), parts, 0, {&c.gpus[0]});
  };
  const double first = parts[0].count, last = parts[1].count;
  CHECK(bytes()[0] == Approx((first + 3 + 2 * 2 * (0.25 * first + 0.5)) * 1e9));
  CHECK(bytes()[1] == Approx((last + 3 + 2 * (0.25 * last + 0.5)) * 1e9));
  staged.pipeline.recompute = true;
  const double input = 2 * parts[0].output_bytes;
  CHECK(bytes()[0] == Approx((first + 3 + 2 * (0.25 * first + 0.5)) * 1e9 + input));
  // A part whose peak is unknown.
  for (auto& x : c.gpus[0].profile->models[0].points) x.mlp.peak_bytes = 0;
  CHECK(program_bytes_on(c, {0}, job, 2, 1) == formula);
  CHECK(bytes() == bytes_by_stage(staged, split_batch(staged, 2, 1), parts, 0));
}

TEST_CASE("a single measured size gives the states, and the formula a sample's activations") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 1);
  c.gpus[0].profile = with_peaks();
  auto& points = c.gpus[0].profile->models[0].points;
  points.erase(points.begin() + 1, points.end());
  const auto job = sample::job(sample::gpt2_small, 2);
  const double measured = program_bytes_on(c, {0}, job, 1, 1);
  CHECK(measured == Approx((30 + 7 * 2) * 1e9));
  const auto twice = sample::job(sample::gpt2_small, 4);
  CHECK(program_bytes_on(c, {0}, twice, 1, 1) - measured ==
        Approx(program_memory(twice, 1, 1).activations - program_memory(job, 1, 1).activations));
}
