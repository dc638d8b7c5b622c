#include <catch2/catch.hpp>

#include "harness/facts.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/places.hpp"
#include "planners/plans/user_request.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Three nodes of four fast GPUs with 40 GB, two of two slow ones with 80 GB.
cluster two_types() {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 3, 4);
  sample::add_nodes(c, sample::gpu("slow", 80, 50), 2, 2);
  return c;
}

/// First piece, pieces, GPUs that share the stage.
struct cut {
  std::uint32_t first, count, tensor_parallel = 1;
};
std::vector<plan_stage> stages_of_plan(const std::vector<cut>& cuts) {
  std::vector<plan_stage> stages;
  for (const auto& c : cuts) stages.push_back({c.first, c.count, c.tensor_parallel, {}, 0});
  return stages;
}

std::string refusal(const expected<void>& made) {
  return made ? "" : made.error().text;
}

}  // namespace

TEST_CASE("a user's GPUs come from one type if it has enough, else from the fastest types first") {
  const auto c = two_types();
  CHECK(largest_node(c) == 4);
  CHECK(largest_node(cluster{}) == 1);
  const auto types = fastest_first(c);
  CHECK(types == std::vector<gpu_index>{0, 1});
  idle_index idle{c};
  CHECK_FALSE(fastest_idle(idle, 0, types));
  CHECK(fastest_idle(idle, 4, types) == allocation{{0, 4}});
  CHECK(total_gpus(*fastest_idle(idle, 16, types)) == 16);
  CHECK_FALSE(fastest_idle(idle, 17, types));
  for (node_index n : {0, 1}) idle.set_idle(n, 0);
  idle.set_idle(2, 3);
  const auto slow = fastest_idle(idle, 4, types);  // but of one type
  REQUIRE(slow);
  CHECK(total_gpus(*slow) == 4);
  for (const auto& share : *slow) CHECK(c.nodes[share.node].gpu == 1);
  CHECK(fastest_idle(idle, 3, types) == allocation{{2, 3}});
  CHECK(fastest_idle(idle, 5, types) == allocation{{2, 3}, {3, 2}});
  CHECK(total_gpus(*fastest_idle(idle, 7, types)) == 7);
  CHECK_FALSE(fastest_idle(idle, 8, types));
}

TEST_CASE("given GPUs are split in the fastest way that their smallest memory holds") {
  const auto c = two_types();
  const auto job = sample::job(sample::gpt2_7b, 2);
  const auto bytes = [&](std::uint32_t d, std::uint32_t t) {
    return program_bytes(job, d, t, c.settings.memory_headroom);
  };
  const allocation large{{3, 2}, {4, 2}};  // of 80 GB each
  const auto made = split_for(c, job, large);
  CHECK(made.gpus() == 4);
  CHECK(made.gpu_types == std::vector<gpu_index>{1});
  CHECK(made.bytes_per_gpu == bytes(made.data_parallel, made.tensor_parallel));
  CHECK(made.bytes_per_gpu < 80e9);
  for (std::uint32_t t = 1; t <= 4; t *= 2) {
    plan other;
    other.data_parallel = 4 / t;
    other.tensor_parallel = t;
    if (bytes(other.data_parallel, t) < 80e9)
      CHECK(made.samples_per_s >= estimate_iteration(c, job, other, large).samples_per_s);
  }
  CHECK(made.cost_per_hour == 4);
  // A pair that needs no more than the floor is skipped.
  const auto next = split_for(c, job, large, made.bytes_per_gpu);
  CHECK((next.bytes_per_gpu == 0 || next.bytes_per_gpu > made.bytes_per_gpu));
  // With one of 40 GB it is that one that counts, and where none fits the smallest is the guess.
  const auto mixed = split_for(c, job, {{0, 1}, {3, 1}});
  CHECK(mixed.gpu_types == std::vector<gpu_index>{0, 1});
  CHECK(mixed.bytes_per_gpu == 0);
  CHECK(mixed.tensor_parallel == 2);
  CHECK(split_for(c, job, {{3, 2}}, 0, 1).tensor_parallel == 1);
  auto odd = job;
  odd.model.heads = 2;  // a tensor group cannot have more
  CHECK(split_for(c, odd, large).tensor_parallel <= 2);
}

TEST_CASE("an allocation must respect the job's number of GPUs and its type") {
  const auto c = two_types();
  auto job = sample::job(sample::gpt2_small, 8);
  CHECK(refusal(within_bounds(c, job, {{0, 4}, {3, 2}})).empty());
  job.limits.max_gpus = 4;
  CHECK(refusal(within_bounds(c, job, {{0, 4}})).empty());
  CHECK(troupe::test::has_facts(refusal(within_bounds(c, job, {{0, 4}, {1, 1}})), {"5 GPUs", "4"}));
  job.limits.required_gpu_type = "slow";
  CHECK(refusal(within_bounds(c, job, {{3, 2}, {4, 2}})).empty());
  CHECK(troupe::test::has_facts(refusal(within_bounds(c, job, {{3, 2}, {0, 1}})),
                                {"A100-40GB", "n0", "slow", "gpu_type"}));
  std::optional<idle_index> restricted;
  const idle_index idle{c};
  const auto& allowed = allowed_idle(c, idle, job, restricted);
  CHECK(allowed.idle(0) == 0);
  CHECK(allowed.idle(3) == 2);
  job.limits.required_gpu_type.clear();
  CHECK(&allowed_idle(c, idle, job, restricted) == &idle);
}

TEST_CASE("a run that takes exactly its limit, or costs exactly its budget, is within them") {
  auto job = sample::job(sample::gpt2_small, 8);
  CHECK(refusal(within_limits(job, 1e9, 1e9)).empty());
  job.limits.deadline_s = 100;
  CHECK(refusal(within_limits(job, 100, 1e9)).empty());
  CHECK(troupe::test::has_facts(refusal(within_limits(job, 101, 0)),
                                {"deadline_s", "100 s", "101 s"}));
  job.limits.budget = 7;
  CHECK(refusal(within_limits(job, 100, 7)).empty());
  CHECK(troupe::test::has_facts(refusal(within_limits(job, 100, 8)),
                                {"budget", "7", "fast enough", "8"}));
  job.limits.deadline_s.reset();
  CHECK(troupe::test::has_facts(refusal(within_limits(job, 100, 8)), {"budget", "7", "8"}));
  job.limits.slo_s = 50;
  CHECK(troupe::test::has_facts(refusal(within_limits(job, 50, 8)),
                                {"budget", "7", "fast enough", "8"}));
  CHECK(troupe::test::has_facts(refusal(within_limits(job, 60, 0)),
                                {"slo_s", "50 s", "fastest", "60 s"}));
}

TEST_CASE("a plan's stages cover the model's pieces in order, without gaps or empty stages") {
  const auto job = sample::job(sample::gpt("m", 64, 3, 4, 32, 1000), 4);  // six pieces
  const auto problem_of = [&](const std::vector<cut>& cuts) {
    const auto made = parts_of(job, stages_of_plan(cuts));
    return made ? "" : made.error().text;
  };
  CHECK(problem_of({{0, 2}, {2, 4}}) == "");
  CHECK(problem_of({{0, 6}, {6, 0}}) == "");  // a head alone
  CHECK(troupe::test::has_facts(problem_of({{0, 2}, {3, 3}}), {"stage 1", "3 pieces", "6", "2"}));
  CHECK(troupe::test::has_facts(problem_of({{0, 2}, {2, 5}}), {"stage 1", "5 pieces", "6", "2"}));
  CHECK(troupe::test::has_facts(problem_of({{0, 0}, {0, 6}}), {"stage 0", "0 pieces", "6"}));
  CHECK(troupe::test::has_facts(problem_of({{0, 2}, {2, 3}}), {"2 stages", "5", "6 pieces", "m"}));
  const auto parts = *parts_of(job, stages_of_plan({{0, 2, 2}, {2, 4, 0}}));
  CHECK(parts[0].tensor_parallel == 2);
  CHECK(parts[1].tensor_parallel == 1);
  auto study = job;
  study.slots = slot_costs{};
  CHECK(*parts_of(study, stages_of_plan({{0, 1}, {9, 9}})) == std::vector<stage_part>(2));
  CHECK(split_model(study, 3) == std::vector<stage_part>(3));
  CHECK(split_model(job, 0).empty());
}

TEST_CASE("an elastic program keeps the numbers and types of GPUs that its user allows") {
  const auto c = two_types();
  const auto fast = c.gpus[0].name;
  job_spec job;
  job.program.command = {"train"};
  job.program.elastic.emplace();
  const allocation one{{0, 1}}, four{{0, 4}}, slow_two{{3, 2}};
  for (const auto& any : {one, four, slow_two}) CHECK(within_bounds(c, job, any));

  job.request.gpus = 2, job.limits.max_gpus = 3;
  job.program.elastic->min_gpus = 2, job.program.elastic->max_gpus = 3;
  CHECK(refusal(within_bounds(c, job, one)) ==
        "uses 1 GPUs; the program runs on at least 2 (elastic.gpus)");
  CHECK(refusal(within_bounds(c, job, four)) == "uses 4 GPUs; the job allows 3 (elastic.gpus)");
  CHECK(within_bounds(c, job, slow_two));
  CHECK(max_of_type(c, job, 0) == 3);

  job.program.elastic->types = {fast};
  CHECK(refusal(within_bounds(c, job, slow_two)) ==
        "uses slow of " + c.nodes[3].name + "; the job allows " + fast + " only (elastic.types)");
  CHECK(max_of_type(c, job, 1) == 0);
  std::optional<idle_index> restricted;
  const idle_index all{c};
  const auto& idle = allowed_idle(c, all, job, restricted);
  CHECK(idle.idle_of(0) == 12);
  CHECK(idle.idle_of(1) == 0);
  job.program.elastic->types = {fast, "slow"};
  CHECK(allowed_idle(c, all, job, restricted).idle_of(1) == 4);
}
