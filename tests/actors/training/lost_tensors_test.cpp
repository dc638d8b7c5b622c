#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <set>

#include "actors/training/stage/sent_tensors.hpp"
#include "harness/small_cluster.hpp"
#include "messages/base/random.hpp"
#include "messages/codec/codec.hpp"
#include "studies/training_simulation.hpp"

// Lost tensors: which ones are kept for resending, and what a loss costs.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::studies;

namespace {

using kind = tensor::kind;

constexpr std::uint32_t wan_hops = 3;  // node to gateway, gateway to gateway, gateway to node

/// Three sites of two nodes each.
std::shared_ptr<const cluster> three_sites() {
  auto c = *harness::small_cluster();
  const auto intra = c.nodes[0].intra, inter = c.nodes[0].inter;
  c.nodes.clear();
  for (std::uint32_t d = 0; d < 3; ++d)
    for (const auto* n : {"0", "1"})
      c.nodes.push_back({c.datacenters[d].name + "-" + n, d, 0, 1, intra, inter});
  return std::make_shared<const cluster>(c);
}

/// A stage a site, two pipelines; the first and the last stage share the embedding.
training_simulation_options two_pipelines(std::uint64_t count = 6) {
  training_simulation_options o;
  o.cluster = three_sites();
  o.job = harness::small_job("lossy", count, 16);
  o.job.train.emplace();
  o.job.train->checkpoint_every = 1000;
  o.job.train->schedule = "varuna";
  o.job.pipeline.stages = 3;
  o.job.pipeline.data_parallel = 2;
  o.job.pipeline.microbatches = 4;
  o.job.pipeline.stages_per_datacenter = 1;
  return o;
}

simulated_training run(training_simulation_options o) {
  auto done = simulate_training(std::move(o));
  if (!done) FAIL(done.error().text);
  return *done;
}

/// A tensor, or one of its stripes: between gateways those that have a body travel in stripes.
std::optional<tensor> tensor_in(const frame& f) {
  const auto e = peek(f.header.bytes());
  if (!e || (e->type != type_id<tensor> && e->type != type_id<stripe>)) return {};
  auto m = decode(f.header.bytes());
  if (!m) return {};
  if (const auto* s = std::get_if<stripe>(&m->second)) return s->what;
  return std::get<tensor>(m->second);
}

double length_s(const training_report& r) {
  return r.iterations.back().end_s - r.iterations.front().begin_s;
}

/// All iterations, each once and of one lease.
void check_undisturbed(const training_report& r, std::uint64_t count) {
  REQUIRE(r.iterations.size() == count);
  for (std::size_t i = 0; i < count; ++i) CHECK(r.iterations[i].iteration == i + 1);
  for (const auto& n : r.events) CHECK(n.find("goes on after iteration") == std::string::npos);
}

tensor sent(kind what, std::uint64_t iteration, std::uint32_t microbatch, std::uint32_t to_stage) {
  tensor t;
  t.what = what;
  t.from = {1, 0, 1};
  t.to_stage = to_stage;
  t.iteration = iteration;
  t.microbatch = microbatch;
  return t;
}

tensor from_stage(kind what, std::uint64_t iteration, std::uint32_t microbatch,
                  std::uint32_t stage) {
  tensor t;
  t.what = what;
  t.from = {1, 0, stage};
  t.to_stage = 1;
  t.iteration = iteration;
  t.microbatch = microbatch;
  return t;
}

tensor_request request_for(kind what, std::uint32_t stage,
                           std::vector<std::uint32_t> microbatches) {
  return {what, {1, 0, stage}, 0, 1, 5, std::move(microbatches), 0};
}

payload bytes(std::size_t n) {
  return payload{std::vector<std::byte>(n)};
}

}  // namespace

TEST_CASE("a sent tensor is resent on request, but not too soon and not too often") {
  sent_tensors s;
  s.keep(sent(kind::activation, 5, 0, 2), bytes(8), 10, false);
  s.keep(sent(kind::activation, 5, 1, 2), bytes(8), 10, false);
  s.keep(sent(kind::gradient, 5, 1, 0), bytes(8), 10, false);
  auto r = request_for(kind::activation, 2, {1, 7});
  CHECK(s.take_due(r, 10.4).empty());  // min_resend_s holds though older_than_s is 0
  const auto again = s.take_due(r, 10.6);
  REQUIRE(again.size() == 1);
  CHECK(again[0].header == sent(kind::activation, 5, 1, 2));
  CHECK(again[0].body.bytes().size() == 8);
  CHECK(s.take_due(r, 11.5).empty());  // twice as long now
  CHECK(s.take_due(r, 11.7).size() == 1);
  r.older_than_s = 3;
  CHECK(s.take_due(r, 20).empty());
  CHECK(s.take_due(r, 24).size() == 1);
  CHECK(s.take_due(request_for(kind::gradient, 2, {1}), 24).empty());  // that one goes to stage 0
  CHECK(s.take_due(request_for(kind::gradient, 0, {1}), 24).size() == 1);
}

TEST_CASE("a tensor known to be lost is resent at once") {
  sent_tensors s;
  s.keep(sent(kind::activation, 5, 0, 2), bytes(8), 10, true);
  CHECK(s.take_due(request_for(kind::activation, 2, {0}), 10).size() == 1);
  CHECK(s.take_due(request_for(kind::activation, 2, {0}), 10.1).empty());
}

TEST_CASE("a stage keeps a sent tensor until it knows that it arrived") {
  sent_tensors s;
  s.keep(sent(kind::activation, 5, 0, 2), {}, 0, false);
  s.keep(sent(kind::activation, 5, 1, 2), {}, 0, false);
  s.keep(sent(kind::gradient, 5, 0, 0), {}, 0, false);
  s.keep(sent(kind::gradient, 5, 1, 0), {}, 0, false);
  s.on_received(from_stage(kind::gradient, 5, 1, 2));
  CHECK(s.take_due(request_for(kind::activation, 2, {0, 1}), 9).size() == 1);
  s.begin_iteration(6);  // the stage before may be one iteration behind
  CHECK(s.take_due(request_for(kind::gradient, 0, {0, 1}), 9).size() == 2);
  s.on_received(from_stage(kind::activation, 6, 0, 0));  // and is not any more
  CHECK(s.take_due(request_for(kind::gradient, 0, {0, 1}), 99).empty());
  CHECK(s.size() == 1);
  s.begin_iteration(7);
  CHECK(s.size() == 0);
}

TEST_CASE(
    "partials are kept until their sum has arrived, sums until the next iteration's partial") {
  sent_tensors s;
  tensor part = sent(kind::partial, 5, 0, 1), sum = sent(kind::sum, 5, 0, 1);
  part.to_pipeline = sum.to_pipeline = 1;
  s.keep(part, {}, 0, false);
  s.keep(sum, {}, 0, false);
  tensor theirs = part;
  theirs.from.pipeline = 1, theirs.to_pipeline = 0;
  s.on_received(theirs);
  CHECK(s.size() == 2);
  theirs.what = kind::sum;
  s.on_received(theirs);
  CHECK(s.size() == 1);
  theirs.what = kind::partial, theirs.iteration = 6;
  s.on_received(theirs);
  CHECK(s.size() == 0);
}

TEST_CASE("the request timeout is somewhat longer than the slowest recent tensor of its kind") {
  request_timeout t;
  CHECK(t.after_s(kind::activation, 0) == 0.5);
  CHECK(t.after_s(kind::activation, 1) == 2);
  t.add_sample(kind::activation, 0.2);
  t.add_sample(kind::activation, 0.1);
  t.add_sample(kind::activation, -7);  // clocks
  CHECK(t.after_s(kind::activation, 1) == Approx(0.8));
  CHECK(t.after_s(kind::gradient, 0) == 0.5);
  t.next_iteration();
  CHECK(t.after_s(kind::activation, 1) == Approx(0.8));
  t.next_iteration();
  CHECK(t.after_s(kind::activation, 1) == 2);
}

TEST_CASE("a lost tensor of any kind, on any hop, costs under two seconds and no restart") {
  const auto undisturbed = run(two_pipelines());
  check_undisturbed(undisturbed.report, 6);
  for (const auto what : {kind::activation, kind::gradient, kind::partial, kind::sum,
                          kind::tied_partial, kind::tied_sum, kind::ready, kind::commit})
    for (const std::uint64_t iteration : {0U, 2U, 5U})
      for (std::uint32_t hop = 0; hop < wan_hops; ++hop) {
        INFO("kind " << int(what) << ", iteration " << iteration << ", hop " << hop);
        auto o = two_pipelines();
        const auto c = o.cluster;
        bool lost = false;
        o.loses = [&](address from, address to, const frame& f) {
          const bool here = hop == 0   ? is_node(*c, from)
                            : hop == 1 ? is_gateway(*c, from) && is_gateway(*c, to)
                                       : is_node(*c, to);
          if (lost || !here) return false;
          const auto t = tensor_in(f);
          return lost = t && t->what == what && t->iteration == iteration;
        };
        const auto after = run(o);
        const bool inside = what == kind::partial || what == kind::sum;
        CHECK(lost == !(inside && hop == 1));
        check_undisturbed(after.report, 6);
        CHECK(length_s(after.report) < length_s(undisturbed.report) + 2);
        if (lost) CHECK(length_s(after.report) > length_s(undisturbed.report));
      }
}

TEST_CASE("tensors inside a datacenter bypass its gateway, and use it when they are resent") {
  for (const bool loses_one : {false, true}) {
    INFO("loses one: " << loses_one);
    auto o = two_pipelines();
    const auto c = o.cluster;
    bool lost = false;
    int direct = 0, relayed = 0;
    o.loses = [&](address from, address to, const frame& f) {
      const auto e = peek(f.header.bytes());
      if (!e || e->type != type_id<tensor> || !are_local_nodes(*c, e->from, e->to)) return false;
      ++(is_gateway(*c, from) || is_gateway(*c, to) ? relayed : direct);
      return loses_one && !std::exchange(lost, true);
    };
    check_undisturbed(run(o).report, 6);
    CHECK(direct > 20);
    CHECK(relayed == (loses_one ? 2 : 0));  // hops
  }
}

TEST_CASE("a training continues when two of its nodes cannot reach each other") {
  const auto undisturbed = run(two_pipelines());
  const double begin_s = undisturbed.report.iterations.front().begin_s;
  auto o = two_pipelines();
  const auto& nodes = o.cluster->nodes;
  // From the middle on, for good: gateways can reach both.
  o.faults.partitions = {{{nodes[0].name},
                          {nodes[1].name},
                          begin_s + length_s(undisturbed.report) / 2,
                          begin_s + 100 * length_s(undisturbed.report)}};
  const auto after = run(o);
  check_undisturbed(after.report, 6);
  CHECK(length_s(after.report) < length_s(undisturbed.report) + 2);
}

TEST_CASE("a training continues when every tenth tensor and request is lost") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    auto o = two_pipelines(20);
    o.seed = seed;
    random_source random{seed};
    std::uint64_t lost = 0;
    o.loses = [&](address, address, const frame& f) {
      const auto e = peek(f.header.bytes());
      const bool may = e && (e->type == type_id<tensor> || e->type == type_id<tensor_request>);
      const bool this_one = may && random.chance(0.1);
      lost += this_one ? 1 : 0;
      return this_one;
    };
    check_undisturbed(run(o).report, 20);
    CHECK(lost > 50);
  }
}

TEST_CASE(
    "a gateway that restarts in mid-training delays it by under two seconds, without a restart") {
  const auto undisturbed = run(two_pipelines());
  const double begin_s = undisturbed.report.iterations.front().begin_s;
  for (int i = 1; i < 10; ++i) {
    auto o = two_pipelines();
    constexpr double down_s = 0.3;
    const double at_s = begin_s + length_s(undisturbed.report) * i / 10;
    INFO("at " << at_s);
    o.faults.crashes = {{"dc2/gateway", at_s, down_s}};
    const auto after = run(o);
    check_undisturbed(after.report, 6);
    CHECK(length_s(after.report) < length_s(undisturbed.report) + down_s + 2);
  }
}

TEST_CASE("slow tensors that are not lost are sent once") {
  auto o = two_pipelines(3);
  auto c = *o.cluster;
  for (auto& w : c.wan) w.rtt_ms = 400, w.node_gbps = 0.01, w.connection_gbps = 0;
  o.cluster = std::make_shared<const cluster>(c);
  std::multiset<
      std::tuple<stage_name, std::uint32_t, std::uint32_t, kind, std::uint64_t, std::uint32_t>>
      crossed;
  o.loses = [&](address from, address to, const frame& f) {
    if (!is_gateway(c, from) || !is_gateway(c, to)) return false;
    if (const auto t = tensor_in(f))
      crossed.insert({t->from, t->to_pipeline, t->to_stage, t->what, t->iteration, t->microbatch});
    return false;
  };
  check_undisturbed(run(o).report, 3);
  CHECK(crossed.size() > 50);
  for (const auto& t : crossed) CHECK(crossed.count(t) == 1);
}
