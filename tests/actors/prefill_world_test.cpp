#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "actors/worlds/training_simulation.hpp"
#include "harness/small_cluster.hpp"
#include "messages/codec.hpp"
#include "messages/random.hpp"

// A trace of prompts in the bubbles of a simulated training, through all actors.

namespace troupe::actors {

namespace {

using ending = played_request::ending;

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

std::map<ending, int> endings(const simulated_prefills& p) {
  std::map<ending, int> all;
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
    CHECK(ends[ending::served] > 30);
    CHECK(ends[ending::open] == 0);
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
  // Not the training's tensors: whoever waits for a training that waits is late, and says so.
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
      if (r.how != ending::served) ++why[r.why.text];
    for (const auto& [text, n] : why) UNSCOPED_INFO(n << " " << text);
    auto ends = endings(*p);
    CHECK(ends[ending::served] == 2000);
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
    if (r.how != ending::served) continue;
    ++served;
    CHECK(r.where.guests == 2);
  }
  CHECK(served > 30);
}

}  // namespace troupe::actors
