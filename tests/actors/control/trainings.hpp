#pragma once

#include <catch2/catch.hpp>

#include "actors/worlds/virtual_cluster.hpp"
#include "harness/small_cluster.hpp"

// A training in virtual time that is looked at from outside.

namespace troupe::test {

using namespace troupe::actors;

inline virtual_cluster_options training_options() {
  virtual_cluster_options o;
  o.cluster = harness::small_cluster();
  o.policy = planners::make_policy("frenzy");
  return o;
}

/// Messages are lost and reordered.
inline virtual_cluster_options lossy_options(std::uint64_t seed) {
  auto o = training_options();
  o.seed = seed;
  o.faults.loss = 0.02;
  o.faults.reordering = 0.1;
  o.faults.reorder_delay_s = 1;
  o.faults.mean_down_s = 1;
  return o;
}

/// Saves by itself only after all of its iterations.
inline job_spec long_training() {
  auto job = harness::small_job("training", 2000, 8);
  job.train.emplace();
  job.train->checkpoint_every = 2000;
  job.train->schedule = "varuna";
  job.pipeline.stages = 2;
  job.pipeline.data_parallel = 2;
  job.pipeline.microbatches = 2;
  return job;
}

template <class Reply>
Reply asked(virtual_cluster& v, message question) {
  auto reply = v.ask(std::move(question));
  REQUIRE(reply.reply);
  return std::get<Reply>(reply.reply->first);
}

inline job_status seen(virtual_cluster& v, job_id id = 1) {
  return asked<query_reply>(v, query_jobs{0, id}).jobs.front();
}

inline training_report newest_report(virtual_cluster& v) {
  return asked<training_reply>(v, query_training{0, 1}).report;
}

/// Virtual seconds until the job is in that state.
inline double until(virtual_cluster& v, job_state state, double limit_s = 200) {
  const double from_s = v.world().now_s();
  while (seen(v).state != state) {
    REQUIRE(v.world().now_s() < from_s + limit_s);
    v.world().run_until(v.world().now_s() + 0.1);
  }
  return v.world().now_s() - from_s;
}

inline void run_to_end(virtual_cluster& v, job_id id = 1) {
  for (int i = 0; i < 1000 && !is_final(seen(v, id).state); ++i)
    v.world().run_until(v.world().now_s() + 50);
  CHECK(seen(v, id).state == job_state::finished);
}

/// Every iteration once, in order, whatever happened.
inline void check_iterations(virtual_cluster& v, std::uint64_t count) {
  const auto all = newest_report(v).iterations;
  REQUIRE(all.size() == count);
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i].iteration == i + 1);
}

}  // namespace troupe::test
