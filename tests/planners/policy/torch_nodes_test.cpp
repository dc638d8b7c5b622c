#include <catch2/catch.hpp>

#include "planners/scene.hpp"

// Trainings whose layers PyTorch computes, where some nodes have none.

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::same;
using scene_of_policies::scene;

namespace {

job_spec needing_torch() {
  auto job = sample::job(sample::gpt("tiny", 64, 6, 4, 64, 256), 16);
  job.train = training{};
  job.train->device = "cpu";
  job.train->program.emplace().file = "gpt.py";
  job.pipeline.stages = 2;
  job.pipeline.data_parallel = 1;
  job.pipeline.microbatches = 4;
  return job;
}

/// Four nodes of one GPU, of which some have no PyTorch.
struct torch_scene {
  std::shared_ptr<const policy> by;
  scene s{[] {
    cluster c;
    c.datacenters.push_back({"here", ""});
    sample::add_nodes(c, sample::a100_80, 4, 1);
    return c;
  }()};
  std::vector<node_without_torch> without;
  std::vector<unusable_node> absent;

  explicit torch_scene(std::string_view name)
      : by{with_torch_nodes(with_trainings(make_policy(name)))} {
    s.by = by.get();
  }
  void lacks(std::initializer_list<node_index> nodes) {
    for (const auto n : nodes) without.push_back({n, "python3"});
  }
  snapshot view() const {
    auto v = s.view();
    v.without_torch = without;
    v.unusable = absent;
    return v;
  }
  std::vector<decision> decide() const {
    random_source r{1};
    return by->decide(view(), r);
  }
  void settle() { carry_out(s, decide()); }
  /// Nodes of a running job; empty: it does not run.
  std::set<node_index> nodes_of(job_id id) const {
    std::set<node_index> all;
    if (s.running.contains(id))
      for (const auto& share : s.running.at(id).where) all.insert(share.node);
    return all;
  }
  std::string why(job_id id) const {
    s.notes.clear();
    (void)decide();
    return by->why_waiting(view(), id).text;
  }
};

}  // namespace

TEST_CASE("a PyTorch training gets nodes that have PyTorch, and others get the rest") {
  for (const auto name : {"frenzy", "troupe", "fcfs", "espresso"}) {
    INFO(name);
    torch_scene t{name};
    t.lacks({0, 2});
    t.s.add(1, needing_torch());
    auto plain = needing_torch();
    plain.train->program.reset();
    t.s.add(2, plain);
    t.settle();
    CHECK(t.nodes_of(1) == std::set<node_index>{1, 3});
    CHECK(t.nodes_of(2) == std::set<node_index>{0, 2});
  }
}

TEST_CASE("without a node that lacks PyTorch a policy decides as it does alone") {
  torch_scene t{"frenzy"};
  t.s.add(1, needing_torch());
  t.s.add(2, needing_torch());
  random_source r{1};
  CHECK(same(t.decide(), with_trainings(make_policy("frenzy"))->decide(t.s.view(), r)));
}

TEST_CASE("a training whose job names its interpreter may start on any node") {
  torch_scene t{"frenzy"};
  t.lacks({0, 1, 2, 3});
  auto own = needing_torch();
  own.train->program->python = "/opt/venv/bin/python";
  t.s.add(1, own);
  t.settle();
  CHECK(t.nodes_of(1).size() == 2);
}

TEST_CASE(
    "a training that no node's PyTorch can run waits, with interpreter and node in its reason") {
  torch_scene t{"frenzy"};
  t.lacks({0, 1, 2, 3});
  t.s.add(1, needing_torch());
  CHECK(t.decide().empty());
  CHECK_THAT(t.why(1), Catch::StartsWith("no node has PyTorch: python3 on ") &&
                           Catch::Contains(t.s.cluster.nodes[0].name));
  // One that is absent may have it.
  t.without.pop_back();
  t.absent = {{3, "absent"}};
  t.s.idle.set_idle(3, 0);
  CHECK(t.decide().empty());
  CHECK_THAT(t.why(1), !Catch::Contains("no node has PyTorch"));
  // Two nodes have it, and another training.
  t.absent.clear();
  t.s.idle.set_idle(3, 1);
  t.without = {{0, "python3"}, {2, "python3"}};
  t.settle();
  CHECK(t.nodes_of(1) == std::set<node_index>{1, 3});
  t.s.add(2, needing_torch());
  CHECK(t.decide().empty());
  CHECK_THAT(t.why(2), Catch::Contains("nodes without PyTorch: 2"));
}
