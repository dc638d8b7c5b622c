#include <cmath>
#include <cstdio>

#include "harness/source_dir.hpp"
#include "processes/trainings.hpp"

// Trainings in real processes whose number of GPUs the policy changes while they run.

using namespace troupe;
using namespace troupe::test;

namespace {

/// It leaves its shape to the policy, and saves itself when it is stopped.
job_spec open_training(const fixture& f, const std::string& name, std::uint64_t iterations) {
  auto job = formats::load_job(shipped("jobs/train-tiny.yaml").string());
  REQUIRE(job);
  job->name = name;
  job->iterations = iterations;
  job->pipeline = {};
  job->microbatches.reset();
  job->request.gpus = 2;  // for crius, which gives it half or double as many, too
  job->train->checkpoint = (f.state / name).string();
  job->train->checkpoint_every = 100'000;
  return *job;
}

const job_status& status_of(const query_reply& r, job_id id) {
  return *std::ranges::find(r.jobs, id, &job_status::job);
}
std::uint32_t gpus_of(const query_reply& r, job_id id) {
  const auto& j = status_of(r, id);
  return j.state == job_state::running ? total_gpus(j.where) : 0;
}

/// The iteration after which it was first resumed; 0: it was not.
std::uint64_t first_resumption(const training_report& r) {
  for (const auto& e : r.events)
    if (unsigned long long n = 0; std::sscanf(e.c_str(), "resumed after iteration %llu", &n) == 1)
      return n;
  return 0;
}

/// A job that arrives makes one that runs shrink, its end makes that grow, and nothing is lost.
void check_resized(const char* policy) {
  constexpr std::uint64_t its_iterations = 900;
  fixture f{"elastic",
            fs::path{troupe::test::source_dir()} / "tests/processes/clusters/one-site.yaml",
            policy};
  REQUIRE(f.wait_for_nodes());
  const auto undisturbed = trained(f, open_training(f, "alone", its_iterations));

  const auto first = f.submit(open_training(f, "first", its_iterations));
  REQUIRE(f.wait_until([&](const auto& r) { return gpus_of(r, first) == 4; }));
  REQUIRE(f.wait_until([&](const auto&) { return iterations(f, first) >= 20; }));
  const auto second = f.submit(open_training(f, "second", 30));
  CHECK(f.wait_until([&](const auto& r) { return gpus_of(r, first) == 2; }));
  CHECK(f.wait_until([&](const auto& r) { return gpus_of(r, second) == 2; }));
  REQUIRE(f.wait_until(
      [&](const auto& r) { return status_of(r, second).state == job_state::finished; }));
  CHECK(f.wait_until([&](const auto& r) { return gpus_of(r, first) == 4; }));
  REQUIRE(f.wait_until(all_final));

  const auto end = f.jobs();
  CHECK(status_of(end, first).state == job_state::finished);
  CHECK(status_of(end, first).progress.attempts == 3);
  const auto after = how(f, first);
  REQUIRE(after.iterations.size() == undisturbed.iterations.size());
  const auto resumed_at = first_resumption(after);
  REQUIRE(resumed_at > 0);
  for (std::size_t i = 0; i < after.iterations.size(); ++i) {
    INFO("iteration " << i + 1 << ", resumed after " << resumed_at);
    CHECK(after.iterations[i].iteration == undisturbed.iterations[i].iteration);
    const double a = after.iterations[i].loss, b = undisturbed.iterations[i].loss;
    if (i <= resumed_at)
      CHECK(a == b);  // the same parameters
    else if (i < resumed_at + 5)
      CHECK(std::abs(a / b - 1) < 1e-6);  // other orders of summation, which grow apart
    else
      CHECK(std::abs(a / b - 1) < 0.1);
  }
}

}  // namespace

TEST_CASE(
    "under troupe a training shrinks for an arriving one, and grows when that one has ended") {
  check_resized("troupe");
}

TEST_CASE("under crius a training shrinks for an arriving one, and grows when that one has ended") {
  check_resized("crius");
}
