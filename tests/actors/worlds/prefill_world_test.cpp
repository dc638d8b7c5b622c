#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "harness/small_cluster.hpp"
#include "messages/base/random.hpp"
#include "messages/codec/codec.hpp"
#include "studies/training_simulation.hpp"

// A trace of prompts in the bubbles of a simulated training, through all actors.

namespace troupe::actors {

using namespace troupe::studies;

namespace {

using request_end = played_request::ending;

/// Two stages in two datacenters, twice.
training_simulation_options a_training(std::uint64_t iterations, std::uint64_t seed = 1) {
  training_simulation_options o;
  auto c = harness::small_cluster();
  c->settings.restart_s = 1;
  o.cluster = c;
  o.job = harness::small_job("training", iterations, 8);
  auto& t = o.job.train.emplace();
  t.device = "sim";
  t.schedule = "atlas-least-progress";
  o.job.pipeline.stages = 2;
  o.job.pipeline.data_parallel = 2;
  o.job.pipeline.microbatches = 4;
  o.job.pipeline.stages_per_datacenter = 1;
  o.seed = seed;
  return o;
}

bubble_lending lending(const char* rule = "resumable", std::uint32_t depth = 0) {
  bubble_lending b;
  b.model.name = "m";
  b.model.folder = "/m";
  auto& m = b.model.shape;
  m.name = "m";
  m.family = "llama";
  m.layers = 4;
  m.hidden = 512;
  m.heads = 8;
  m.sequence = 4096;
  m.vocabulary = 1000;
  b.rule = rule;
  b.depth = depth;
  b.op_ms = 1;
  return b;
}

prefill_study study(std::uint32_t prompts, double over_s, std::uint64_t seed = 1) {
  prefill_study s;
  random_source r{seed};
  for (std::uint32_t i = 0; i < prompts; ++i)
    s.prompts.push_back({over_s * i / prompts, 1 + static_cast<std::uint32_t>(r.below(2000)),
                         1 + static_cast<std::uint32_t>(r.below(8))});
  s.play.ttft_s = 5;
  s.play.seed = seed;
  return s;
}

simulated_training run(const training_simulation_options& o) {
  auto made = simulate_training(o);
  INFO((made ? "" : made.error().text));
  REQUIRE(made);
  return std::move(*made);
}

std::map<request_end, int> endings(const simulated_prefills& p) {
  std::map<request_end, int> all;
  for (const auto& r : p.requests) {
    REQUIRE(r.ends == 1);
    ++all[r.how];
  }
  return all;
}

std::vector<std::int64_t> nanoseconds(const training_report& r) {
  std::vector<std::int64_t> all;
  for (const auto& i : r.iterations) all.push_back(std::llround((i.end_s - i.begin_s) * 1e9));
  return all;
}

constexpr double rounding_s = 1e-7;

/// A stage device's tasks, by kind. Independent of planners/bubbletea.
struct device_log {
  std::vector<timed_task> training, prefills;  // by begin
};

/// Between its last step and the exchange of the gradients a stage copies them; during the
/// exchange its device is idle.
device_log log_of(std::vector<timed_task> tasks) {
  constexpr std::uint8_t reduce = 3, checkpoint = 5, prefill = 8;
  std::ranges::stable_sort(tasks, {}, &timed_task::begin_s);
  device_log log;
  double step_end_s = 0;
  for (auto t : tasks) {
    if (t.what == prefill) {
      log.prefills.push_back(t);
    } else if (t.what == reduce) {
      t.end_s = t.begin_s, t.begin_s = step_end_s;
      if (t.end_s > t.begin_s + rounding_s) log.training.push_back(t);
    } else if (t.what <= checkpoint) {
      log.training.push_back(t);
      step_end_s = t.end_s;
    }
  }
  return log;
}

/// Checks that nothing overlaps, and that the last prefill before an operation of the training ends
/// a guard before it. The guard is kept before the time that is expected for the operation, by the
/// iteration before: one operation may come earlier. Gives the time of all prefills.
double check_apart(const device_log& log, double guard_s) {
  double sum_s = 0, until_s = 0;
  std::size_t early = 0;
  auto next = log.training.begin();
  for (const auto& p : log.prefills) {
    sum_s += p.end_s - p.begin_s;
    REQUIRE(p.begin_s >= until_s - rounding_s);
    until_s = p.end_s;
    while (next != log.training.end() && next->begin_s < p.begin_s) {
      REQUIRE(next->end_s <= p.begin_s + rounding_s);
      ++next;
    }
    if (next == log.training.end()) continue;
    INFO("prefill " << p.begin_s << " to " << p.end_s << ", then task " << int{next->what}
                    << " from " << next->begin_s << " to " << next->end_s);
    REQUIRE(p.end_s <= next->begin_s + rounding_s);
    early += p.end_s > next->begin_s - guard_s + rounding_s;
  }
  CHECK(early <= 1);
  return sum_s;
}

}  // namespace

TEST_CASE("prefills in its bubbles change no iteration of a training") {
  for (const auto* rule : {"resumable", "whole", "look-ahead", "chunked"}) {
    INFO(rule);
    auto o = a_training(40);
    const auto alone = run(o);
    CHECK_FALSE(alone.report.bubbles);
    o.job.pipeline.bubbles = lending(rule);
    o.prefills = study(60, 0.5 * 40 * alone.report.planned_s);
    const auto beside = run(o);
    CHECK(nanoseconds(beside.report) == nanoseconds(alone.report));
    REQUIRE(beside.report.bubbles);
    CHECK(beside.report.bubbles->delayed_steps == 0);
    CHECK(beside.report.bubbles->guest_s > 0);
    auto ends = endings(*beside.prefills);
    CHECK(beside.prefills->requests.size() == 60);
    CHECK(ends[request_end::served] > 30);
    CHECK(ends[request_end::open] == 0);
    CHECK(beside.prefills->pages_leaked == 0);
    CHECK(beside.prefills->resent_blocks == 0);
    CHECK(run(o).fingerprint == beside.fingerprint);
  }
}

TEST_CASE("caches come whole over a network that loses, repeats and reorders their blocks") {
  auto o = a_training(400);
  o.job.pipeline.bubbles = lending("resumable", 2);
  o.prefills = study(2000, 80);
  o.prefills->play.ttft_s = 60;
  const auto without = run(o);
  o.faults.duplication = 0.05;
  o.faults.reordering = 0.2;
  o.faults.reorder_delay_s = 0.02;
  random_source random{7};
  std::size_t lost = 0;
  // Not the training's tensors: a guest of a training that waits is late, and reports it.
  o.loses = [&](address, address, const frame& f) {
    const auto e = peek(f.header.bytes());
    const bool of_prefill =
        e && (e->type == type_id<prefill_block> || e->type == type_id<blocks_received>);
    const bool loses = of_prefill && random.chance(0.05);
    lost += loses;
    return loses;
  };
  const auto faulty = run(o);
  CHECK(lost > 500);
  CHECK(without.prefills->resent_blocks == 0);
  CHECK(faulty.prefills->resent_blocks > 100);
  for (const auto* p : {&*without.prefills, &*faulty.prefills}) {
    REQUIRE(p->requests.size() == 2000);
    std::map<std::string, int> why;
    for (const auto& r : p->requests)
      if (r.how != request_end::served) ++why[r.why.text];
    for (const auto& [text, n] : why) UNSCOPED_INFO(n << " " << text);
    auto ends = endings(*p);
    CHECK(ends[request_end::served] == 2000);
    CHECK(p->pages_leaked == 0);
    for (std::size_t i = 0; i < p->requests.size(); ++i)
      if (p->requests[i].tokens != o.prefills->prompts[i].generated_tokens) FAIL(i);
  }
}

TEST_CASE("prefill pipelines of two guests serve as well") {
  auto o = a_training(40);
  o.job.pipeline.bubbles = lending("resumable", 2);
  o.prefills = study(60, 10);
  const auto beside = run(o);
  CHECK(beside.report.bubbles->delayed_steps == 0);
  std::uint32_t served = 0;
  for (const auto& r : beside.prefills->requests) {
    REQUIRE(r.ends == 1);
    if (r.how != request_end::served) continue;
    ++served;
    CHECK(r.where.guests == 2);
  }
  CHECK(served > 30);
}

TEST_CASE("guests compute while their device is idle, until a guard before the next step") {
  constexpr double guard_s = 0.0005;
  for (const auto* rule : {"resumable", "whole", "look-ahead", "chunked"})
    for (const std::uint32_t depth : {1u, 2u}) {
      INFO(rule << ", depth " << depth);
      auto o = a_training(60);
      o.job.pipeline.bubbles = lending(rule, depth);
      auto& lent = *o.job.pipeline.bubbles;
      lent.guard_ms = 1e3 * guard_s;
      lent.model.shape.hidden = 2048;  // so that prompts fill the bubbles
      o.prefills = study(1500, 3);
      std::uint64_t orders = 0;
      const auto c = with_decoders(*o.cluster, o.job, *o.prefills);
      o.loses = [&](address, address, const frame& f) {
        const auto e = peek(f.header.bytes());
        if (!e || e->type != type_id<prefill_order>) return false;
        const auto decoded = decode(f.header.bytes());
        const auto& order = std::get<prefill_order>(decoded->second);
        ++orders;
        const auto site = gateway_of(c, order.name.decoder);
        for (const auto& g : order.group.guests) CHECK(gateway_of(c, g.node) == site);
        return false;
      };
      const auto beside = run(o);
      CHECK(orders > 100);
      REQUIRE(beside.prefills->devices.size() == 4);
      std::size_t seen = 0;
      double sum_s = 0;
      for (const auto& [stage, device] : beside.prefills->devices) {
        if (device.tasks.empty()) continue;
        ++seen;
        const double used_s = check_apart(log_of(device.tasks), guard_s);
        CHECK(std::abs(used_s - device.guest_s) < 1e-5);  // of all prefills, and of no more
        sum_s += used_s;
      }
      CHECK(seen == 2);  // the others are on the trainer's node
      CHECK(sum_s > 0.5 * beside.report.bubbles->guest_s);
    }
}

}  // namespace troupe::actors
