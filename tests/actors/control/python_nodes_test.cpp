#include "actors/control/controller_by_hand.hpp"

// Nodes that say which Python they have.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

struct python_controller : controller_by_hand {
  void all_have(const std::string& torch) {
    for (node_index n = 0; n < cluster_->nodes.size(); ++n) pythons[n] = {"python3", torch};
    all_report();
  }
  void pass(double seconds) { world.run_until(world.now_s() + seconds); }
  std::size_t ordered() {
    note_orders();
    std::size_t parts = 0;
    for (const auto& [n, o] : orders) parts += o.work.size();
    return parts;
  }
};

}  // namespace

TEST_CASE("a training waits while no node has PyTorch, and starts when one reports it") {
  python_controller c;
  c.all_have("");
  const auto id = c.submit(harness::layers_job("/its.py"));
  c.pass(5);
  CHECK(c.job(id).state == job_state::waiting);
  CHECK_THAT(c.ask<explanation>(explain_job{++c.asked, id}).summary,
             Catch::Contains("no node has PyTorch: python3 on " + c.cluster_->nodes[0].name));
  CHECK(c.ordered() == 0);
  c.all_have("1.13.1");
  c.pass(5);
  CHECK(c.job(id).state == job_state::running);
  CHECK(c.ordered() > 0);
}

TEST_CASE("a simulated training of layers starts on nodes without PyTorch") {
  python_controller c;
  c.all_have("");
  auto job = harness::layers_job("/its.py");
  job.train->device = "sim";
  const auto id = c.submit(job);
  c.pass(5);
  CHECK(c.job(id).state == job_state::running);
}

TEST_CASE("a training starts on nodes whose reports have no Python") {
  python_controller c;
  c.all_report();
  const auto id = c.submit(harness::layers_job("/its.py"));
  c.pass(5);
  CHECK(c.job(id).state == job_state::running);
}

TEST_CASE("a node that reports no PyTorch gets other work") {
  python_controller c;
  c.all_have("");
  const auto id = c.submit(harness::small_job("plain", 1000));
  c.pass(5);
  CHECK(c.job(id).state == job_state::running);
}
