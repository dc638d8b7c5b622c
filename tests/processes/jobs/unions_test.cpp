#include <algorithm>
#include <vector>

#include "harness/scratch.hpp"
#include "processes/fixture.hpp"

// Jobs that are trained as one, in a cluster of processes.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr const char* two_node_cluster =
    "name: tuning\n"
    "datacenters:\n"
    "  - name: here\n"
    "    nodes: [{name: n, gpu: T4, gpus: 1, count: 2, intra: pcie3, inter: eth10}]\n"
    "settings: {heartbeat_s: 0.2, lease_s: 5, restart_s: 0.5, checkpoint_s: 0.1}\n";

struct tuning_cluster : fixture {
  explicit tuning_cluster(const scratch& files)
      : fixture{"unions", files.write("two.yaml", two_node_cluster), "titan"} {
    REQUIRE(wait_for_nodes());
  }

  /// Simulated fine-tuning that may be merged with others of the same kind.
  job_id submit_tuning(const std::string& name) {
    job_spec spec = program(name, "");
    spec.program.command.clear();
    spec.iterations = its_iterations;
    spec.merging.dataset_card = {"animals", "photo"};
    return submit(spec);
  }

  explanation explained(job_id id) {
    const auto reply = client->ask(explain_job{0, id}, long_s).reply;
    REQUIRE(reply);
    return std::get<explanation>(reply->first);
  }

  std::vector<job_status> all(const std::vector<job_id>& ids) {
    std::vector<job_status> found;
    for (const auto id : ids) found.push_back(job(id));
    return found;
  }

  static constexpr std::uint64_t its_iterations = 40;
};

std::vector<job_id> others(std::vector<job_id> ids, job_id but) {
  std::erase(ids, but);
  return ids;
}

/// One union of these jobs, as each of them shows it.
void check_merged(tuning_cluster& f, const std::vector<job_id>& members, lease_id lease) {
  for (const auto& j : f.all(members)) {
    CAPTURE(j.job);
    CHECK(j.state == job_state::running);
    CHECK(j.merged_with == others(members, j.job));
    CHECK(j.lease == lease);
    CHECK(j.progress.attempts == 1);
    CHECK(j.owner == "local");
    CHECK(f.explained(j.job).job.merged_with == j.merged_with);
  }
}

}  // namespace

TEST_CASE("jobs submitted together run as one, through a controller's restart, until one leaves") {
  const scratch files;
  tuning_cluster f{files};
  std::vector<job_id> submitted;
  for (int i = 1; i <= 6; ++i) submitted.push_back(f.submit_tuning(fmt::format("tuning-{}", i)));

  // The first job would get both GPUs if it were decided alone.
  REQUIRE(f.is(1, job_state::running));
  const auto first = f.job(1);
  REQUIRE(first.merged_with);
  REQUIRE(first.lease);
  auto members = *first.merged_with;
  members.insert(members.begin(), 1);
  check_merged(f, members, *first.lease);
  REQUIRE(f.wait_until([&](const auto&) { return f.job(1).iteration >= 2; }));

  f.cluster->kill("controller");
  REQUIRE(f.cluster->restart("controller"));
  REQUIRE(f.wait_for_nodes());
  check_merged(f, members, *first.lease);
  const auto before = f.job(1).iteration;
  REQUIRE(f.wait_until([&](const auto&) { return f.job(1).iteration > before; }));
  check_merged(f, members, *first.lease);

  REQUIRE(f.client->ask(cancel_job{0, 1}, long_s).reply);
  CHECK(f.is(1, job_state::cancelled));
  const auto left = others(members, 1);
  // The rest wait as themselves and start again, with the iterations of the union.
  REQUIRE(f.wait_until([&](const auto&) {
    return std::ranges::all_of(f.all(left), [&](const job_status& j) {
      return j.lease != first.lease || j.state == job_state::waiting;
    });
  }));
  for (const auto& j : f.all(left)) CHECK(j.progress.iterations_done >= before);

  REQUIRE(f.wait_until(all_final));
  for (const auto& j : f.all(others(submitted, 1))) {
    CAPTURE(j.job, j.detail);
    CHECK(j.state == job_state::finished);
    CHECK(j.progress.iterations_done == f.its_iterations);
    CHECK(j.progress.attempts == (std::ranges::count(left, j.job) ? 2 : 1));
  }
}
