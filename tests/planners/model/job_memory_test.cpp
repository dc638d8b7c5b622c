// The memory and the time of a job's stages, with every way of keeping activations.
#include "planners/model/job_memory.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "planners/cost/batch_split.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

constexpr double s_of_small = 32, h_of_small = 64, a_of_small = 4;
constexpr double sh_of_small = s_of_small * h_of_small;

/// Six layers; 34 s h + 5 a s^2 bytes of activations each.
job_spec small_stages(const std::string& kernels = "") {
  auto job = sample::job(sample::gpt("small", 64, 6, 4, 32, 1000), 8);
  job.kernels = kernels;
  return job;
}

stage_part pieces_from(const job_spec& job, std::uint32_t first, std::uint32_t count) {
  const model_chain chain{job.model, divides_words(job)};
  return part_of_stage(chain, job.model, first, count, 1, false);
}

/// The one stage of a program, with its memory beside that of the program without stages.
struct two_counts {
  memory_parts program, stage;
};
two_counts counted_twice(const job_spec& job) {
  const auto parts = split_model(job, 1);
  auto in_stages = job;
  in_stages.train.emplace().schedule = "megatron";
  const auto split = split_batch(in_stages, 1, 2);
  return {program_memory(job, 2, 1), memory_of(in_stages, parts[0], load_of(in_stages, split, 0))};
}

}  // namespace

TEST_CASE(
    "a stage that recomputes layer by layer keeps their inputs, and one layer's activations") {
  auto job = small_stages();
  job.pipeline.recompute_layers = true;
  const double layer = 34 * sh_of_small + 5 * a_of_small * s_of_small * s_of_small;
  struct row {
    std::uint32_t first, count;
    double inputs;  // of layers, each 2 s h bytes
    double at_work;
  };
  const double mlp = 21 * sh_of_small, attention = layer - mlp;
  for (const auto& r : std::vector<row>{{0, 6, 3, layer},
                                        {1, 5, 3, layer},      // an MLP, and two layers
                                        {1, 2, 2, attention},  // an MLP, and the next attention
                                        {1, 1, 1, mlp},
                                        {2, 1, 1, attention}}) {
    CAPTURE(r.first, r.count);
    const auto parts = memory_of(job, pieces_from(job, r.first, r.count), {3, 4});
    CHECK(parts.inputs == 3 * 4 * r.inputs * 2 * sh_of_small);
    CHECK(parts.activations == 3 * r.at_work);
  }
}

TEST_CASE("of a program's layers that are computed again, those that are glued are one") {
  job_spec job;
  job.model.family = "layers";
  job.model.operators = {{"a", 1, 0, 400, 1000, 0, false},
                         {"b", 1, 0, 800, 5000, 0, false},
                         {"c", 1, 0, 200, 3000, 0, true},
                         {"d", 1, 0, 0, 7000, 0, false}};
  job.pipeline.recompute_layers = true;
  struct row {
    std::uint32_t first, count;
    double inputs, at_work;  // of a sample, as measured
  };
  for (const auto& r : std::vector<row>{{0, 4, 400 + 200, 8000},  // b and c are one
                                        {0, 1, 0, 1000},
                                        {1, 2, 400, 8000},
                                        {3, 1, 200, 7000}}) {
    CAPTURE(r.first, r.count);
    const auto parts = memory_of(job, pieces_from(job, r.first, r.count), {3, 4});
    CHECK(parts.inputs == 3 * 4 * r.inputs);
    CHECK(parts.activations == 3 * r.at_work);
  }
}

TEST_CASE("a stage's kernels say what it keeps of attention's matrices") {
  const double matrices = 2 * a_of_small * s_of_small * s_of_small;  // two layers
  const auto bytes = [](const job_spec& job) {
    return memory_of(job, pieces_from(job, 0, 4), {1, 1}).activations;
  };
  const double all = bytes(small_stages());
  CHECK(all == 2 * 34 * sh_of_small + 5 * matrices);
  CHECK(bytes(small_stages("fused")) == all);
  CHECK(bytes(small_stages("flash")) == 2 * 32 * sh_of_small);
  CHECK(bytes(small_stages("sdpa")) == 2 * 34 * sh_of_small);
  auto job = small_stages("eager");
  CHECK(bytes(job) == all);
  job.memory.emplace();  // mixed precision: norms and softmax in single precision
  CHECK(bytes(job) == 2 * 38 * sh_of_small + 7 * matrices);
}

TEST_CASE("the only stage of a program has the memory of the program") {
  for (const std::string kernels : {"", "eager", "flash", "sdpa"})
    for (const std::string checkpointing : {"none", "selective", "full"})
      for (const std::string precision : {"mixed", "bf16", "fp32"})
        for (const std::uint32_t zero : {0U, 1U, 2U, 3U}) {
          CAPTURE(kernels, checkpointing, precision, zero);
          auto job = small_stages(kernels);
          job.microbatches = 2;
          job.memory.emplace();
          job.memory->checkpointing = checkpointing, job.memory->precision = precision;
          job.memory->zero = zero;
          const auto both = counted_twice(job);
          CHECK(both.stage.weights == Approx(both.program.weights));
          CHECK(both.stage.gradients == Approx(both.program.gradients));
          CHECK(both.stage.optimizer == Approx(both.program.optimizer));
          CHECK(both.stage.buffers == Approx(both.program.buffers));
          CHECK(both.stage.ends == Approx(both.program.ends));
          CHECK(both.stage.total() == Approx(both.program.total()));
        }
}

TEST_CASE("kernels without attention's matrix count in MARP's formula of a program, too") {
  const auto activations = [](const char* kernels) {
    return program_memory(small_stages(kernels), 2, 2).activations;
  };
  const double layers = 4 * 6;  // of all samples of a replica
  const double matrices = layers * a_of_small * s_of_small * s_of_small / 2;
  CHECK(activations("eager") == activations(""));
  CHECK(activations("") - activations("sdpa") == Approx(5 * matrices));
  CHECK(activations("") - activations("flash") == Approx(5 * matrices + 2 * layers * sh_of_small));
}

TEST_CASE("memory_gb is the memory of every stage, without headroom") {
  auto job = small_stages();
  job.memory.emplace().gb = 3;
  CHECK(stage_bytes(job, pieces_from(job, 0, 4), {1, 1}, 0.5) == 3e9);
}

TEST_CASE("the first and last stages of a program have a part of the vocabulary on each GPU") {
  auto job = small_stages();
  job.model.tied_head = true;
  const auto ends = [&] {
    job.pipeline.tensor_parallel = 2;
    auto parts = split_model(job, 2);
    return std::vector{parts.front(), parts.back()};
  };
  job.pipeline.cut = {6, 6};
  const auto whole = ends();
  job.memory.emplace();
  const auto divided = ends();
  const double words = 1000 * h_of_small;
  // The first stage has the positions as well, which are divided with the words.
  CHECK(whole[0].parameters - divided[0].parameters ==
        Approx((words + s_of_small * h_of_small) / 2));
  CHECK(whole[1].parameters - divided[1].parameters == Approx((words + 2 * h_of_small) / 2));
  CHECK(whole[1].flops - divided[1].flops == Approx(2 * s_of_small * words / 2));
  CHECK(divided[1].kernels.logits == whole[1].kernels.logits / 2);
}

TEST_CASE("layers that are computed again lengthen every stage's backward by their forward") {
  auto job = small_stages();
  auto gpu = sample::gpu("G", 40, 100);
  gpu.kernel_us = 0;
  job.pipeline.cut = {6, 6};
  const auto parts = split_model(job, 2);
  const auto costs = [&](std::uint32_t stage) { return costs_of_stage(job, gpu, parts, stage, 2); };
  job.pipeline.recompute = false;
  const auto kept = costs(0), kept_last = costs(1);
  job.pipeline.recompute_layers = true;
  job.pipeline.recompute = true;
  const auto first = costs(0), last = costs(1);
  CHECK(first.recompute_s == 0);
  CHECK(first.forward_s == kept.forward_s);
  CHECK(first.backward_s == Approx(kept.backward_s + kept.forward_s));
  // The last stage as well, but for the head.
  const double head_s = 2 * head_flops(job.model) / flops_s(gpu);
  CHECK(last.backward_s == Approx(kept_last.backward_s + kept_last.forward_s - head_s));
}
