#include <algorithm>
#include <cstdio>
#include <map>

#include "gpu/model/safetensors.hpp"
#include "harness/source_dir.hpp"
#include "messages/base/random.hpp"
#include "messages/base/statistics.hpp"
#include "processes/trainings.hpp"

// Trainings whose pipelines are groups in two datacenters, in real processes over an emulated WAN.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint32_t rows = 2;

/// Pipelines of two stages in a datacenter, each of half of the model's four layers.
chosen_group pipelines_in(const std::string& datacenter, std::uint32_t pipelines,
                          std::uint32_t microbatches, const std::string& gpu = "T4") {
  chosen_group g{pipelines, microbatches, {}};
  for (int s = 0; s < 2; ++s) g.stages.push_back({gpu, 4, {}, datacenter});
  return g;
}

class two_sites : public fixture {
 public:
  explicit two_sites(const char* name)
      : fixture{name,
                fs::path{troupe::test::source_dir()} / "tests/processes/clusters/two-sites.yaml",
                cli::default_policy} {
    REQUIRE(wait_for_nodes());
  }

  /// A GPT, so large that its gradients take longer on the WAN than its steps on a core. Its last
  /// iteration is saved, in a folder of this name.
  job_spec of_groups(const std::string& name, const std::vector<chosen_group>& groups,
                     std::uint64_t iterations) {
    auto job = two_stages(*this, iterations);
    job.name = name;
    job.model.hidden = 128;
    job.microbatches.reset();
    job.global_batch = rows * static_cast<std::uint32_t>(microbatches_of(groups));
    job.pipeline = {};
    job.pipeline.groups = groups;
    job.train->checkpoint = (state / name).string();
    job.train->checkpoint_every = 1000;
    job.train->replan_every = 5;
    return job;
  }

  /// The tensors that were saved after an iteration: weights, and the optimizer's state.
  std::map<std::string, std::vector<float>> saved(const std::string& name,
                                                  std::uint64_t iteration) const {
    std::map<std::string, std::vector<float>> all;
    const auto folder = state / name / fmt::format("iteration-{:06}", iteration);
    REQUIRE(fs::is_directory(folder));
    for (const auto& file : fs::directory_iterator{folder}) {
      if (file.path().extension() != ".safetensors") continue;
      const auto opened = gpu::safetensors::open(file.path());
      REQUIRE(opened);
      for (const auto& [tensor, where] : opened->tensors()) {
        auto& values = all[tensor];
        values.resize((where.end - where.begin) / sizeof(float));
        REQUIRE(opened->read(where, values));
      }
    }
    REQUIRE_FALSE(all.empty());
    return all;
  }
};

double median_s(const training_report& r) {
  std::vector<double> all;
  for (const auto& i : r.iterations) all.push_back(i.end_s - i.begin_s);
  return statistics::median(std::move(all));
}

/// The same pipelines in one datacenter, and where they were chosen to be.
struct compared {
  const char* name;
  std::vector<chosen_group> near, apart;
};

void check_same_training(const compared& x, std::uint64_t iterations) {
  two_sites f{x.name};
  const auto near = trained(f, f.of_groups("near", x.near, iterations));
  CHECK(near.wan_bytes == 0);
  const auto apart = trained(f, f.of_groups("apart", x.apart, iterations));
  REQUIRE(apart.iterations.size() == iterations);
  check_same_curve(near, apart);
  CHECK(apart.iterations.back().loss < apart.iterations.front().loss);
  CHECK(f.saved("apart", iterations) == f.saved("near", iterations));
  CHECK(apart.wan_bytes > 0);
  // Figures for a reader: other work on the machine makes them useless as a limit.
  std::printf("%s: an iteration takes %.1f ms (median of %llu), simulated %.1f ms\n", x.name,
              1e3 * median_s(apart), static_cast<unsigned long long>(iterations),
              1e3 * apart.planned_s);
}

const compared two{"one-and-one",
                   {pipelines_in("west", 2, 2)},
                   {pipelines_in("west", 1, 2), pipelines_in("east", 1, 2)}};
// A sum of the datacenters' sums would have other bits: p0 + (p1 + p2).
const compared three{"one-and-two",
                     {pipelines_in("west", 3, 2)},
                     {pipelines_in("west", 1, 2), pipelines_in("east", 2, 2)}};
const compared shares{"three-to-one",
                      {pipelines_in("west", 1, 3), pipelines_in("west", 1, 1)},
                      {pipelines_in("west", 1, 3), pipelines_in("east", 1, 1, "L4")}};

/// A gateway is killed again and again. All of the training's traffic on the WAN is sums of
/// gradients, so that each time the sum of an iteration waits for it.
void check_killed_gateways(std::uint64_t kills, std::uint64_t iterations_each) {
  two_sites f{"sums-killed"};
  const auto iterations_in_all = kills * iterations_each + 5;
  const auto undisturbed = trained(f, f.of_groups("near", three.near, iterations_in_all));
  const auto id = f.submit(f.of_groups("apart", three.apart, iterations_in_all));
  random_source r{7};
  for (std::uint64_t k = 0; k < kills; ++k) {
    REQUIRE(
        f.wait_until([&](const auto&) { return iterations(f, id) >= k * iterations_each + 1; }));
    runtime::pause(0.5 * r.uniform());  // at any point of an exchange
    REQUIRE(f.job(id).state == job_state::running);
    REQUIRE(f.cluster->restart(r.chance(0.5) ? "west/gateway" : "east/gateway"));
  }
  REQUIRE(f.wait_until(all_final));
  INFO(f.job(id).detail);
  CHECK(f.job(id).state == job_state::finished);
  CHECK(f.job(id).progress.attempts == 1);
  check_same_curve(undisturbed, how(f, id));
  CHECK(f.saved("apart", iterations_in_all) == f.saved("near", iterations_in_all));
}

}  // namespace

TEST_CASE("two pipelines in two datacenters have the losses and the weights of one datacenter") {
  check_same_training(two, 10);
}

TEST_CASE("one pipeline beside two in another datacenter has the losses and weights of one") {
  check_same_training(three, 10);
}

TEST_CASE("shares of three to one, on a node of a third of the speed, change no bit") {
  check_same_training(shares, 10);
}

TEST_CASE("pipelines of groups learn the same in two datacenters, over 50 iterations", "[.long]") {
  for (const auto& x : {two, three, shares}) check_same_training(x, 50);
}

TEST_CASE("a gateway that is killed in a sum over datacenters changes no loss") {
  check_killed_gateways(2, 4);
}

TEST_CASE("a gateway that is killed in a sum over datacenters, ten times, changes no loss",
          "[.long]") {
  check_killed_gateways(10, 5);
}

TEST_CASE("a job's groups are shown in its status, its file and its explanation") {
  two_sites f{"groups-shown"};
  const auto job = f.of_groups("shown", shares.apart, 100'000);
  const auto id = f.submit(job);
  REQUIRE(f.is(id, job_state::running));
  const auto status = f.job(id);
  REQUIRE(status.how.groups);
  CHECK(status.groups ==
        std::vector<std::string>{"1 pipeline in west, 3 micro-batches: T4 x 1, T4 x 1",
                                 "1 pipeline in east, 1 micro-batch: L4 x 1, L4 x 1"});
  const auto asked = f.client->ask(query_jobs{0, id, {}, true}, long_s).reply;
  REQUIRE(asked);
  REQUIRE(std::get<query_reply>(asked->first).spec);
  CHECK(std::get<query_reply>(asked->first).spec->pipeline.groups == job.pipeline.groups);
  // The journal has it.
  f.cluster->kill("controller");
  REQUIRE(f.cluster->restart("controller"));
  REQUIRE(f.wait_for_nodes());
  CHECK(f.job(id).how == status.how);
  CHECK(f.job(id).groups == status.groups);
}

TEST_CASE("groups of names that the cluster lacks, and of other batches, are refused") {
  two_sites f{"groups-refused"};
  const auto refusal = [&](const job_spec& job) {
    const auto reply = f.client->ask(submit_job{0, job}, long_s).reply;
    REQUIRE(reply);
    const auto& said = std::get<submit_reply>(reply->first);
    if (said.job == 0) return said.why.text;
    return std::string{};
  };
  auto job = f.of_groups("refused", two.apart, 5);
  job.global_batch = 7;
  CHECK(refusal(job).find("4 micro-batches must divide global_batch (7)") != std::string::npos);
  job = f.of_groups("refused", two.apart, 5);
  job.pipeline.stages = 2;
  CHECK(refusal(job).find("groups: found with stages") != std::string::npos);
}
