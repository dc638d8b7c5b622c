#pragma once

#include <algorithm>

#include "actors/host_fixture.hpp"
#include "actors/serving/prefill/prefill_controller.hpp"

// A prefill controller whose trainer, guests and decoders are the test itself.

namespace troupe::actors::tests {

inline constexpr lease_id lease = 7;
inline constexpr std::uint64_t trainer = 3;

/// Two groups of one guest in dc1, each busy in [0, 10) of every 20 seconds; a token takes 10 ms.
inline bubble_offer an_offer() {
  bubble_offer o;
  o.lease = lease;
  o.trainer = trainer;
  o.sequence = 1;
  o.how.model.name = "m";
  o.how.op_ms = 1;
  o.how.guard_ms = 0;
  o.iteration_s = 20;
  for (std::uint32_t p = 0; p < 2; ++p) {
    guest_place g;
    g.stage = {lease, p, 0};
    g.node = node_address(p);
    g.layers = 1;
    g.token_s = 0.01;
    o.groups.push_back({{g}, 0, 0});
    o.stages.push_back({g.stage, {{0, 4}, {4, 10}}});
  }
  return o;
}

struct prefill_fixture : recording_peers {
  std::shared_ptr<const cluster> c = harness::small_cluster();
  prefill_controller controller{c, 0, 5};
  address decoder = a0, trainer_node = node_address(4);
  double now_s = 0;
  serving_leases leases = stated();

  prefill_fixture() { state(); }
  /// One decoder, and a training that lends on all nodes.
  serving_leases stated() const {
    serving_leases all;
    all.epoch = 1;
    all.models.push_back(harness::model_named("m"));
    all.decoders.push_back({9, 0, 1, 0});
    lending_lease lends{lease, {node_of(trainer_node)}, "m"};
    for (node_index n = 0; n < c->nodes.size(); ++n) lends.nodes.push_back(n);
    all.lendings.push_back(lends);
    return all;
  }
  void state() {
    ++leases.sequence;
    receive(controller_address, leases);
  }
  void receive(address from, const message& m, const payload& body = {}) {
    record(controller.on_message(from, m, body, now_s));
  }
  void pass(double until_s) {
    while (controller.next_s() <= until_s) {
      now_s = std::max(now_s, controller.next_s());
      record(controller.on_time(now_s));
    }
    now_s = until_s;
  }
  void offer() { receive(trainer_node, an_offer()); }
  /// By default the first iteration began so long ago that its guests have seen all of it.
  void signal(std::uint32_t pipeline, std::uint64_t iteration = 0, double ago_s = 20) {
    receive(node_address(pipeline), stage_signal{{lease, pipeline, 0}, trainer, iteration, ago_s});
  }
  void lend() {
    offer();
    signal(0), signal(1);
  }
  prefill_name name(std::uint64_t number) const { return {decoder, 9, number}; }
  prefill_request request(std::uint64_t number, std::uint32_t tokens = 100,
                          double within_s = 0) const {
    return {name(number), "m", tokens, within_s, 0};
  }
  void progress(std::uint64_t number, prefill_progress::state now, std::uint32_t pipeline = 0) {
    prefill_progress p;
    p.name = name(number);
    p.now = now;
    receive(node_address(pipeline), p);
  }
  prefill_reply reply_to(const prefill_request& r) {
    receive(decoder, r);
    return only<prefill_reply>();
  }
  /// The reason to decline it; empty: it is promised.
  std::string answer(const prefill_request& r) { return reply_to(r).declined.text; }
  double promise_of(const prefill_request& r) { return reply_to(r).promised_s; }
  /// The guest of a prompt that must be promised to a group of one.
  address guest_of(const prefill_request& r) {
    const auto guests = reply_to(r).guests;
    REQUIRE(guests.size() == 1);
    return guests.front();
  }

 private:
  void record(prefill_controller::outbox all) {
    for (auto& m : all) sent.push_back({m.to, std::move(m.what), std::move(m.body), 0, now_s});
  }
};

}  // namespace troupe::actors::tests
