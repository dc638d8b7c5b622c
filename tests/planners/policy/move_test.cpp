#include <catch2/catch.hpp>

#include "planners/plans/fits.hpp"
#include "planners/policy/move.hpp"
#include "planners/policy/placement.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Two types, a training of two stages and two pipelines on the first.
struct running_training {
  cluster c;
  idle_index idle;
  job_view job;

  running_training() : c{make()}, idle{c} {
    auto spec = sample::job(sample::gpt("m", 64, 8, 4, 64, 100), 16);
    spec.train.emplace();
    spec.train->device = "sim";
    spec.pipeline.microbatches = 4;
    job.id = 1;
    job.training = true;
    job.how = sample::staged(spec, 2, 2);
    job.where = {{0, 2}, {1, 2}};
    job.rows = job.how.rows;
    job.spec = std::make_shared<const job_spec>(spec);
    for (const auto& share : job.where) idle.set_idle(share.node, 0);
  }
  static cluster make() {
    cluster c;
    c.datacenters.push_back({"here", ""});
    sample::add_nodes(c, sample::a100_80, 2, 2);
    sample::add_nodes(c, sample::a100_40, 2, 2);
    return c;
  }
  expected<placed_plan> to(const move_wish& w) const { return plan_move(c, idle, job, w); }
  /// Fits what is idle and what the job has.
  bool fits_there(const placed_plan& p) const {
    auto room = idle;
    for (const auto& share : job.where)
      room.set_idle(share.node, room.idle(share.node) + share.gpus);
    return fits(c, room, p.how, p.where).has_value();
  }
};

}  // namespace

TEST_CASE("a move keeps what it does not name, and may use the job's own GPUs") {
  const running_training t;
  const auto deeper = t.to({.stages = 4});
  REQUIRE(deeper);
  CHECK(t.fits_there(*deeper));
  CHECK(deeper->how.pipeline_parallel == 4);
  CHECK(deeper->how.data_parallel == 2);
  CHECK(deeper->how.rows == t.job.rows);
  CHECK(deeper->how.gpus() == 8);  // four of them are its own
  const auto wider = t.to({.stages = 1, .data_parallel = 4});
  REQUIRE(wider);
  CHECK(t.fits_there(*wider));
  CHECK(wider->how.rows == t.job.rows);
  CHECK(wider->how.microbatches == 2);
}

TEST_CASE("a move goes to the named GPU type and nodes") {
  const running_training t;
  const auto type = t.to({.gpu_type = t.c.gpus[1].name});
  REQUIRE(type);
  for (const auto& share : type->where) CHECK(t.c.nodes[share.node].gpu == 1);
  const auto nodes = t.to({.nodes = {t.c.nodes[1].name, t.c.nodes[2].name}});
  REQUIRE(nodes);
  for (const auto& share : nodes->where) CHECK((share.node == 1 || share.node == 2));
}

TEST_CASE("a move to the present placement, or to one that does not fit, is refused") {
  const running_training t;
  const auto code = [&](const move_wish& w) {
    const auto p = t.to(w);
    REQUIRE_FALSE(p);
    return p.error().code;
  };
  using kind = reason::kind;
  CHECK(code({.stages = 2}) == kind::invalid);
  CHECK(code({.nodes = {t.c.nodes[0].name, t.c.nodes[1].name}}) == kind::invalid);
  CHECK(code({.gpu_type = "H100"}) == kind::unknown);
  CHECK(code({.nodes = {"nowhere"}}) == kind::unknown);
  CHECK(code({.stages = 17}) == kind::infeasible);
  CHECK(code({.data_parallel = 4'000'000'000}) == kind::invalid);
  CHECK_FALSE(t.to({.stages = 5}));                   // ten GPUs of eight
  CHECK_FALSE(t.to({.nodes = {t.c.nodes[0].name}}));  // four GPUs of two
}

TEST_CASE("only a training with known stages can be moved, and only within the job's limits") {
  running_training t;
  const auto code = [&](const move_wish& w) {
    const auto p = t.to(w);
    REQUIRE_FALSE(p);
    return p.error().code;
  };
  CHECK(code({.gpu_type = t.c.gpus[0].name}) == reason::kind::invalid);
  auto spec = *t.job.spec;
  spec.limits.max_gpus = 4;
  t.job.spec = std::make_shared<const job_spec>(spec);
  CHECK_FALSE(t.to({.stages = 4}));
  CHECK(t.to({.stages = 4, .data_parallel = 1}));
  t.job.how.stages.clear();
  CHECK(code({.stages = 4}) == reason::kind::invalid);
}

TEST_CASE("a move to the same number of stages keeps the job's own cut") {
  running_training t;
  auto spec = *t.job.spec;
  spec.pipeline.cut = {10, 6};
  t.job.spec = std::make_shared<const job_spec>(spec);
  const auto wider = t.to({.data_parallel = 4});
  REQUIRE(wider);
  REQUIRE(wider->how.stages.size() == 2);
  CHECK(wider->how.stages[0].count == 10);
  const auto deeper = t.to({.stages = 4});
  REQUIRE(deeper);
  CHECK(deeper->how.stages.size() == 4);
}

namespace {

/// Two fast nodes of four GPUs and a slow one, in this order by name: a slow, b fast, c fast; an
/// elastic program on all of b. Plans of 1, 2 and 4 GPUs, the slow ones first.
struct moving_program {
  cluster c;
  idle_index idle;
  job_view job;

  moving_program() : c{make()}, idle{c} {
    auto spec = sample::job(sample::gpt2_small, 8);
    spec.program.command = {"train"};
    spec.program.elastic.emplace();
    spec.program.elastic->max_gpus = 8;
    std::vector<plan> plans;
    for (const gpu_index g : {0, 1})
      for (const std::uint32_t n : {1, 2, 4, 8}) {
        plan p;
        p.data_parallel = n;
        p.bytes_per_gpu = 10 * bytes_per_gb;
        p.samples_per_s = (g == 0 ? 3 : 10) * n;
        p.cost_per_hour = (g == 0 ? 1 : 2) * n;
        p.gpu_types = {g};
        plans.push_back(p);
      }
    job.id = 1;
    job.plans = std::make_shared<const std::vector<plan>>(plans);
    job.how = plans[6];
    job.where = {{1, 4}};
    job.spec = std::make_shared<const job_spec>(spec);
    idle.set_idle(1, 0);
  }
  static cluster make() {
    cluster c;
    c.datacenters.push_back({"here", ""});
    sample::add_nodes(c, sample::gpu("V100-32GB", 32, 100), 1, 4);
    sample::add_nodes(c, sample::a100_80, 2, 4);
    return c;
  }
  expected<placed_plan> to(const move_wish& w) const { return plan_program_move(c, idle, job, w); }
  /// "1:2": two GPUs of the second node.
  std::string place(const move_wish& w) const {
    const auto p = to(w);
    if (!p) return p.error().text;
    std::string text;
    for (const auto& share : p->where)
      text +=
          (text.empty() ? "" : " ") + std::to_string(share.node) + ":" + std::to_string(share.gpus);
    return text;
  }
};

}  // namespace

TEST_CASE("a program that shrinks stays where it is, whatever else is idle") {
  moving_program t;
  CHECK(t.place({.gpus = 2}) == "1:2");
  CHECK(t.place({.gpus = 1}) == "1:1");
  CHECK(t.to({.gpus = 2})->how.gpu_types == std::vector<gpu_index>{1});
  // Unless its user names another place.
  CHECK(t.place({.gpu_type = "V100-32GB", .gpus = 2}) == "0:2");
  CHECK(t.place({.nodes = {t.c.nodes[2].name}, .gpus = 2}) == "2:2");
  // On two nodes it keeps one of them.
  t.job.where = {{1, 4}, {2, 4}};
  t.job.how.data_parallel = 8;
  t.idle.set_idle(2, 0);
  CHECK(t.place({.gpus = 4}) == "1:4");
}

TEST_CASE("a number of GPUs that the batch does not permit is refused with the batch") {
  moving_program t;
  auto spec = *t.job.spec;
  spec.global_batch = 1;
  t.job.spec = std::make_shared<const job_spec>(spec);
  CHECK_THAT(
      t.to({.gpus = 64}).error().text,
      Catch::Contains("found 64 GPUs, expected one of the numbers that it may have here: ") &&
          Catch::Contains("; every GPU needs a sample, and its global_batch is 1, as it is "
                          "not given"));
  spec.global_batch = 128;
  t.job.spec = std::make_shared<const job_spec>(spec);
  CHECK_THAT(t.to({.gpus = 64}).error().text, !Catch::Contains("sample"));
}

TEST_CASE("a program that grows gets the best GPUs by its objective, near its own") {
  moving_program t;
  t.job.where = {{1, 1}};
  t.idle.set_idle(1, 1);
  CHECK(t.place({.gpus = 2}) == "1:2");  // what is idle beside it
  t.idle.set_idle(1, 0);
  CHECK(t.place({.gpus = 2}) == "2:2");  // not the slow node, whose plan comes first
  CHECK(t.to({.gpus = 2})->how.samples_per_s == 20);
  auto spec = *t.job.spec;
  spec.objective = "cheapest";  // 3 samples for 1, 10 for 2
  t.job.spec = std::make_shared<const job_spec>(spec);
  CHECK(t.place({.gpus = 2}) == "2:2");
  auto cheap = *t.job.plans;
  for (auto& p : cheap)
    if (p.gpu_types.front() == 0) p.cost_per_hour /= 10;
  t.job.plans = std::make_shared<const std::vector<plan>>(cheap);
  CHECK(t.place({.gpus = 2}) == "0:2");
  // From the slow GPUs it goes to the fast ones.
  moving_program slow;
  slow.job.where = {{0, 2}};
  slow.idle.set_idle(0, 2);
  slow.idle.set_idle(1, 4);
  CHECK(slow.place({.gpus = 4}) == "1:4");
  CHECK(slow.place({.gpus = 1}) == "0:1");  // it shrinks where it is
}

TEST_CASE("a move that finds no room says what is idle, and an unknown type names those like it") {
  moving_program t;
  t.idle.set_idle(0, 0);
  t.idle.set_idle(2, 0);
  CHECK(t.place({.gpus = 8}) == "needs 8 GPUs of at least 10.0 GB; 4 are idle");
  CHECK(t.place({.gpu_type = "A100", .gpus = 2})
            .ends_with("has no GPU 'A100'; did you mean A100-80GB?"));
  CHECK(t.place({.gpu_type = "T4", .gpus = 2}).ends_with("; it has V100-32GB, A100-80GB"));
  CHECK(t.place({.gpus = 4}) == "it already runs this way");
}

TEST_CASE("a new attempt keeps the micro-batch size of the last one, unless the job sets it") {
  auto job = sample::job(sample::gpt2_small, 16);
  job.microbatches = 4;
  job.pipeline.microbatches = 8;
  const auto again = with_rows(job, 3);
  CHECK(again.pipeline.rows == 3);
  CHECK(again.pipeline.microbatches == 0);
  CHECK_FALSE(again.microbatches);
  CHECK(with_rows(job, 0) == job);
  auto set = job;
  set.pipeline.rows = 2;
  CHECK(with_rows(set, 3) == set);
  auto study = job;
  study.slots = slot_costs{};
  CHECK(with_rows(study, 3) == study);
}

TEST_CASE("a move to other nodes keeps groups, and one to another shape makes pipelines alike") {
  running_training t;
  auto spec = *t.job.spec;
  const auto& type = t.c.gpus[0].name;
  spec.pipeline = {};
  spec.pipeline.groups = {{1, 3, {{type, 16}}}, {1, 1, {{type, 16}}}};
  idle_index first{t.c};
  first.set_idle(1, 0);
  const auto placed = place_pipelines(t.c, first, spec, true);
  REQUIRE(placed);
  t.job.spec = std::make_shared<const job_spec>(spec);
  t.job.how = placed->how;
  t.job.where = placed->where;
  t.job.rows = placed->how.rows;
  t.idle = idle_index{t.c};
  for (const auto& share : t.job.where) t.idle.set_idle(share.node, 0);
  move_wish other;
  other.nodes = {t.c.nodes[1].name};
  const auto there = t.to(other);
  if (!there) FAIL(there.error().text);
  CHECK(there->how.groups == placed->how.groups);
  CHECK(there->where == allocation{{1, 2}});
  CHECK(t.fits_there(*there));
  const auto alike = t.to({.stages = 2, .data_parallel = 1});
  if (!alike) FAIL(alike.error().text);
  CHECK_FALSE(alike->how.groups);
  CHECK(alike->how.rows == placed->how.rows);
  move_wish here;
  here.nodes = {t.c.nodes[0].name};
  CHECK_FALSE(t.to(here));
}
