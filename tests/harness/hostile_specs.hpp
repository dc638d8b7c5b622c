#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "harness/small_cluster.hpp"

// Jobs as a client that is not ours may submit them: nothing of it has been through the reader of
// job files.

namespace troupe::harness {

struct hostile_spec {
  std::string what;
  std::function<void(job_spec&)> spoil;
  bool refused = true;  // else it is allowed, and must cost little
};

inline job_spec hostile_job(const hostile_spec& h) {
  auto job = small_job("hostile", 10);
  h.spoil(job);
  return job;
}

inline void train_it(job_spec& j) {
  j.train.emplace();
  j.train->device = "sim";
}

inline void study_it(job_spec& j) {
  j.slots.emplace();
  j.pipeline.stages = 2;
  j.pipeline.microbatches = 4;
}

/// Seventy-one, of which a handful are allowed.
inline std::vector<hostile_spec> hostile_specs() {
  constexpr auto huge = std::numeric_limits<std::uint32_t>::max();
  static constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
  static constexpr auto inf = std::numeric_limits<double>::infinity();
  using spec = job_spec&;
  return {
      // Names and text.
      {"no name", [](spec j) { j.name.clear(); }},
      {"a name of 100 KB", [](spec j) { j.name.assign(100'000, 'x'); }},
      {"a name that clears the screen", [](spec j) { j.name = "\x1b]0;owned\x07\x1b[2J"; }},
      {"a name that is a path", [](spec j) { j.name = "../../x"; }},
      {"a name with a NUL", [](spec j) { j.name = std::string("a\0b", 3); }},
      {"a model's name of 1 KB", [](spec j) { j.model.name.assign(1000, 'm'); }},
      {"an environment of 100 MB",
       [](spec j) { j.program.environment["A"].assign(100 << 20, 'x'); }},
      {"2 MB in many variables",
       [](spec j) {
         for (int i = 0; i < 40; ++i)
           j.program.environment["A" + std::to_string(i)].assign(50'000, 'x');
       }},
      {"a variable's name with =", [](spec j) { j.program.environment["A=B"] = "x"; }},
      {"a variable without a name", [](spec j) { j.program.environment[""] = "x"; }},
      {"a variable with a NUL",
       [](spec j) { j.program.environment["A"] = std::string("x\0y", 3); }},
      {"a program without a name",
       [](spec j) {
         j.program.command = {"", "x"};
       }},
      {"a word with a NUL",
       [](spec j) {
         j.program.command = {"echo", std::string("a\0b", 3)};
       }},
      {"a million words", [](spec j) { j.program.command.assign(1'000'000, "x"); }},
      {"a million keywords", [](spec j) { j.merging.dataset_card.assign(1'000'000, "x"); }},
      {"a directory of 1 MB", [](spec j) { j.program.working_directory.assign(1 << 20, '/'); }},
      {"an unknown objective", [](spec j) { j.objective = "nicest"; }},
      // Sizes of the work.
      {"a batch of none", [](spec j) { j.global_batch = 0; }},
      {"a batch of 4 thousand million", [](spec j) { j.global_batch = huge; }},
      {"no iterations", [](spec j) { j.iterations = 0; }},
      {"2^64 iterations", [](spec j) { j.iterations = ~std::uint64_t{0}; }},
      {"no micro-batches", [](spec j) { j.microbatches = 0; }},
      {"more micro-batches than sequences", [](spec j) { j.microbatches = 5; }},
      {"a priority beyond all", [](spec j) { j.priority = std::numeric_limits<int>::max(); }},
      {"no GPUs", [](spec j) { j.request.gpus = 0; }},
      {"4 thousand million GPUs", [](spec j) { j.request.gpus = huge; }},
      {"a bound of no GPUs", [](spec j) { j.limits.max_gpus = 0; }},
      {"an exact number of GPUs without a program",
       [](spec j) { j.program.command.clear(), j.request.exact = true; }},
      {"an assumed model without a program",
       [](spec j) { j.program.command.clear(), j.assumed.model = true; }},
      {"more GPUs than its bound",
       [](spec j) {
         j.program.command = {"true"}, j.request.exact = true, j.request.gpus = 8,
         j.limits.max_gpus = 4;
       }},
      {"exactly no GPUs",
       [](spec j) { j.program.command = {"true"}, j.request.exact = true, j.request.gpus = 0; }},
      {"exactly a million GPUs",
       [](spec j) {
         j.program.command = {"true"}, j.request.exact = true, j.request.gpus = 1'000'000;
       },
       false},
      {"2^32 restarts", [](spec j) { j.limits.max_restarts = huge; }},
      {"a deadline that is no number", [](spec j) { j.limits.deadline_s = nan; }},
      {"a deadline in the past", [](spec j) { j.limits.deadline_s = -1; }},
      {"an endless slo", [](spec j) { j.limits.slo_s = inf; }},
      {"a budget of nothing", [](spec j) { j.limits.budget = 0; }},
      // Models.
      {"no layers", [](spec j) { j.model.layers = 0; }},
      {"4,000 layers", [](spec j) { j.model.layers = 4000; }},
      {"a million layers", [](spec j) { j.model.layers = 1'000'000; }},
      {"2^32 layers", [](spec j) { j.model.layers = huge; }},
      {"no heads", [](spec j) { j.model.heads = 0; }},
      {"heads that do not divide", [](spec j) { j.model.heads = 7; }},
      {"key-value heads that do not divide", [](spec j) { j.model.kv_heads = 5; }},
      {"hidden 0", [](spec j) { j.model.hidden = 0; }},
      {"hidden 2^32 - 1", [](spec j) { j.model.hidden = huge; }},
      {"no sequence", [](spec j) { j.model.sequence = 0; }},
      {"a sequence of 2^32", [](spec j) { j.model.sequence = huge; }},
      {"no vocabulary", [](spec j) { j.model.vocabulary = 0; }},
      {"an MLP of 2^32", [](spec j) { j.model.intermediate = huge; }},
      {"an unknown family", [](spec j) { j.model.family = "mystery"; }},
      {"operators of no family that has them",
       [](spec j) {
         j.model.operators = {{"a", 1, 1, 1}};
       }},
      {"a family of operators without any", [](spec j) { j.model.family = "moe"; }},
      {"a million operators",
       [](spec j) {
         j.model.family = "moe";
         j.model.operators.assign(1'000'000, {"a", 1, 1, 1});
       }},
      {"operators of NaN FLOPs",
       [](spec j) {
         j.model.family = "moe";
         j.model.operators = {{"a", nan, 1, 1}};
       }},
      {"operators of negative parameters",
       [](spec j) {
         j.model.family = "moe";
         j.model.operators = {{"a", 1, -1e12, 1}};
       }},
      // Trainings and pipelines.
      {"training and a program", [](spec j) { train_it(j), j.program.command = {"x"}; }},
      {"training a batch of none", [](spec j) { train_it(j), j.global_batch = 0; }},
      {"training without data", [](spec j) { train_it(j), j.train->device = "cpu"; }},
      {"an unknown device", [](spec j) { train_it(j), j.train->device = "abacus"; }},
      {"an unknown schedule", [](spec j) { train_it(j), j.train->schedule = "random"; }},
      {"a learning rate of NaN", [](spec j) { train_it(j), j.train->learning_rate = nan; }},
      {"a checkpoint after no iteration",
       [](spec j) { train_it(j), j.train->checkpoint_every = 0; }},
      {"costs of negative time",
       [](spec j) {
         train_it(j);
         j.train->costs.resize(2);
         j.train->costs[1].forward_s = -1;
       }},
      {"two profiles", [](spec j) { train_it(j), j.train->profile.resize(2); }},
      {"a profile's point of no rows",
       [](spec j) {
         train_it(j);
         j.train->profile.resize(1);
         j.train->profile[0].models.resize(1);
         j.train->profile[0].models[0].points.resize(1);
       }},
      {"2^32 stages", [](spec j) { j.pipeline.stages = huge; }},
      {"more stages than sublayers", [](spec j) { j.pipeline.stages = 25; }},
      {"2^32 pipelines", [](spec j) { j.pipeline.data_parallel = huge; }},
      {"pipelines that do not divide the batch", [](spec j) { j.pipeline.data_parallel = 3; }},
      {"a tensor group of 2^32", [](spec j) { j.pipeline.tensor_parallel = huge; }},
      {"a study of 10^7 micro-batches",
       [](spec j) { study_it(j), j.pipeline.microbatches = 10'000'000; }},
      {"a study of no forward", [](spec j) { study_it(j), j.slots->forward = 0; }},
      {"a study of prefills that take no time",
       [](spec j) { study_it(j), j.slots->prefill_per_1k = 0; }},
      {"a study of too many steps",
       [](spec j) {
         study_it(j);
         j.pipeline.stages = 10'000;
         j.pipeline.data_parallel = 10'000;
         j.pipeline.microbatches = 10'000;
       }},
      // Within the bounds, and costly to plan.
      {"a training of 2,000 layers of different weight",
       [](spec j) {
         train_it(j);
         j.model = gpt2(2000, 32, 1);
         j.model.vocabulary = 100'000'000;
         j.global_batch = 96;
       },
       false},
      {"a batch with hundreds of divisors", [](spec j) { j.global_batch = 73'513'440; }, false},
  };
}

}  // namespace troupe::harness
