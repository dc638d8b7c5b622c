#include "simulation/prefill_seeds.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "harness/small_cluster.hpp"
#include "messages/base/random.hpp"
#include "messages/codec/codec.hpp"
#include "studies/training_simulation.hpp"

namespace troupe::simulation {

namespace {

using namespace troupe::actors;
using namespace troupe::studies;

constexpr std::uint64_t fault_stream = 1, trace_stream = 2;
constexpr double requests_per_s = 20;

/// A model of Llama's kind, small enough that prompts of 4,096 tokens take a bubble or two.
model served() {
  model m;
  m.name = "m";
  m.family = "llama";
  m.layers = 4;
  m.hidden = 512;
  m.heads = 8;
  m.sequence = 8192;
  m.vocabulary = 1000;
  return m;
}

/// Two stages in two datacenters, twice.
job_spec training(std::uint64_t seed, double for_s) {
  constexpr double shortest_iteration_s = 0.25;
  auto job =
      harness::small_job("training", static_cast<std::uint64_t>(for_s / shortest_iteration_s), 8);
  job.limits.max_restarts = 1000;
  auto& t = job.train.emplace();
  t.device = "sim";
  t.schedule = "atlas-least-progress";
  t.checkpoint_every = 5;
  job.pipeline.stages = 2;
  job.pipeline.data_parallel = 2;
  job.pipeline.microbatches = 4;
  job.pipeline.stages_per_datacenter = 1;
  constexpr const char* rules[] = {"resumable", "chunked", "look-ahead", "whole"};
  auto& b = job.pipeline.bubbles.emplace();
  b.model.name = "m";
  b.model.folder = "/m";
  b.model.shape = served();
  b.rule = rules[seed % 4];
  b.depth = 1 + seed / 4 % 2;
  b.op_ms = 1;
  return job;
}

prefill_study study(random_source random, std::uint32_t requests, std::uint64_t seed) {
  prefill_study s;
  for (std::uint32_t i = 0; i < requests; ++i)
    s.prompts.push_back({i / requests_per_s, 1 + static_cast<std::uint32_t>(random.below(4000)),
                         1 + static_cast<std::uint32_t>(random.below(8))});
  s.play.ttft_s = 10;
  s.play.cancels = 0.1;
  s.play.seed = seed;
  return s;
}

fault_plan faults(random_source random, double until_s) {
  fault_plan f;
  f.until_s = until_s;
  f.loss = 0.05 * random.uniform();
  f.duplication = 0.05 * random.uniform();
  f.reordering = 0.1 * random.uniform();
  f.reorder_delay_s = 0.1 + random.uniform();
  f.node_crashes_per_hour = 4 * random.uniform();
  f.gateway_crashes_per_hour = 6 * random.uniform();
  f.controller_crashes_per_hour = 6 * random.uniform();
  f.mean_down_s = 1 + 10 * random.uniform();
  return f;
}

/// Sees every frame that a host sends.
class frame_oracle {
 public:
  explicit frame_oracle(const cluster& c) : cluster_{c} {}

  void see(address from, address to, const frame& f) {
    const auto e = peek(f.header.bytes());
    if (!e) return;
    const bool cancel = e->type == type_id<cancel_prefill>,
               block = e->type == type_id<prefill_block>, order = e->type == type_id<prefill_order>;
    if (!cancel && !block && !order) return;
    const auto decoded = decode(f.header.bytes());
    if (!decoded) return;
    const auto& m = decoded->second;
    if (const auto* c = std::get_if<cancel_prefill>(&m); c && is_gateway(cluster_, from))
      ++cancels_[{c->name, to}];
    if (const auto* b = std::get_if<prefill_block>(&m); b && is_node(cluster_, from)) {
      if (datacenter_of(from) != datacenter_of(e->to)) wrong_ = "a block left its datacenter";
      const bool fresh =
          sent_.insert({b->name, {b->guest, b->index, std::uint32_t(b->what)}}).second;
      // A guest that has lost that many cancellations in a row has received none of them.
      constexpr int received = 20;
      const auto c = cancels_.find({b->name, from});
      if (fresh && c != cancels_.end() && c->second > received)
        wrong_ = fmt::format("a guest went on after {} cancellations", c->second);
    }
    if (const auto* o = std::get_if<prefill_order>(&m))
      for (const auto& g : o->group.guests)
        if (datacenter_of(g.node) != datacenter_of(o->name.decoder))
          wrong_ = "a group of guests is not in its decoder's datacenter";
  }
  const std::string& invalid() const { return wrong_; }

 private:
  std::uint32_t datacenter_of(address node) const {
    return cluster_.nodes[node_of(node)].datacenter;
  }

  cluster cluster_;
  std::map<std::pair<prefill_name, address>, int> cancels_;  // by guest's node
  std::set<std::pair<prefill_name, std::array<std::uint32_t, 3>>> sent_;
  std::string wrong_;
};

/// Prefills while the device trains, or two at a time.
std::string overlaps(const simulated_prefills& p) {
  constexpr double rounding_s = 1e-8;
  constexpr std::uint8_t reduce = 3, transfer = 6, prefill = 8;
  for (const auto& [stage, device] : p.devices) {
    auto all = device.tasks;
    // A device is idle while hosts exchange gradients, and tensors come.
    std::erase_if(all, [](const timed_task& t) {
      return t.what == reduce || (t.what >= transfer && t.what != prefill);
    });
    std::ranges::sort(all, {}, [](const timed_task& t) { return std::pair{t.begin_s, t.end_s}; });
    for (std::size_t i = 1; i < all.size(); ++i) {
      const auto &a = all[i - 1], &b = all[i];
      if (b.begin_s >= a.end_s - rounding_s || (a.what != prefill && b.what != prefill)) continue;
      return fmt::format("stage {} of pipeline {}: task {} from {} to {} and {} from {} to {}",
                         stage.stage, stage.pipeline, a.what, a.begin_s, a.end_s, b.what, b.begin_s,
                         b.end_s);
    }
  }
  return {};
}

/// Keys and values of all positions' pages in half precision, and the last hidden state.
std::uint64_t cache_bytes(std::uint32_t tokens) {
  const auto m = served();
  const std::uint64_t pages = (tokens + 63) / 64;
  return pages * 64 * m.layers * 2 * m.hidden * 2 + std::uint64_t{2} * m.hidden;
}

std::string wrong_with(const simulated_prefills& p, std::uint32_t requests) {
  if (p.requests.size() != requests)
    return fmt::format("{} of {} requests were offered", p.requests.size(), requests);
  std::uint32_t in_bubbles = 0;
  for (const auto& r : p.requests) {
    if (r.ends != 1)
      return fmt::format("request {} of front {} ended {} times", r.number, r.front, r.ends);
    if (r.tokens == 0 || !r.where.bubbles) continue;
    ++in_bubbles;
    if (r.where.kv_bytes < cache_bytes(r.prompt_tokens))
      return fmt::format("request {} of front {} began with {} of {} bytes", r.number, r.front,
                         r.where.kv_bytes, cache_bytes(r.prompt_tokens));
  }
  if (in_bubbles < requests / 20) return fmt::format("only {} were served in bubbles", in_bubbles);
  if (p.pages_leaked > 0) return fmt::format("{} pages stayed reserved", p.pages_leaked);
  return overlaps(p);
}

}  // namespace

std::string run_prefill_seed(std::uint64_t seed, std::uint32_t requests) {
  random_source random{seed};
  const double trace_s = requests / requests_per_s;
  training_simulation_options o;
  auto c = harness::small_cluster();
  c->settings.restart_s = 1;
  o.cluster = c;
  o.seed = seed;
  o.job = training(seed, 2 * trace_s + 100);
  o.prefills = study(random.split(trace_stream), requests, seed);
  o.faults = faults(random.split(fault_stream), trace_s + 50);
  frame_oracle frames{with_decoders(*c, o.job, *o.prefills)};
  o.loses = [&](address from, address to, const frame& f) {
    frames.see(from, to, f);
    return false;
  };
  const auto done = simulate_training(std::move(o));
  if (!done) return done.error().text;
  const auto wrong = wrong_with(*done->prefills, requests);
  return wrong.empty() ? frames.invalid() : wrong;
}

}  // namespace troupe::simulation
