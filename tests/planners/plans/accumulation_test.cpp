#include "planners/plans/accumulation.hpp"

#include <catch2/catch.hpp>

#include "planners/cost/measured_memory.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/fits.hpp"
#include "planners/plans/marp.hpp"
#include "planners/plans/user_request.hpp"
#include "planners/sample.hpp"

// Jobs whose batch is more than their GPUs hold at once.

using namespace troupe;
using namespace troupe::planners;
using Catch::Contains;

namespace {

/// OPT-350M with a batch of 1,024 x 2,048 tokens in single precision.
job_spec opt_350() {
  auto m = sample::gpt("opt-350", 1024, 24, 16, 2048, 50272);
  m.tied_head = false;
  auto job = sample::job(m, 1024);
  job.kernels = "eager";
  job.memory.emplace().precision = "fp32";
  job.objective = "fastest";
  return job;
}

/// Eight nodes of four A100 of 40 GB.
cluster a100s() {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 8, 4);
  return c;
}

}  // namespace

TEST_CASE("a job whose batch no GPU holds at once accumulates gradients of smaller micro-batches") {
  const auto c = a100s();
  const auto job = opt_350();
  const auto plans = marp(c, job);
  REQUIRE(plans);
  for (const auto& p : *plans) {
    INFO(p.data_parallel << " x " << p.tensor_parallel << ", " << p.rows << " rows");
    CHECK(std::uint64_t{p.data_parallel} * p.microbatches * p.rows == 1024);
    CHECK(p.gpus() <= 32);
    CHECK(p.bytes_per_gpu < c.gpus[0].memory_bytes());
    CHECK(p.bytes_per_gpu == program_bytes(job, p.data_parallel, p.tensor_parallel,
                                           c.settings.memory_headroom, p.microbatches));
    // The fewest that fit: with larger ones it would not.
    if (p.microbatches == 1) continue;
    const auto sizes = divisors(1024 / p.data_parallel);
    const auto fewer = *std::prev(std::ranges::find(sizes, p.microbatches));
    CHECK(program_bytes(job, p.data_parallel, p.tensor_parallel, c.settings.memory_headroom,
                        fewer) >= c.gpus[0].memory_bytes());
  }
  const auto& best = plans->front();
  CHECK(best.gpus() == 32);
  const auto e = estimate_iteration(c, job, best, pack(c, nodes_of_type(c, 0), 32));
  CHECK(e.samples_per_s == Approx(best.samples_per_s));
  // On GPUs that its user asked for, too.
  const auto asked = split_for(c, job, pack(c, nodes_of_type(c, 0), 16));
  CHECK(asked.bytes_per_gpu > 0);
  CHECK(std::uint64_t{asked.data_parallel} * asked.microbatches * asked.rows == 1024);
}

TEST_CASE("plans that hold a replica's samples at once are not accumulated, nor fixed sizes") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 4, 8);
  const auto plans = marp(c, sample::job(sample::gpt2_small, 16));
  REQUIRE(plans);
  for (const auto& p : *plans) CHECK((p.microbatches == 0 && p.rows == 0));
  CHECK(may_accumulate(opt_350()));
  auto job = opt_350();
  job.microbatches = 2;
  CHECK_FALSE(may_accumulate(job));
  CHECK_FALSE(marp(a100s(), job));  // 512 samples of 1,024 at once
  job = opt_350();
  job.memory->micro_batch = 4;
  CHECK_FALSE(may_accumulate(job));
  CHECK(marp(a100s(), job));
}

TEST_CASE("the micro-batches of a command count in its memory, with memory keys and without") {
  auto job = sample::job(sample::gpt2_7b, 64);
  job.program.command = {"torchrun", "train.py"};
  const auto at_once = program_memory(job, 4, 2);
  job.microbatches = 16;
  const auto accumulated = program_memory(job, 4, 2);
  CHECK(accumulated.activations == Approx(at_once.activations / 16));
  CHECK(accumulated.optimizer == at_once.optimizer);
  job.microbatches = 1000;  // no more than samples
  CHECK(program_memory(job, 4, 2).activations == Approx(at_once.activations / 16));
  job.kernels = "flash";
  const auto flash = program_memory(job, 4, 2);
  job.microbatches.reset();
  CHECK(program_memory(job, 4, 2).activations == Approx(16 * flash.activations));
}

TEST_CASE("a command whose batch does not fit is refused with what would do") {
  cluster c;
  sample::add_nodes(c, sample::gpu("H100-80GB", 80, 989), 2, 8);
  auto job = sample::job(sample::gpt2_7b, 64);
  job.program.command = {"torchrun", "train.py"};
  const auto refused = marp(c, job);
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, Contains("its batch of 64 is the reason: with ") &&
                                       Contains("`microbatches: ") && Contains("GPUs would do"));
  // And it does.
  const auto& text = refused.error().text;
  job.microbatches =
      static_cast<std::uint32_t>(std::stoul(text.substr(text.find("`microbatches: ") + 15)));
  const auto plans = marp(c, job);
  REQUIRE(plans);
  const auto fewest = std::ranges::min(*plans, {}, &plan::gpus).gpus();
  CHECK_THAT(text, Contains(std::to_string(fewest) + " GPUs would do"));
  // Too few micro-batches, too.
  job.microbatches = 1;
  CHECK(marp(c, job).error().text == text);
  // A number of GPUs that the user has given.
  job.microbatches.reset();
  job.request.exact = true;
  job.request.gpus = 16;
  const auto exact = exact_plans(c, job);
  REQUIRE_FALSE(exact);
  CHECK_THAT(exact.error().text, Contains("16 GPUs would do"));
  // A model that does not fit with a single sample either: nothing is said of micro-batches.
  job.request.exact = false;
  job.model.layers = 400;
  CHECK_THAT(marp(c, job).error().text, !Contains("microbatches"));
}

TEST_CASE("micro_batch is as many samples in time as in memory") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 8);
  auto by_size = sample::job(sample::gpt2_small, 64), by_number = by_size;
  by_size.memory.emplace().micro_batch = 2;
  by_number.memory.emplace();
  by_number.microbatches = 16;
  plan how;
  how.data_parallel = 2;
  const auto a = estimate_iteration(c, by_size, how, {{0, 2}});
  const auto b = estimate_iteration(c, by_number, how, {{0, 2}});
  CHECK(a.iteration_s == b.iteration_s);
  CHECK(program_memory(by_size, 2, 1).total() == program_memory(by_number, 2, 1).total());
  by_number.microbatches = 1;
  CHECK(a.iteration_s > estimate_iteration(c, by_number, how, {{0, 2}}).iteration_s);
  // A last micro-batch that is smaller: 32 samples as 5, 5, 5, 5, 5, 5, 2.
  by_size.memory->micro_batch = 5;
  CHECK(batch_of_replica(by_size, 2).microbatches == 7);
  CHECK(batch_of_replica(by_size, 2).rows == Approx(32.0 / 7));
  // A plan's number comes before the job's.
  CHECK(batch_of_replica(by_size, 2, 8).rows == 4);
}
