#pragma once

#include "processes/fixture.hpp"

// Trainings in real processes, and what is known of them.

namespace troupe::test {

inline job_spec two_stages(const fixture& f, std::uint64_t iterations) {
  auto job = formats::load_job(shipped("jobs/train-two-stages.yaml").string());
  REQUIRE(job);
  job->iterations = iterations;
  job->train->checkpoint = (f.state / "checkpoint").string();
  job->train->checkpoint_every = 5;
  job->pipeline.stages_per_datacenter = 1;
  return *job;
}

inline training_report how(fixture& f, job_id job) {
  auto reply = f.client->ask(query_training{0, job}, long_s).reply;
  REQUIRE(reply);
  return std::get<training_reply>(reply->first).report;
}

inline std::uint64_t iterations(fixture& f, job_id job) {
  const auto r = how(f, job);
  return r.iterations.empty() ? 0 : r.iterations.back().iteration;
}

/// Runs to its end.
inline training_report trained(fixture& f, const job_spec& job) {
  const auto id = f.submit(job);
  REQUIRE(f.wait_until(all_final));
  for (const auto& j : f.jobs().jobs) {
    INFO(j.name << ": " << j.detail);
    REQUIRE(j.state == job_state::finished);
  }
  return how(f, id);
}

/// The same losses and gradients, bit for bit, from iteration `first` on.
inline void check_same_curve(const training_report& a, const training_report& b,
                             std::uint64_t first = 1) {
  REQUIRE(a.iterations.size() == b.iterations.size());
  for (std::size_t i = 0; i < a.iterations.size(); ++i) {
    CHECK(a.iterations[i].iteration == i + 1);
    if (i + 1 < first) continue;
    INFO("iteration " << i + 1);
    CHECK(a.iterations[i].loss == b.iterations[i].loss);
    CHECK(a.iterations[i].gradient_norm == b.iterations[i].gradient_norm);
  }
}

}  // namespace troupe::test
