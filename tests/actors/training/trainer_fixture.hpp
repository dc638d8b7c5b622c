#pragma once

#include <numeric>

#include "actors/actor_fixture.hpp"
#include "actors/training/device/stage_backend.hpp"
#include "actors/training/trainer/trainer.hpp"
#include "harness/facts.hpp"
#include "harness/scratch.hpp"
#include "planners/policy/placement.hpp"

// A trainer whose stages, controller and node are the test itself.

namespace troupe::actors::tests {

inline constexpr lease_id lease = 7;
inline constexpr std::uint64_t incarnation = 3;

/// One pipeline of two stages.
class trainer_fixture : public actor_fixture {
 public:
  explicit trainer_fixture(job_spec job, std::uint64_t reached = 0,
                           const std::function<void(train_order&)>& change = {})
      : actor_fixture{*harness::small_cluster(), wrong_wall_clocks()} {
    advance(5);
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
    if (change) change(o.order);
    start<trainer_state>(a0, std::move(o));
  }

  /// The report of stage `s` of the pipeline on an iteration.
  stage_report report_of(std::uint32_t s, std::uint64_t iteration, double loss = 0) const {
    stage_report r;
    r.name = {lease, 0, s};
    r.incarnation = incarnation;
    r.iteration = iteration;
    r.loss = loss;
    return r;
  }
  using actor_fixture::receive;
  void receive(const stage_report& r) { receive(dc1, r); }
  void both(std::uint64_t iteration) {
    for (const auto s : {0u, 1u}) receive(report_of(s, iteration));
  }
  /// Both stages report that they are set up.
  void begin() { both(0); }
  void stop() { post(stop_training{}); }
  void acknowledge(std::uint64_t sequence) {
    receive(controller_address, training_report_ack{lease, sequence});
  }

  /// The latest report to the controller, after a time in which there is at least one.
  training_report newest() {
    advance(1.5);
    return last<training_report>();
  }
  /// Acknowledges every report until the training is over: all iterations that the controller has
  /// received.
  std::vector<iteration_record> reports_at_end() {
    std::vector<iteration_record> all;
    for (int i = 0; i < 10; ++i) {
      for (const auto& r : take<training_report>()) {
        for (const auto& one : r.iterations)
          if (all.empty() || one.iteration > all.back().iteration) all.push_back(one);
        acknowledge(r.sequence);
      }
      advance(1.5);
    }
    return all;
  }
  /// The end of the training, once its node knows it.
  std::optional<training_over> over() const {
    if (training_ends.empty()) return {};
    return training_ends.back();
  }
  /// The lead of the host's wall clock over its monotonic one.
  double wall_ahead_s() const { return host.clock->wall_s() - host.clock->now_s(); }

 private:
  static runtime::virtual_options wrong_wall_clocks() {
    runtime::virtual_options o;
    o.faults.wall_skew_s = 1e6;
    return o;
  }
};

inline job_spec two_stages(std::uint64_t count) {
  auto job = harness::small_job("by-hand", count);
  job.train.emplace();
  job.train->schedule = "varuna";
  job.pipeline.stages = 2;
  job.pipeline.data_parallel = 1;
  job.pipeline.microbatches = 2;
  return job;
}

}  // namespace troupe::actors::tests
