#include <catch2/catch.hpp>

#include "planners/plans/fits.hpp"
#include "planners/policy/move.hpp"
#include "sample.hpp"

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
  spec.max_gpus = 4;
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
