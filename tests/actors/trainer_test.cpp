#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include <caf/all.hpp>

#include "actors/training/stage_backend.hpp"
#include "actors/training/trainer.hpp"
#include "harness/facts.hpp"
#include "harness/scratch.hpp"
#include "harness/small_cluster.hpp"
#include "messages/codec.hpp"
#include "planners/pipeline/placement.hpp"
#include "runtime/virtual/virtual_world.hpp"

// A trainer whose stages, controller and node are the test itself.

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr lease_id lease = 7;
constexpr std::uint64_t incarnation = 3;

/// Keeps what is sent.
class recording_transport final : public runtime::transport {
 public:
  address self() const override { return 0; }
  bool send(address, frame f, std::uint32_t) override {
    if (auto m = decode(f.header.bytes())) sent.push_back(std::move(m->second));
    return true;
  }
  void listen(receiver) override {}
  void handled(const frame&) override {}

  std::vector<message> sent;
};

/// The node's end of what its trainer says to it.
struct node_of_test {
  std::optional<training_over> over;

  node_actor::behavior_type behavior() {
    return {[](const arrived&) {},
            [](const local_frame&) {},
            [](const programs_changed&) {},
            [](const work_done&) {},
            [this](const training_over& o) { over = o; },
            [](const training_event&) {},
            [](const tick&) {}};
  }
};

/// One pipeline of two stages.
class trained_by_hand {
 public:
  explicit trained_by_hand(job_spec job, std::uint64_t reached = 0)
      : world_{*harness::small_cluster()} {
    const auto c = harness::small_cluster();
    const auto placed = planners::place_pipelines(*c, planners::idle_index{*c}, job, true);
    REQUIRE(placed);
    trainer_options o;
    o.cluster = c;
    o.lease = lease;
    o.job = 1;
    o.incarnation = incarnation;
    o.backend = "sim";
    o.order.spec = std::move(job);
    o.order.how = placed->how;
    o.order.reached = reached;
    for (const auto& share : placed->where) {
      std::vector<std::uint16_t> devices(share.gpus);
      std::iota(devices.begin(), devices.end(), std::uint16_t{0});
      o.order.parts.push_back({share.node, 1, devices});
    }
    world_.add_host(node_address(*c, 0), [this, o](const runtime::host& h) mutable {
      auto host = h;
      host.net = net_;
      const auto node =
          world_.system().spawn([this](node_actor::pointer) { return node_.behavior(); });
      o.messenger = actors::messenger{host, node};
      trainer_ = world_.system().spawn(trainer, std::move(o));
      return std::vector{caf::actor_cast<caf::actor>(node), caf::actor_cast<caf::actor>(trainer_)};
    });
    settle();
  }

  /// What stage `s` of the pipeline says next.
  stage_report report_of(std::uint32_t s, std::uint64_t iteration, double loss = 0) const {
    stage_report r;
    r.name = {lease, 0, s};
    r.incarnation = incarnation;
    r.iteration = iteration;
    r.loss = loss;
    return r;
  }
  void hear(const stage_report& r) {
    caf::anon_send(trainer_, inbound<stage_report>{1, r, {}, {}});
    settle();
  }
  void stop() {
    caf::anon_send(trainer_, stop_training{});
    settle();
  }

  /// Acknowledges every report until the training is over: all iterations that the controller has
  /// been told of.
  std::vector<iteration_record> reports_at_end() {
    std::vector<iteration_record> all;
    for (int i = 0; i < 10; ++i) {
      for (const auto& m : std::exchange(net_->sent, {})) {
        const auto* r = std::get_if<training_report>(&m);
        if (!r) continue;
        for (const auto& one : r->iterations)
          if (all.empty() || one.iteration > all.back().iteration) all.push_back(one);
        caf::anon_send(trainer_, inbound<training_report_ack>{0, {lease, r->sequence}, {}, {}});
      }
      world_.run_until(world_.now_s() + 1.5);
    }
    return all;
  }
  /// Lets the trainer report.
  void wait() { world_.run_until(world_.now_s() + 1.5); }
  const std::vector<message>& sent() const { return net_->sent; }
  const std::optional<training_over>& over() const { return node_.over; }

 private:
  void settle() { world_.run_until(world_.now_s() + 0.01); }

  std::shared_ptr<recording_transport> net_ = std::make_shared<recording_transport>();
  node_of_test node_;
  runtime::virtual_world world_;
  trainer_actor trainer_;
};

job_spec two_stages(std::uint64_t count) {
  auto job = harness::small_job("by-hand", count);
  job.train.emplace();
  job.train->schedule = "varuna";
  job.pipeline.stages = 2;
  job.pipeline.data_parallel = 1;
  job.pipeline.microbatches = 2;
  return job;
}

}  // namespace

TEST_CASE("the loss of an iteration that a stage saves while it is told to halt is not lost") {
  trained_by_hand t{two_stages(100)};
  for (const auto s : {0u, 1u}) t.hear(t.report_of(s, 0));
  for (const auto s : {0u, 1u}) t.hear(t.report_of(s, 1, s * 0.9));
  t.hear(t.report_of(0, 2));
  t.stop();
  // Both are through with iteration 2. The last stage is saving it, and has not reported it yet.
  for (const auto s : {0u, 1u}) {
    auto halted = t.report_of(s, 2);
    halted.halts_at = 3 - s;
    t.hear(halted);
  }
  auto saved = t.report_of(1, 2, 0.8);
  t.hear(saved);
  for (const auto s : {0u, 1u}) {
    auto last = t.report_of(s, 3, s * 0.7);
    last.saved = 3;
    t.hear(last);
  }
  const auto reported = t.reports_at_end();
  REQUIRE(reported.size() == 3);
  CHECK(reported[0].loss == 0.9);
  CHECK(reported[1].loss == 0.8);
  CHECK(reported[2].loss == 0.7);
  REQUIRE(t.over());
  CHECK(t.over()->how == part_report::state::stopped);
  CHECK(troupe::test::has_facts(t.over()->detail, {"iteration 3 of 100", "no iteration"}));
}

TEST_CASE("a trainer tells of saved iterations that its predecessor did not get to tell of") {
  const test::scratch directory;
  auto job = two_stages(7);
  job.train->device = "cpu";
  job.train->checkpoint = directory.path();
  {
    curve_file curve{directory.path(), lease - 1};
    REQUIRE(open_checkpoints(directory.path(), lease - 1));
    REQUIRE(curve.resume(0, 0));
    for (std::uint64_t i = 1; i <= 7; ++i) curve.add({i, 1.0 / static_cast<double>(i), 0, 0, 1, 0});
    REQUIRE(curve.write());
    std::filesystem::create_directories(checkpoint_path(directory.path(), 5));
    directory.write("iteration-000005/model.safetensors.index.json", "{}");
  }
  trained_by_hand t{job, 3};  // the controller knows three
  for (const auto s : {0u, 1u}) t.hear(t.report_of(s, 5));
  for (const auto s : {0u, 1u}) t.hear(t.report_of(s, 6, s * 0.5));
  const auto reported = t.reports_at_end();
  REQUIRE(reported.size() == 3);
  CHECK(reported[0].iteration == 4);
  CHECK(reported[0].loss == 1.0 / 4);
  CHECK(reported[1].loss == 1.0 / 5);
  CHECK(reported[2].loss == 0.5);
}

TEST_CASE("a checkpoint whose iteration a stage has not reported yet is complete when it has") {
  trained_by_hand t{two_stages(100)};
  const auto saved = [&] {
    std::uint64_t newest = 0;
    for (const auto& m : t.sent())
      if (const auto* r = std::get_if<training_report>(&m)) newest = r->saved;
    return newest;
  };
  for (const auto s : {0u, 1u}) t.hear(t.report_of(s, 0));
  // The first stage's reports of iterations 1 and 2 are lost, and come later.
  for (const std::uint64_t i : {1, 2}) {
    auto r = t.report_of(1, i);
    if (i == 2) r.saved = 2;
    t.hear(r);
  }
  auto later = t.report_of(0, 2);
  later.saved = 2;
  t.hear(later);
  for (const std::uint64_t i : {1, 2}) {
    t.wait();
    CHECK(saved() == 0);
    t.hear(t.report_of(0, i));
  }
  t.wait();
  CHECK(saved() == 2);
}
