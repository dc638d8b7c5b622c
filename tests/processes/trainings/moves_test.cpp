#include <cmath>
#include <cstdlib>

#include "cli/program.hpp"
#include "messages/base/random.hpp"
#include "processes/journal_ends.hpp"
#include "processes/trainings.hpp"

// Trainings in real processes that are moved while they run.

using namespace troupe;
using namespace troupe::test;

namespace {

result move(const fixture& f, job_id job, std::vector<std::string> to) {
  std::vector<std::string> words{"move", std::to_string(job), "--json", "--state",
                                 f.state.string()};
  words.insert(words.end(), to.begin(), to.end());
  return ::troupe::test::troupe(words);
}

/// It saves when it gets SIGTERM, or never.
job_spec training_to_move(const fixture& f, std::uint64_t iterations) {
  auto job = two_stages(f, iterations);
  job.train->checkpoint_every = 1000;
  job.pipeline.stages_per_datacenter = 0;
  return job;
}

/// Over an emulated WAN, so that a few iterations last long enough for something to happen.
job_spec slow_training(const fixture& f) {
  auto job = two_stages(f, 30);
  job.train->checkpoint_every = 5;
  return job;
}

struct moved {
  std::uint64_t iteration = 0;
  double pause_s = 0;
};

moved check_moved(const fixture& f, job_id job, std::vector<std::string> to) {
  const auto said = move(f, job, std::move(to));
  INFO(said.out << said.err);
  REQUIRE(said.status == 0);
  const auto d = said.document();
  CHECK(d.at("moved") == true);
  CHECK(d.at("lost_iterations") == 0);
  CHECK(d.at("pause_s").get<double>() < 30);
  return {d.at("iteration").get<std::uint64_t>(), d.at("pause_s").get<double>()};
}

void wait_for_iteration(fixture& f, job_id job, std::uint64_t n) {
  REQUIRE(f.wait_until([&](const auto&) { return iterations(f, job) >= n; }));
}

}  // namespace

TEST_CASE("a training moved to other stages and nodes keeps its losses, bit for bit") {
  fixture f{"moved", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  auto job = training_to_move(f, 300);
  job.train->checkpoint.clear();
  const auto undisturbed = trained(f, job);

  const auto id = f.submit(training_to_move(f, 300));
  wait_for_iteration(f, id, 5);
  check_moved(f, id, {"--stages", "3"});
  CHECK(f.jobs().jobs.back().how.stages.size() == 3);
  check_moved(f, id, {"--nodes", "east-1,east-2,middle-2"});
  const auto now = f.jobs();
  for (const auto& share : now.jobs.back().where)
    CHECK_FALSE(now.nodes[share.node].name.starts_with("west"));
  check_moved(f, id, {"--stages", "1"});
  REQUIRE(f.wait_until(all_final));
  CHECK(f.jobs().jobs.back().state == job_state::finished);
  CHECK(f.jobs().jobs.back().progress.attempts == 4);
  check_same_curve(undisturbed, how(f, id));
}

TEST_CASE("a training moved to more pipelines keeps its losses within rounding") {
  fixture f{"moved-wider", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  auto job = slow_training(f);
  job.train->checkpoint.clear();
  const auto undisturbed = trained(f, job);

  const auto id = f.submit(slow_training(f));
  wait_for_iteration(f, id, 5);
  const auto at = check_moved(f, id, {"--data-parallel", "2"}).iteration;
  REQUIRE(f.wait_until(all_final));
  CHECK(f.jobs().jobs.back().how.data_parallel == 2);
  const auto after = how(f, id);
  REQUIRE(after.iterations.size() == undisturbed.iterations.size());
  for (std::size_t i = 0; i < after.iterations.size(); ++i) {
    INFO("iteration " << i + 1 << ", moved after " << at);
    const double a = after.iterations[i].loss, b = undisturbed.iterations[i].loss;
    // Differences of rounding grow while the training goes on; its loss jumps at iteration 20.
    constexpr std::uint64_t soon = 5;
    if (i <= at)
      CHECK(a == b);
    else
      CHECK(std::abs(a / b - 1) < (i <= at + soon ? 1e-6 : 1e-2));
  }
}

TEST_CASE(
    "an impossible move is refused with a sentence and status 1, and the training continues") {
  fixture f{"unmoved", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  const auto id = f.submit(training_to_move(f, 300));
  wait_for_iteration(f, id, 3);
  for (const auto& to : std::vector<std::vector<std::string>>{
           {"--stages", "100"}, {"--nodes", "nowhere"}, {"--gpu", "H100"}, {"--stages", "2"}}) {
    const auto said = move(f, id, to);
    INFO(said.out << said.err);
    CHECK(said.status == 1);
    const auto d = said.document();
    CHECK(d.at("moved") == false);
    CHECK_FALSE(d.at("reason").get<std::string>().empty());
  }
  CHECK(move(f, id, {}).status == 2);
  REQUIRE(f.wait_until(all_final));
  CHECK(f.jobs().jobs.back().progress.attempts == 1);
}

namespace {

/// Kills one process somewhere in a move; the training finishes once, on its curve, and holds
/// nothing.
void check_killed_in_move(std::uint64_t seed, const training_report& undisturbed) {
  INFO("seed " << seed);
  fixture f{"killed-in-move", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  random_source random{seed};
  auto job = slow_training(f);
  const auto id = f.submit(job);
  wait_for_iteration(f, id, 4 + random.below(4));
  move_job m;
  m.job = id;
  m.stages = random.below(2) == 0 ? 1 : 3;
  REQUIRE(f.client->ask(m, long_s).reply);
  runtime::pause(1.2 * random.uniform());
  const auto& names = f.cluster->names();
  const auto victim = names[random.below(names.size())];
  INFO("victim " << victim);
  f.cluster->kill(victim);
  runtime::pause(0.5 * random.uniform());
  REQUIRE(f.cluster->restart(victim));
  const auto done = [&](const query_reply& r) { return !r.jobs.empty() && all_final(r); };
  // A tensor that a gateway takes with it is missed only after a minute.
  REQUIRE((f.wait_until(done) || f.wait_until(done)));
  const auto ended = f.jobs().jobs.back();
  INFO(ended.detail);
  CHECK(ended.state == job_state::finished);
  check_same_curve(undisturbed, how(f, id));
  CHECK(f.wait_until([](const query_reply& r) {
    return std::ranges::all_of(r.nodes,
                               [](const auto& n) { return n.present && n.idle == n.gpus; });
  }));
  CHECK(ends_in_journal(f) == std::map<job_id, int>{{id, 1}});
}

void check_kills(std::uint64_t first, std::uint64_t count) {
  training_report undisturbed;
  {
    fixture f{"undisturbed", "clusters/three-sites.yaml"};
    REQUIRE(f.wait_for_nodes());
    auto job = slow_training(f);
    job.train->checkpoint.clear();
    undisturbed = trained(f, job);
  }
  for (auto seed = first; seed < first + count; ++seed) check_killed_in_move(seed, undisturbed);
}

}  // namespace

TEST_CASE(
    "after SIGKILL of any process during a move, the training finishes with the same losses") {
  check_kills(1, 3);
}

TEST_CASE("50 seeds of SIGKILL in a move", "[.long]") {
  const auto* first = std::getenv("TROUPE_FIRST_SEED");
  const auto* count = std::getenv("TROUPE_SEEDS");
  check_kills(first ? std::strtoull(first, nullptr, 10) : 1,
              count ? std::strtoull(count, nullptr, 10) : 50);
}
