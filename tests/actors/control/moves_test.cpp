#include <set>

#include "actors/control/trainings.hpp"

// Trainings that are moved while they run.

using namespace troupe;
using namespace troupe::test;

namespace {

move_reply move(virtual_cluster& v, move_job m) {
  if (m.job == 0) m.job = 1;
  return asked<move_reply>(v, m);
}

move_job to_stages(std::uint32_t stages) {
  move_job m;
  m.stages = stages;
  return m;
}

move_job to_nodes(std::vector<std::string> nodes) {
  move_job m;
  m.nodes = std::move(nodes);
  return m;
}

std::set<std::string> nodes_of(const allocation& where) {
  std::set<std::string> names;
  for (const auto& share : where) names.insert(harness::small_cluster()->nodes[share.node].name);
  return names;
}

}  // namespace

TEST_CASE("a training moves to other stages and nodes without losing iterations") {
  virtual_cluster v{training_options()};
  v.submit({{1, long_training()}});
  v.world().run_until(30.0);
  REQUIRE(seen(v).state == job_state::running);
  std::uint32_t attempts = 1;
  const auto check_moved = [&](const move_job& m) {
    const auto before = seen(v);
    const auto said = move(v, m);
    INFO(said.why.text);
    REQUIRE(said.done);
    until(v, job_state::running);
    const auto now = seen(v);
    CHECK(now.progress.attempts == ++attempts);
    CHECK(now.where == said.where);
    CHECK(now.how == said.how);
    CHECK(now.progress.iterations_done >= before.iteration);
    v.world().run_until(v.world().now_s() + 5);
    return seen(v);
  };
  auto now = check_moved(to_stages(1));
  CHECK(now.how.pipeline_parallel == 1);
  CHECK(now.how.data_parallel == 2);
  now = check_moved(to_stages(3));
  CHECK(now.how.stages.size() == 3);
  CHECK(now.how.rows == 2);
  now = check_moved(to_nodes({"b-0", "b-1", "c-0"}));
  CHECK(nodes_of(now.where).count("a-0") == 0);
  CHECK(now.how.stages.size() == 3);
  auto type = move_job{};
  type.gpu_type = "A100-40GB";
  now = check_moved(type);
  for (const auto& share : now.where)
    CHECK(harness::small_cluster()->gpu_of(share.node).name == "A100-40GB");
  run_to_end(v);
  CHECK(seen(v).progress.attempts == attempts);
  check_iterations(v, 2000);
}

TEST_CASE("a training keeps its rows when its number of pipelines changes") {
  virtual_cluster v{training_options()};
  v.submit({{1, long_training()}});  // two pipelines of two micro-batches of two rows
  v.world().run_until(30.0);
  move_job one;
  one.data_parallel = 1;
  const auto said = move(v, one);
  REQUIRE(said.done);
  CHECK(said.how.rows == 2);
  CHECK(said.how.microbatches == 4);
  run_to_end(v);
  check_iterations(v, 2000);
}

TEST_CASE("an impossible move is refused, and the job keeps running") {
  virtual_cluster v{training_options()};
  auto bounded = long_training();
  bounded.limits.max_gpus = 4;
  v.submit({{1, bounded}, {3, harness::small_job("work", 100'000)}});
  v.world().run_until(30.0);
  const auto code = [&](const move_job& m) {
    const auto said = move(v, m);
    CHECK_FALSE(said.done);
    return said.why.code;
  };
  using kind = reason::kind;
  auto unknown = to_stages(1);
  unknown.job = 9;
  CHECK(code(unknown) == kind::unknown);
  auto no_training = to_stages(1);
  no_training.job = 2;
  CHECK(code(no_training) == kind::invalid);
  CHECK(code(to_stages(2)) == kind::invalid);  // it runs so already
  CHECK(code(to_nodes({"a-9"})) == kind::unknown);
  CHECK(code(to_stages(100)) == kind::infeasible);
  CHECK_FALSE(move(v, to_stages(4)).done);  // eight GPUs, and it may have four
  auto tensor = move_job{};
  tensor.tensor_parallel = 5;
  CHECK_FALSE(move(v, tensor).done);
  v.world().run_until(v.world().now_s() + 10);
  CHECK(seen(v).progress.attempts == 1);
  run_to_end(v);
  CHECK(move(v, to_stages(1)).why.code == kind::invalid);  // it has ended
  check_iterations(v, 2000);
}

TEST_CASE("moves of absurd size are refused at once, for models and for slots") {
  virtual_cluster v{training_options()};
  job_spec slots;
  slots.name = "slots";
  slots.slots = slot_costs{};
  slots.pipeline.stages = 2;
  slots.pipeline.microbatches = 4;
  slots.iterations = 100'000;
  v.submit({{1, long_training()}, {3, slots}});
  v.world().run_until(30.0);
  for (job_id id = 1; id <= 2; ++id) {
    REQUIRE(seen(v, id).state == job_state::running);
    for (const auto field :
         {&move_job::stages, &move_job::data_parallel, &move_job::tensor_parallel}) {
      move_job m;
      m.job = id;
      m.*field = 4'000'000'000;
      const auto said = move(v, m);
      CHECK_FALSE(said.done);
      CHECK_FALSE(said.why.text.empty());
    }
    CHECK(seen(v, id).progress.attempts == 1);
  }
}

TEST_CASE("the destination GPUs of a move are reserved until the training starts there") {
  auto o = training_options();
  virtual_cluster v{o};
  auto training = long_training();
  training.model = harness::gpt2(24, 1024, 16);
  training.global_batch = 256;  // an iteration takes a while
  training.pipeline.microbatches = 64;
  training.iterations = 60;
  v.submit({{1, training}});
  v.world().run_until(60.0);
  REQUIRE(seen(v).state == job_state::running);
  const auto said = move(v, to_nodes({"b-0", "b-1", "c-0"}));
  INFO(said.why.text);
  REQUIRE(said.done);
  // Jobs that would take whatever is idle.
  std::vector<arrival> others;
  for (int i = 0; i < 12; ++i)
    others.push_back(
        {v.world().now_s() + 0.01, harness::small_job("other" + std::to_string(i), 50)});
  v.submit(others);
  until(v, job_state::running);
  CHECK(seen(v).where == said.where);
  CHECK(seen(v).progress.attempts == 2);
  run_to_end(v);
  for (job_id id = 2; id < 14; ++id) run_to_end(v, id);
  check_iterations(v, 60);
}

TEST_CASE(
    "a training moves under message loss and host crashes, and releases every GPU at its end") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto o = lossy_options(seed);
    virtual_cluster v{o};
    v.submit({{1, long_training()}});
    v.world().run_until(30.0 + 0.01 * static_cast<double>(seed));
    random_source random{seed};
    auto m = to_stages(1 + static_cast<std::uint32_t>(random.below(3)));
    m.request = seed;
    m.job = 1;
    if (random.below(2) == 0) m.data_parallel = 1;
    v.send(m, 1e6, [](const answer&) {});
    const auto& c = *o.cluster;
    const auto sites = c.datacenters.size(), hosts = 1 + sites + c.nodes.size();
    v.world().at(v.world().now_s() + 4 * random.uniform(), [&, victim = random.below(hosts)] {
      v.world().crash(
          static_cast<address>(
              victim <= sites ? victim : node_address(static_cast<node_index>(victim - 1 - sites))),
          2);
    });
    INFO("seed " << seed);
    run_to_end(v);
    check_iterations(v, 2000);
    v.world().run_until(v.world().now_s() + 30);
    for (const auto& n : asked<query_reply>(v, query_jobs{}).nodes) CHECK(n.idle == n.gpus);
  }
}
