#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>

#include <caf/all.hpp>

#include "actors/training/stage_backend.hpp"
#include "actors/training/trainer.hpp"
#include "harness/facts.hpp"
#include "harness/scratch.hpp"
#include "harness/small_cluster.hpp"
#include "messages/codec/codec.hpp"
#include "planners/policy/placement.hpp"
#include "runtime/virtual/virtual_world.hpp"

// A trainer whose stages, controller and node are the test itself.

namespace troupe::actors::tests {

inline constexpr lease_id lease = 7;
inline constexpr std::uint64_t incarnation = 3;

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

/// The node's end of the messages from its trainer.
struct node_of_test {
  std::optional<training_over> over;
  std::vector<std::string> events;
  std::vector<message>* sent = nullptr;  // to stages on this node

  node_actor::behavior_type behavior() {
    return {[](const arrived&) {},
            [this](const local_frame& f) {
              if (auto m = decode(f.what.header.bytes())) sent->push_back(std::move(m->second));
            },
            [](const programs_changed&) {},
            [](const work_done&) {},
            [this](const training_over& o) { over = o; },
            [this](const training_event& e) { events.push_back(e.sentence); },
            [](const serving_over&) {},
            [](const tick&) {}};
  }
};

/// One pipeline of two stages.
class trained_by_hand {
 public:
  explicit trained_by_hand(job_spec job, std::uint64_t reached = 0,
                           const std::function<void(train_order&)>& change = {})
      : world_{*harness::small_cluster(), wrong_wall_clocks()} {
    world_.run_until(5);
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
    node_.sent = &net_->sent;
    world_.add_host(node_address(0), [this, o](const runtime::host& h) mutable {
      auto host = h;
      host.net = net_;
      wall_ahead_s = h.clock->wall_s() - h.clock->now_s();
      const auto node =
          world_.system().spawn([this](node_actor::pointer) { return node_.behavior(); });
      o.messenger = actors::messenger{host, node};
      trainer_ = world_.system().spawn(trainer, std::move(o));
      return std::vector{caf::actor_cast<caf::actor>(node), caf::actor_cast<caf::actor>(trainer_)};
    });
    settle();
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
  void receive(const stage_report& r) {
    caf::anon_send(trainer_, inbound<stage_report>{1, r, {}, {}});
    settle();
  }
  void stop() {
    caf::anon_send(trainer_, stop_training{});
    settle();
  }

  /// Acknowledges every report until the training is over: all iterations that the controller has
  /// received.
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
  const std::vector<std::string>& events() const { return node_.events; }

  void advance(double seconds) { world_.run_until(world_.now_s() + seconds); }
  double now_s() const { return world_.now_s(); }
  void acknowledge(std::uint64_t sequence) {
    caf::anon_send(trainer_, inbound<training_report_ack>{0, {lease, sequence}, {}, {}});
    settle();
  }
  /// All messages of a type that were sent and not yet taken; forgets the others.
  template <class T>
  std::vector<T> take() {
    std::vector<T> all;
    for (const auto& m : std::exchange(net_->sent, {}))
      if (const auto* t = std::get_if<T>(&m)) all.push_back(*t);
    return all;
  }
  /// Both stages report that they are set up.
  void begin() {
    for (const auto s : {0u, 1u}) receive(report_of(s, 0));
  }
  void both(std::uint64_t iteration) {
    for (const auto s : {0u, 1u}) receive(report_of(s, iteration));
  }

  /// The lead of the host's wall clock over its monotonic one.
  double wall_ahead_s = 0;

 private:
  static runtime::virtual_options wrong_wall_clocks() {
    runtime::virtual_options o;
    o.faults.wall_skew_s = 1e6;
    return o;
  }
  void settle() { world_.run_until(world_.now_s() + 0.01); }

  std::shared_ptr<recording_transport> net_ = std::make_shared<recording_transport>();
  node_of_test node_;
  runtime::virtual_world world_;
  trainer_actor trainer_;
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
