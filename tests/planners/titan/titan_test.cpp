#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>

#include "planners/scene.hpp"
#include "planners/titan/titan.hpp"
#include "planners/titan/tuning_problem.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::scene;

namespace {

cluster four_gpus(std::uint32_t nodes = 1) {
  cluster c;
  c.name = "fine-tuning";
  sample::add_nodes(c, sample::gpu("V100-32GB", 32, 125), nodes, 4);
  c.settings.restart_s = 40;
  return c;
}

job_spec tuning(std::uint64_t iterations, std::vector<std::string> card = {"cats", "vision"}) {
  auto j = sample::job(sample::gpt2_350m, 64, 1);
  j.iterations = iterations;
  j.merging.dataset_card = std::move(card);
  return j;
}

/// The scene with a policy of these options, and its decisions.
struct titan_scene {
  std::unique_ptr<policy> by;
  scene s;

  explicit titan_scene(titan_options o = *titan_variant("titan"), std::uint32_t nodes = 1)
      : by{make_titan(o)}, s{four_gpus(nodes)} {
    s.by = by.get();
  }
  std::vector<decision> decide() const {
    random_source r{1};
    return by->decide(s.view(), r);
  }
  /// A job that runs on these GPUs and has about `left_s` to go.
  void run(job_id id, allocation where, double left_s) {
    auto j = s.add(id, tuning(1000));
    s.waiting.erase(id);
    for (const auto& share : where)
      s.idle.set_idle(share.node, s.idle.idle(share.node) - share.gpus);
    j.how = j.plans->front();
    j.where = std::move(where);
    j.iteration_s = 1;
    j.start_s = 0;
    j.started_s = s.now_s + left_s - 1000;
    s.running[id] = j;
  }
};

titan_options variant(const char* name) {
  return *titan_variant(name);
}

}  // namespace

TEST_CASE("jobs of similar data and length are started as a union, and its time is what it needs") {
  titan_scene t;
  t.s.idle.set_idle(0, 1);  // one GPU for two jobs
  t.s.add(1, tuning(500));
  t.s.add(2, tuning(600));
  const auto made = t.decide();
  REQUIRE(made.size() == 1);
  CHECK(made[0].job == 1);
  CHECK(made[0].with == std::vector<job_id>{2});
  CHECK(made[0].kind_of_union == merge_kind::shared);
  CHECK(made[0].how.gpus() == 1);
  REQUIRE(made[0].expected);
  // The union's iterations are those of its longer member.
  const double samples = merged_samples(std::vector<double>{500 * 64, 600 * 64});
  CHECK(600 * made[0].expected->iteration_s ==
        Approx(samples / made[0].how.samples_per_s).epsilon(1e-9));
  CHECK(made[0].expected->start_s > 40);
}

TEST_CASE("jobs that must not be merged, and jobs under titan-no-merger, start alone") {
  const auto decided = [](titan_options o, job_spec second) {
    titan_scene t{std::move(o)};
    t.s.idle.set_idle(0, 1);
    t.s.add(1, tuning(500));
    t.s.add(2, second);
    return t.decide();
  };
  auto opted_out = tuning(500);
  opted_out.merging.allowed = false;
  auto late = tuning(500);
  late.limits.deadline_s = 1e6;
  for (const auto& made :
       {decided(variant("titan-no-merger"), tuning(500)), decided(variant("titan"), opted_out),
        decided(variant("titan"), late), decided(variant("titan"), tuning(500, {"dogs"})),
        decided(variant("titan"), tuning(5000))}) {
    REQUIRE(made.size() == 1);
    CHECK(made[0].with.empty());
  }
}

TEST_CASE("jobs with adapters are merged without cards, and share the start alone") {
  titan_scene t;
  t.s.idle.set_idle(0, 1);
  auto one = tuning(2, {}), other = tuning(5, {});
  one.merging.kind = other.merging.kind = merge_kind::adapters;
  t.s.add(1, one);
  t.s.add(2, other);
  const auto made = t.decide();
  REQUIRE(made.size() == 1);
  CHECK(made[0].with == std::vector<job_id>{2});
  CHECK(made[0].kind_of_union == merge_kind::adapters);
  const double samples = (2 + 5) * 64;
  CHECK((2 + 5) * made[0].expected->iteration_s ==
        Approx(samples / made[0].how.samples_per_s).epsilon(1e-9));
}

TEST_CASE("a job follows one that is about to end, and one that is not is left alone") {
  titan_scene t;
  t.run(1, {{0, 4}}, 60);
  t.s.add(2, tuning(5000));
  auto made = t.decide();
  REQUIRE(made.size() == 1);
  CHECK(made[0].job == 2);
  CHECK(made[0].after == job_id{1});
  // The set-up of 40 s is hidden: both copies are left.
  CHECK(made[0].expected->start_s < 2);
  t.s.running.at(1).followed = true;
  CHECK(t.decide().empty());
  t.s.running.at(1).followed = false;
  t.s.running.at(1).started_s += 600;
  CHECK(t.decide().empty());
  random_source r{1};
  const double again_s = t.by->decide_again_s(t.s.view());
  CHECK(again_s > 0);
  t.s.now_s += again_s;
  made = t.decide();
  REQUIRE(made.size() == 1);
  CHECK(made[0].after == job_id{1});
}

TEST_CASE("a set-up that has too little time ahead is part of the start") {
  titan_scene t;
  t.run(1, {{0, 4}}, 10);
  t.s.add(2, tuning(5000));
  const auto made = t.decide();
  REQUIRE(made.size() == 1);
  CHECK(made[0].expected->start_s > 40 - 10);
}

TEST_CASE("without switches nobody follows") {
  titan_scene t{variant("titan-no-switch")};
  t.run(1, {{0, 4}}, 60);
  t.s.add(2, tuning(5000));
  CHECK(t.decide().empty());
  CHECK(t.by->decide_again_s(t.s.view()) == 0);
}

TEST_CASE("a job follows one other, and never one on a node that is drained") {
  titan_scene t{variant("titan-no-merger"), 2};
  t.run(1, {{0, 4}}, 60);
  t.run(2, {{1, 4}}, 70);
  for (job_id id = 3; id < 9; ++id) t.s.add(id, tuning(3000 + 2000 * id));
  const auto made = t.decide();
  CHECK_FALSE(made.empty());
  for (const auto& d : made) {
    REQUIRE(d.after);
    REQUIRE(d.where.size() == 1);
    CHECK(d.where.front().node == *d.after - 1);
  }
  auto s = t.s.view();
  const std::vector<unusable_node> drained{{0, "drained"}};
  s.unusable = drained;
  random_source r{1};
  for (const auto& d : t.by->decide(s, r)) CHECK(d.after == job_id{2});
}

TEST_CASE("a longer wait and a larger priority count for more") {
  titan_options o = variant("titan-no-merger");
  const auto weight = [&](double submitted_s, std::int32_t priority) {
    titan_scene t{o};
    auto spec = tuning(500);
    spec.priority = priority;
    t.s.add(1, spec).submitted_s = submitted_s;
    const tuning_tables tables{nullptr};
    const auto p = make_tuning_problem(t.s.view(), t.s.idle, o, tables);
    return p.program.columns.front().value;
  };
  const double alone = weight(5000, 0);
  CHECK(weight(5000, 1) == Approx(2 * alone));
  CHECK(weight(5000, -1) == Approx(alone / 2));
  CHECK(weight(5000 - 4 * 3600, 0) == Approx(2 * alone));
  o.aging_s = 0;
  CHECK(weight(0, 0) == Approx(alone));
}
