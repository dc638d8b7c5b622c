#include "actors/training/planning/training_plan.hpp"

#include <catch2/catch.hpp>

#include <numeric>

#include "harness/small_cluster.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/policy/placement.hpp"
#include "runtime/host/transport.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

/// Three datacenters of two nodes, whose GPUs have room for anything. The links differ.
cluster three_sites() {
  auto c = *harness::small_cluster();
  c.gpus.resize(1);
  c.gpus[0].memory_gb = 1e6;
  const auto intra = c.nodes[0].intra, inter = c.nodes[0].inter;
  c.nodes.clear();
  for (std::uint32_t d = 0; d < 3; ++d)
    for (const auto* n : {"0", "1"})
      c.nodes.push_back({c.datacenters[d].name + "-" + n, d, 0, 1, intra, inter});
  c.wan = {{0, 1, 40, 5, 1}, {0, 2, 60, 3, 1}, {1, 2, 20, 2, 1}};
  return c;
}

/// A stage a site, two pipelines.
job_spec pipelines(const std::string& schedule = "varuna") {
  auto job = harness::small_job("planned", 10, 8);
  job.train.emplace();
  job.train->schedule = schedule;
  job.pipeline.stages = 3;
  job.pipeline.data_parallel = 2;
  job.pipeline.microbatches = 4;
  job.pipeline.stages_per_datacenter = 1;
  return job;
}

expected<training_plan> planned(const cluster& c, const job_spec& job,
                                const std::string& backend = "sim") {
  const auto placed = planners::place_pipelines(c, planners::idle_index{c}, job, true);
  if (!placed) FAIL(placed.error().text);
  train_order o;
  o.spec = job;
  o.how = placed->how;
  for (const auto& share : placed->where) {
    std::vector<std::uint16_t> devices(share.gpus);
    std::iota(devices.begin(), devices.end(), std::uint16_t{0});
    o.parts.push_back({share.node, 1, devices});
  }
  return plan_training(c, 7, o, backend);
}

training_plan plan_of(const cluster& c, const job_spec& job) {
  auto made = planned(c, job);
  if (!made) FAIL(made.error().text);
  return std::move(*made);
}

/// The costs that stages measure if each takes its planned time.
std::vector<stage_costs> as_planned(const training_plan& p) {
  std::vector<stage_costs> all;
  for (const auto& s : p.stages) all.push_back(s.costs);
  return all;
}

double hop_s(const training_plan& p, std::uint32_t hop) {
  const auto& l = p.hops[hop];
  return static_cast<double>(p.stages[0].costs.activation_bytes) / l.bytes_s() +
         l.latency_us * 1e-6;
}

}  // namespace

TEST_CASE("every stage of every pipeline is set up with its neighbours, its peers and its paths") {
  const auto c = three_sites();
  auto job = pipelines();
  const auto p = plan_of(c, job);
  REQUIRE(p.stages.size() == 6);
  std::uint32_t at = 0;
  for (std::uint32_t i = 0; i < 6; ++i) {
    const auto& x = p.stages[i];
    CHECK(x.name == stage_name{7, i / 3, i % 3});
    CHECK(x.stages == 3);
    CHECK(x.pipelines == 2);
    CHECK(x.microbatches == 4);
    CHECK(x.rows == 1);
    CHECK(x.backend == "sim");
    CHECK(x.devices == std::vector<std::uint16_t>{0});
    CHECK(x.order.size() >= 8);
    CHECK_FALSE(x.trace);
    if (x.name.stage == 0) at = 0;
    CHECK(x.first_sublayer == at);
    at += x.sublayers;
    REQUIRE(x.neighbours.size() == 3);
    for (std::uint32_t s = 0; s < 3; ++s) {
      CHECK(c.nodes[node_of(x.neighbours[s])].datacenter == s);
      CHECK(x.neighbours[s] == p.stages[x.name.pipeline * 3 + s].neighbours[s]);
    }
    REQUIRE(x.peers.size() == 2);
    CHECK(x.peers[x.name.pipeline] == x.neighbours[x.name.stage]);
    CHECK(x.peers[0] != x.peers[1]);
    const auto path = [&](const wan_path& w, bool crosses, std::uint32_t a, std::uint32_t b) {
      CHECK(w.pairs == (crosses ? 1 : 0));
      if (!crosses) return;
      CHECK(w.first_pair == x.name.pipeline);
      CHECK(w.connections == planners::connections_between(c, a, b, 0));
      CHECK_FALSE(w.serialized);
    };
    const auto s = x.name.stage;
    path(x.forward, s < 2, s, s + 1);
    path(x.backward, s > 0, s, s - 1);
    path(x.tied, true, 0, 2);
  }
  CHECK(at == 24);
  CHECK(planners::connections_between(c, 0, 1, 0) != planners::connections_between(c, 1, 2, 0));
  job.train->timeline = "/somewhere";
  CHECK(plan_of(c, job).stages[0].trace);
}

TEST_CASE("a hop has its datacenters' link, and the WAN's rate is that of all hops both ways") {
  const auto c = three_sites();
  const auto p = plan_of(c, pipelines());
  REQUIRE(p.hops.size() == 3);  // none after the last stage
  for (std::uint32_t h = 0; h < 2; ++h) {
    CHECK(p.hops[h].gbps == planners::link_between(c, h, h + 1, 0).gbps);
    CHECK(p.hops[h].latency_us == planners::link_between(c, h, h + 1, 0).latency_us);
  }
  CHECK(p.hops[0].gbps > p.hops[1].gbps);
  CHECK(p.wan_gbps == Approx(2 * 2 * (p.hops[0].gbps + p.hops[1].gbps)));
  CHECK(p.iteration_s > 0);
  CHECK(p.lower_bound_s == 0);  // only of the best schedule
  // A stage's transfers take as long as those over its slower hop.
  for (const std::uint32_t i : {0u, 3u}) {
    CHECK(p.stages[i].costs.wan_s == Approx(hop_s(p, 0)));
    CHECK(p.stages[i + 1].costs.wan_s == Approx(std::max(hop_s(p, 0), hop_s(p, 1))));
    CHECK(p.stages[i + 2].costs.wan_s == Approx(hop_s(p, 1)));
  }
  CHECK(hop_s(p, 0) != Approx(hop_s(p, 1)));
}

TEST_CASE("stages in one datacenter have no hop over the WAN") {
  auto c = three_sites();
  for (auto& n : c.nodes) n.datacenter = 0;
  auto job = pipelines();
  job.pipeline.stages_per_datacenter = 0;
  const auto p = plan_of(c, job);
  CHECK(p.wan_gbps == 0);
  for (const auto& h : p.hops) CHECK(h.gbps == 0);
  for (const auto& x : p.stages) {
    CHECK(x.forward.pairs == 0);
    CHECK(x.backward.pairs == 0);
    CHECK(x.tied.pairs == 0);
    CHECK(x.costs.wan_s == 0);
  }
}

TEST_CASE("a schedule that shares the WAN gives every cell its pairs, one tensor at a time") {
  auto job = harness::small_job("cells", 1);
  troupe::cluster c;
  c.name = "cells";
  c.gpus.resize(1);
  c.gpus[0].memory_gb = 1e6;
  c.datacenters = {{"dc1", ""}, {"dc2", ""}};
  const troupe::link fast{"slots", 1e15, 0};
  for (std::uint32_t d = 0; d < 2; ++d)
    for (std::uint32_t n = 0; n < 5; ++n)
      c.nodes.push_back({"n" + std::to_string(5 * d + n), d, 0, 1, fast, fast});
  c.wan = {{0, 1, 0, 0.5, 0}};
  job.slots = slot_costs{1, 1, 2, 0, 2};
  job.pipeline.stages = 2;
  job.pipeline.data_parallel = 5;
  job.pipeline.microbatches = 4;
  job.pipeline.stages_per_datacenter = 1;
  job.train.emplace();
  job.train->schedule = "atlas";
  const auto p = plan_of(c, job);
  REQUIRE(p.schedules[0].shares_wan);
  const auto cell = p.shapes[0].pipelines_per_cell();
  REQUIRE(cell < 5);
  for (const auto& x : p.stages) {
    const auto first = x.name.pipeline / cell * cell;
    for (const auto* w : {&x.forward, &x.backward}) {
      if (w->pairs == 0) continue;
      CHECK(w->serialized);
      CHECK(w->first_pair == first);
      CHECK(w->pairs == std::min(cell, 5 - first));
    }
  }
  job.train->schedule = "varuna";
  for (const auto& x : plan_of(c, job).stages) {
    CHECK_FALSE(x.forward.serialized);
    if (x.name.stage == 0) CHECK(x.forward.first_pair == x.name.pipeline);
  }
}

TEST_CASE("a tensor that no connection takes is refused before any stage is set up") {
  const auto c = three_sites();
  const auto why = [&](auto&& change, const std::string& device = "cpu") {
    auto job = pipelines();
    job.pipeline.microbatches = 1;
    job.global_batch = 2;
    job.model.hidden = 1024;
    job.model.heads = 16;
    job.train->device = device;
    change(job);
    const auto made = planned(c, job, device);
    return made ? std::string{} : made.error().text;
  };
  CHECK(why([](job_spec&) {}).empty());
  // 256 sequences of 1024 tokens of 1024 floats are just what a tensor may have.
  CHECK(why([](job_spec& j) { j.global_batch = 512; }).empty());
  CHECK(why([](job_spec& j) {
          j.global_batch = 514;
        }).starts_with("a micro-batch's activations of stage 0 have "));
  CHECK(why([](job_spec& j) { j.global_batch = 514; }, "sim").empty());
  const auto one_stage = [](job_spec& j) {
    j.global_batch = 514;
    j.pipeline.stages = 1;
    j.pipeline.stages_per_datacenter = 0;
  };
  CHECK(why(one_stage).empty());  // which sends no activations
  const auto large = [](std::uint32_t layers, std::uint32_t of_pipelines) {
    return [=](job_spec& j) {
      j.model.layers = layers;
      j.pipeline.stages = 1;
      j.pipeline.stages_per_datacenter = 0;
      j.pipeline.data_parallel = of_pipelines;
    };
  };
  CHECK(why(large(60, 1)).empty());  // no peer to sum with
  CHECK(why(large(30, 2)).empty());
  CHECK(why(large(60, 2)).starts_with("a pipeline's chunk of the gradients of stage 0 have "));
  CHECK(why(large(60, 2), "cuda").empty());  // they may sum directly
  const auto words = [](std::uint32_t stages) {
    return [=](job_spec& j) {
      j.model.vocabulary = 300'000;
      j.model.tied_head = true;
      j.pipeline.data_parallel = 1;
      j.pipeline.stages = stages;
      if (stages == 1) j.pipeline.stages_per_datacenter = 0;
    };
  };
  CHECK(why(words(3)).starts_with("the tied embedding's gradients of stage 0 have "));
  CHECK(why(words(1)).empty());
}

TEST_CASE("the largest drift is told, of a stage's passes or of a hop") {
  const auto p = plan_of(three_sites(), pipelines());
  CHECK(drift_of(p, {}).relative == 0);
  auto m = as_planned(p);
  CHECK(drift_of(p, m).relative < 0.01);
  m[4].forward_s *= 2;
  m[2].backward_s *= 0.5;
  auto d = drift_of(p, m);
  CHECK(d.relative == Approx(1));
  CHECK(d.what == "a forward of stage 1 of pipeline 1 takes 2 times");
  m[2].backward_s *= 0;  // not measured
  m[4].forward_s = p.stages[4].costs.forward_s;
  CHECK(drift_of(p, m).relative < 0.01);
  m[2].backward_s = p.stages[2].costs.backward_s * 0.25;
  d = drift_of(p, m);
  CHECK(d.relative == Approx(0.75));
  CHECK(d.what == "a backward of stage 2 of pipeline 0 takes 0.25 times");
}

TEST_CASE("a hop takes what both of its ends have measured of it, without the latency") {
  const auto p = plan_of(three_sites(), pipelines());
  auto m = as_planned(p);
  const double latency_s = p.times.wan_latency;
  const auto set = [&](std::uint32_t stage, double s) {
    for (const auto i : {0u, 3u}) m[i + stage].wan_s = latency_s + s;
  };
  const double was_s = p.times.wan[1];
  REQUIRE(was_s > 0);
  set(0, p.times.wan[0]);
  set(1, 3 * was_s);
  set(2, 3 * was_s);
  auto d = drift_of(p, m);
  CHECK(d.relative == Approx(2).epsilon(0.01));
  CHECK(d.what == "a transfer over the WAN between stages 1 and 2 takes 3 times");
  // One end alone may have measured its other hop.
  set(2, was_s);
  CHECK(drift_of(p, m).relative < 0.01);
  // The slowest pipeline counts.
  set(2, was_s);
  m[3 + 2].wan_s = latency_s + 3 * was_s;
  CHECK(drift_of(p, m).relative == Approx(2).epsilon(0.01));
  set(0, 0), set(1, 0), set(2, 0);  // nothing but the latency: not measured
  CHECK(drift_of(p, m).relative < 0.01);
}

TEST_CASE("what hosts take of a transfer is what its link does not") {
  auto p = plan_of(three_sites(), pipelines());
  stage_costs m;
  m.activation_bytes = p.stages[0].costs.activation_bytes;
  for (std::uint32_t s = 0; s < 3; ++s) {
    const double link_s = s == 0   ? hop_s(p, 0)
                          : s == 1 ? std::max(hop_s(p, 0), hop_s(p, 1))
                                   : hop_s(p, 1);
    m.wan_s = link_s + 0.5;
    CHECK(handling_s(p, s, m) == Approx(0.5));
    m.wan_s = link_s / 2;
    CHECK(handling_s(p, s, m) == 0);
  }
  // Over two pairs the bytes take half as long, and the latency does not.
  for (auto& x : p.stages) x.forward.pairs = x.backward.pairs = 2;
  const double latency_s = p.hops[0].latency_us * 1e-6;
  m.wan_s = 1 + latency_s + (hop_s(p, 0) - latency_s) / 2;
  CHECK(handling_s(p, 0, m) == Approx(1));
  auto c = three_sites();
  for (auto& n : c.nodes) n.datacenter = 0;
  auto job = pipelines();
  job.pipeline.stages_per_datacenter = 0;
  m.wan_s = 0.25;
  CHECK(handling_s(plan_of(c, job), 1, m) == 0.25);
}

TEST_CASE("the bound of a run counts the WAN only where it is emulated") {
  auto c = three_sites();
  const auto both = [&](std::size_t a) {
    return c.datacenters[a].name + " and " + c.datacenters[a + 1].name;
  };
  const auto bound = [&] {
    auto p = plan_of(c, pipelines("best"));
    for (auto& x : p.stages) x.backend = "cpu";
    return std::pair{lower_bound_s(p, as_planned(p)), p.bare_wan};
  };
  const auto [bare, names] = bound();
  CHECK(names == both(0) + ", " + both(1));
  c.wan[0].emulate = true;
  const auto [half, one_name] = bound();
  CHECK(one_name == both(1));
  CHECK(half == bare);  // of its fastest hop
  for (auto& w : c.wan) w.emulate = true;
  const auto [emulated, none] = bound();
  CHECK(none.empty());
  // A way of 20 and one of 10 ms, there and back, and not a part of them without.
  CHECK(emulated > bare + 0.02);
  for (auto& w : c.wan) w.rtt_ms *= 100, w.emulate = false;
  CHECK(bound().first == bare);
}

TEST_CASE("no schedule is faster than the bound, which follows the times that are measured") {
  auto c = three_sites();
  for (auto& w : c.wan) w.emulate = true;
  auto p = plan_of(c, pipelines("best"));
  CHECK(p.lower_bound_s > 0);
  CHECK(p.lower_bound_s <= p.iteration_s * 1.000001);
  CHECK(lower_bound_s(p, as_planned(p)) == p.lower_bound_s);
  for (auto& x : p.stages) x.backend = "cpu";
  auto m = as_planned(p);
  CHECK(lower_bound_s(p, m) == Approx(p.lower_bound_s).epsilon(1e-6));
  for (auto& k : m) k.wan_s *= 100;  // it may have waited
  CHECK(lower_bound_s(p, m) == Approx(p.lower_bound_s).epsilon(1e-6));
  for (auto& k : m)
    for (auto* s : {&k.forward_s, &k.recompute_s, &k.backward_s}) *s *= 20;
  CHECK(lower_bound_s(p, m) > 2 * p.lower_bound_s);
  auto none = m;
  none[4].forward_s = 0;
  CHECK(lower_bound_s(p, none) == 0);
  none = m;
  none[4].backward_s = 0;
  CHECK(lower_bound_s(p, none) == 0);
  // The fastest hop counts: no order makes up for more.
  REQUIRE(p.times.wan[0] < p.times.wan[1]);
  auto alike = p;
  alike.times.wan[1] = alike.times.wan[0];
  CHECK(lower_bound_s(alike, m) == lower_bound_s(p, m));
  for (auto& s : alike.times.wan) s *= 10;
  CHECK(lower_bound_s(alike, m) > 1.1 * lower_bound_s(p, m));
  auto varuna = plan_of(c, pipelines());
  for (auto& x : varuna.stages) x.backend = "cpu";
  CHECK(lower_bound_s(varuna, m) == 0);
}

TEST_CASE("new orders are taken if they are faster by half a percent, and else the old ones stay") {
  const auto p = plan_of(three_sites(), pipelines("best"));
  const auto same = replan_training(p, as_planned(p));
  CHECK_FALSE(same.changed);
  CHECK(same.kept_s == Approx(p.iteration_s).epsilon(0.01));
  CHECK(same.plan.iteration_s == same.kept_s);
  CHECK(same.plan.lower_bound_s > 0);
  auto m = as_planned(p);
  for (auto& k : m) k.forward_s *= 3, k.backward_s *= 3, k.recompute_s *= 3;
  const auto slower = replan_training(p, m);
  CHECK(slower.kept_s > p.iteration_s);
  CHECK(slower.plan.iteration_s <= slower.kept_s);
  CHECK(slower.changed == (slower.plan.iteration_s < slower.kept_s));
  CHECK(slower.plan.lower_bound_s > p.lower_bound_s);
  CHECK(slower.plan.lower_bound_s <= slower.plan.iteration_s * 1.000001);
  CHECK(replan_training(plan_of(three_sites(), pipelines()), m).plan.lower_bound_s == 0);
}
