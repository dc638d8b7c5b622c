#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "harness/source_dir.hpp"
#include "messages/base/random.hpp"
#include "processes/trainings.hpp"
#include "runtime/host/pause.hpp"

// Trainings that lose nodes for good, in real processes: the peers of the lost stages go on for
// them.

using namespace troupe;
using namespace troupe::test;

namespace {

/// Three nodes of two GPUs in one datacenter, and pipelines of two stages.
class three_nodes : public fixture {
 public:
  explicit three_nodes(const char* name)
      : fixture{name,
                fs::path{troupe::test::source_dir()} / "tests/processes/clusters/two-sites.yaml",
                cli::default_policy} {
    REQUIRE(wait_for_nodes());
  }

  job_spec training(const std::string& name, std::uint64_t iterations,
                    std::uint32_t pipelines = 3) {
    auto job = two_stages(*this, iterations);
    chosen_group g{pipelines, 2, {}};
    for (int s = 0; s < 2; ++s) g.stages.push_back({"T4", 4, {}, "west"});
    job.name = name;
    job.microbatches.reset();
    job.global_batch = 2 * static_cast<std::uint32_t>(microbatches_of({g}));
    job.pipeline = {};
    job.pipeline.groups = {g};
    job.train->checkpoint = (state / name).string();
    job.train->checkpoint_every = 1000;
    return job;
  }

  bool reaches(job_id id, std::uint64_t iteration) {
    return wait_until([&](const auto&) { return iterations(*this, id) >= iteration; });
  }

  std::string node_of_part(job_id id, std::size_t part) {
    return jobs().nodes.at(job(id).where.at(part).node).name;
  }
};

double longest_gap_s(const training_report& r) {
  double longest = 0;
  for (std::size_t i = 1; i < r.iterations.size(); ++i)
    longest = std::max(longest, r.iterations[i].end_s - r.iterations[i - 1].end_s);
  return longest;
}

/// The training has ended in its first attempt, with the undisturbed curve.
training_report ended_like(three_nodes& f, job_id id, const training_report& undisturbed) {
  const bool ended = f.wait_until(all_final);
  auto run = how(f, id);
  std::string events;
  for (const auto& e : run.events) events += e + '\n';
  INFO(f.job(id).detail << '\n' << events);
  REQUIRE(ended);
  CHECK(f.job(id).state == job_state::finished);
  CHECK(f.job(id).progress.attempts == 1);
  check_same_curve(undisturbed, run);
  return run;
}

}  // namespace

TEST_CASE("a training whose node is killed goes on without it, and loses no iteration") {
  three_nodes f{"lost-node"};
  constexpr std::uint64_t length = 60;
  const auto undisturbed = trained(f, f.training("undisturbed", length));
  const auto id = f.submit(f.training("lost", length));
  REQUIRE(f.reaches(id, 10));
  f.cluster->kill(f.node_of_part(id, 1));
  REQUIRE(f.reaches(id, 40));
  f.cluster->kill(f.node_of_part(id, 2));
  const auto run = ended_like(f, id, undisturbed);
  REQUIRE(run.heals);
  CHECK(run.heals->count == 2);
  // The second node may have had stages of the first.
  CHECK(run.heals->lost >= 4);
  CHECK(run.heals->lost <= 6);
  std::printf("lost-node: longest gap between two iterations %.2f s, healed in %.2f s\n",
              longest_gap_s(run), run.heals->seconds);
}

TEST_CASE(
    "a training whose node is stopped and continued gets its stages back there, with the same "
    "curve") {
  three_nodes f{"stopped-node"};
  constexpr std::uint64_t length = 120;
  const auto undisturbed = trained(f, f.training("undisturbed", length));
  const auto id = f.submit(f.training("stopped", length));
  REQUIRE(f.reaches(id, 10));
  const auto node = f.node_of_part(id, 1);
  const auto pid = f.cluster->id(node);
  ::kill(pid, SIGSTOP);
  const bool healed = f.wait_until([&](const auto&) { return bool{how(f, id).heals}; });
  ::kill(pid, SIGCONT);
  REQUIRE(healed);
  const auto run = ended_like(f, id, undisturbed);
  REQUIRE(run.heals);
  CHECK(run.heals->count == 1);
  CHECK(run.heals->joined.value_or(0) >= 1);
}

namespace {

/// The longest time in which a training of two pipelines on two of the three nodes does no
/// iteration that it has not done before, while one of these nodes is killed.
/// Only the controller is asked, since iterations that begin again have other times.
double gap_s(three_nodes& f, const char* on_loss, const training_report& undisturbed) {
  const auto length = undisturbed.iterations.size();
  auto job = f.training(on_loss, length, 2);
  job.train->on_loss = on_loss;
  job.train->checkpoint_every = 50;
  const auto id = f.submit(job);
  REQUIRE(f.reaches(id, 20));
  f.cluster->kill(f.node_of_part(id, 1));
  std::uint64_t done = 0;
  double longest_s = 0;
  runtime::stopwatch since;
  const bool ended = f.wait_until([&](const query_reply& r) {
    if (const auto now = iterations(f, id); now > done) {
      longest_s = std::max(longest_s, since.s());
      done = now;
      since = runtime::stopwatch{};
    }
    return all_final(r);
  });
  INFO(f.job(id).detail);
  REQUIRE(ended);
  REQUIRE(f.job(id).state == job_state::finished);
  const auto run = how(f, id);
  check_same_curve(undisturbed, run);
  const bool heals = job.train->on_loss == "heal";
  CHECK(bool{run.heals} == heals);
  CHECK(f.job(id).progress.attempts == (heals ? 1 : 2));
  return longest_s;
}

}  // namespace

TEST_CASE("a training heals in a tenth of the time that its restart takes, with a spare node",
          "[.long]") {
  three_nodes f{"heal-or-restart"};
  const auto undisturbed = trained(f, f.training("undisturbed", 120, 2));
  // The killed node stays away: the restart has the third one, and comes last.
  const double healed_s = gap_s(f, "heal", undisturbed);
  for (const auto& n : f.jobs().nodes)
    if (!n.present) CHECK(f.cluster->restart(n.name));
  REQUIRE(f.wait_for_nodes());
  const double restarted_s = gap_s(f, "restart", undisturbed);
  std::printf("heal-or-restart: gap %.2f s healed, %.2f s restarted\n", healed_s, restarted_s);
  CHECK(restarted_s >= 10 * healed_s);
}

TEST_CASE(
    "of 20 nodes lost at random moments none costs an iteration, whether it comes back or not",
    "[.long]") {
  constexpr int rounds = 20;
  three_nodes f{"lost-at-random"};
  constexpr std::uint64_t length = 80;
  const auto undisturbed = trained(f, f.training("undisturbed", length));
  random_source random{17};
  std::vector<double> gaps;
  for (int round = 0; round < rounds; ++round) {
    const bool comes_back = round % 2 == 1;
    CAPTURE(round, comes_back);
    const auto id = f.submit(f.training(fmt::format("lost-{}", round), length));
    REQUIRE(f.reaches(id, 5 + random.below(20)));
    const auto node = f.node_of_part(id, 1 + random.below(2));
    runtime::pause(0.2 * random.uniform());
    if (comes_back) {
      const auto pid = f.cluster->id(node);
      ::kill(pid, SIGSTOP);
      runtime::pause(0.3 + 1.5 * random.uniform());
      ::kill(pid, SIGCONT);
    } else {
      f.cluster->kill(node);
    }
    const auto run = ended_like(f, id, undisturbed);
    if (!comes_back) CHECK(run.heals);
    gaps.push_back(longest_gap_s(run));
    const auto joined = run.heals ? run.heals->joined.value_or(0) : 0;
    std::printf("lost-at-random %d: %s, longest gap %.2f s, %llu joined\n", round,
                comes_back ? "stopped" : "killed", gaps.back(),
                static_cast<unsigned long long>(joined));
    if (!comes_back) CHECK(f.cluster->restart(node));
    REQUIRE(f.wait_for_nodes());
  }
  std::ranges::sort(gaps);
  std::printf("lost-at-random: median of the longest gaps %.2f s, the longest %.2f s\n",
              gaps[gaps.size() / 2], gaps.back());
}

TEST_CASE("of 5 nodes killed under trainings without checkpoints none costs an iteration",
          "[.long]") {
  three_nodes f{"lost-unsaved"};
  constexpr std::uint64_t length = 80;
  const auto undisturbed = trained(f, f.training("undisturbed", length));
  random_source random{23};
  for (int round = 0; round < 5; ++round) {
    CAPTURE(round);
    auto job = f.training(fmt::format("unsaved-{}", round), length);
    job.train->checkpoint.clear();
    const auto id = f.submit(job);
    REQUIRE(f.reaches(id, 5 + random.below(20)));
    const auto node = f.node_of_part(id, 1 + random.below(2));
    runtime::pause(0.2 * random.uniform());
    f.cluster->kill(node);
    const auto run = ended_like(f, id, undisturbed);
    CHECK(run.heals);
    std::printf("lost-unsaved %d: longest gap %.2f s\n", round, longest_gap_s(run));
    CHECK(f.cluster->restart(node));
    REQUIRE(f.wait_for_nodes());
  }
}
