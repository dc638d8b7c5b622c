#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "harness/facts.hpp"
#include "planners/cost/layout.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Datacenters with that many nodes and GPUs per node.
cluster with_datacenters(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& sizes) {
  cluster c;
  for (std::uint32_t dc = 0; dc < sizes.size(); ++dc) {
    c.datacenters.push_back({"dc" + std::to_string(dc), ""});
    const auto first = c.nodes.size();
    sample::add_nodes(c, sample::a100_80, sizes[dc].first, sizes[dc].second);
    for (auto n = first; n < c.nodes.size(); ++n) c.nodes[n].datacenter = dc;
  }
  return c;
}

std::vector<lease_part> all_of(const cluster& c) {
  std::vector<lease_part> parts;
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    parts.push_back({n, 1, std::vector<std::uint16_t>(c.nodes[n].gpus)});
    std::iota(parts.back().devices.begin(), parts.back().devices.end(), std::uint16_t{0});
  }
  return parts;
}

job_spec layered(std::uint32_t layers) {
  return sample::job(sample::gpt("m", 64, layers, 4, 64, 8), 8);
}

/// As placed by Algorithm 1: each datacenter has just the GPUs of its stages.
std::vector<lease_part> trimmed(const cluster& c, const std::vector<lease_part>& parts,
                                const job_spec& job, const plan& how) {
  const auto together = std::max(1U, job.pipeline.tensor_parallel);
  std::vector<std::uint32_t> order, places;
  for (const auto& p : parts) {
    const auto dc = c.nodes[p.node].datacenter;
    auto at = std::ranges::find(order, dc) - order.begin();
    if (at == static_cast<std::ptrdiff_t>(order.size())) order.push_back(dc), places.push_back(0);
    places[static_cast<std::size_t>(at)] += static_cast<std::uint32_t>(p.devices.size()) / together;
  }
  auto stages = partition(places, how.pipeline_parallel, how.data_parallel,
                          job.pipeline.stages_per_datacenter);
  std::vector<lease_part> out;
  for (std::size_t i = 0; i < order.size(); ++i) {
    auto left = stages[i] * how.data_parallel;
    for (const auto& p : parts) {
      if (c.nodes[p.node].datacenter != order[i] || left == 0) continue;
      const auto take = std::min(left, static_cast<std::uint32_t>(p.devices.size()) / together);
      left -= take;
      if (take == 0) continue;
      out.push_back(
          {p.node, p.incarnation, {p.devices.begin(), p.devices.begin() + take * together}});
    }
  }
  return out;
}

expected<pipeline_layout> laid_out(const cluster& c, const std::vector<lease_part>& parts,
                                   const job_spec& job, std::uint32_t stages,
                                   std::uint32_t pipelines) {
  const auto how = sample::staged(job, stages, pipelines);
  return lay_out_pipelines(c, trimmed(c, parts, job, how), job, how);
}

}  // namespace

TEST_CASE("the paper's twelve GPUs hold two pipelines of six stages, two stages per datacenter") {
  const auto c = with_datacenters({{4, 1}, {4, 1}, {4, 1}});
  const auto l = laid_out(c, all_of(c), layered(6), 6, 2);
  REQUIRE(l);
  CHECK(l->stages_of_datacenter(0) == std::vector<std::uint32_t>{2, 2, 2});
  CHECK(l->stages_of_datacenter(1) == std::vector<std::uint32_t>{2, 2, 2});
  CHECK(l->at(0, 0) == device_place{0, {0}, 0});
  CHECK(l->at(1, 0) == device_place{2, {0}, 0});
  CHECK(l->at(1, 5) == device_place{11, {0}, 2});
  for (std::uint32_t s = 0; s < 6; ++s)
    CHECK((l->parts[0][s].first == 2 * s && l->parts[0][s].count == 2));
}

TEST_CASE("every GPU is used once, and all peers of a stage are in its datacenter") {
  random_source random{5};
  int laid = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> sizes(1 + random.below(5));
    for (auto& [nodes, gpus] : sizes) {
      nodes = 1 + static_cast<std::uint32_t>(random.below(4));
      gpus = 1 + static_cast<std::uint32_t>(random.below(4));
    }
    const auto c = with_datacenters(sizes);
    auto parts = all_of(c);
    for (auto at = parts.size(); at > 1; --at) std::swap(parts[at - 1], parts[random.below(at)]);
    const auto stages = 1 + static_cast<std::uint32_t>(random.below(8));
    const auto pipelines = 1 + static_cast<std::uint32_t>(random.below(3));
    const auto l = laid_out(c, parts, layered(9), stages, pipelines);
    if (!l) continue;
    ++laid;
    std::set<std::pair<node_index, std::uint16_t>> used;
    for (const auto& at : l->places) used.emplace(at.node, at.devices.front());
    CHECK(used.size() == stages * pipelines);
    for (std::uint32_t s = 0; s < stages; ++s)
      for (std::uint32_t p = 0; p < pipelines; ++p)
        CHECK(c.nodes[l->at(p, s).node].datacenter == l->datacenter_of(p, s));
    const auto numbers = l->stages_of_datacenter(0);
    CHECK(std::accumulate(numbers.begin(), numbers.end(), 0u) == stages);
    for (std::uint32_t s = 0; s < stages; ++s) CHECK(l->runs_of(s).size() == 1);
    CHECK(l->parts[0] == split_model(layered(9), stages));
  }
  CHECK(laid > 200);
}

TEST_CASE("GPUs that share a stage are on one node, and a node's remaining GPUs stay unused") {
  const auto c = with_datacenters({{2, 5}, {1, 2}});
  auto job = layered(6);
  job.pipeline.tensor_parallel = 2;
  const auto l = laid_out(c, all_of(c), job, 2, 2);
  REQUIRE(l);
  CHECK(l->at(0, 0) == device_place{0, {0, 1}, 0});
  CHECK(l->at(0, 1) == device_place{0, {2, 3}, 0});
  CHECK(l->at(1, 1) == device_place{1, {2, 3}, 0});
  CHECK(l->parts[0] == split_model(job, 2));
}

TEST_CASE(
    "pipelines follow the lease's order of datacenters and the requested stages per datacenter") {
  const auto c = with_datacenters({{1, 4}, {1, 4}});
  auto parts = all_of(c);
  std::swap(parts[0], parts[1]);
  auto job = layered(6);
  auto l = laid_out(c, parts, job, 6, 1);
  REQUIRE(l);
  CHECK(l->datacenter_of(0, 0) == 1);
  CHECK(l->datacenter_of(0, 5) == 0);
  CHECK(l->stages_of_datacenter(0) == std::vector<std::uint32_t>{4, 2});
  job.pipeline.stages_per_datacenter = 3;
  CHECK(laid_out(c, parts, job, 6, 1)->stages_of_datacenter(0) == std::vector<std::uint32_t>{3, 3});
}

TEST_CASE(
    "an allocation that a plan's stages do not use up, or stages that miss the model, are "
    "refused") {
  const auto c = with_datacenters({{1, 4}, {1, 4}});
  const auto job = layered(8);
  const auto refused = [&](const plan& how, const allocation& where) {
    const auto l = lay_out_pipelines(c, where, job, how);
    return l ? "" : l.error().text;
  };
  const auto four = sample::staged(job, 4, 2);
  CHECK(refused(four, {{0, 4}, {1, 4}}).empty());
  CHECK(troupe::test::has_facts(refused(four, {{0, 4}, {1, 3}}), {"dc1", "3 GPUs", "2 pipelines"}));
  CHECK(troupe::test::has_facts(refused(four, {{0, 4}}), {"2", "4 stages"}));
  CHECK(troupe::test::has_facts(refused(four, {{0, 4}, {7, 4}}), {"7"}));
  auto gap = four;
  gap.stages[1].first += 1;
  CHECK_FALSE(refused(gap, {{0, 4}, {1, 4}}).empty());
  auto part = four;
  part.stages.back().count -= 1;
  CHECK_FALSE(refused(part, {{0, 4}, {1, 4}}).empty());
  plan none;
  CHECK_FALSE(refused(none, {{0, 1}}).empty());
  job_spec study;
  study.slots = slot_costs{};
  CHECK(laid_out(c, all_of(c), study, 4, 2)->parts[0] == std::vector<stage_part>(4));
}

TEST_CASE(
    "a stage with a named GPU type is placed on that type, wherever its nodes are in the lease") {
  cluster c;
  c.datacenters.push_back({"dc0", ""});
  sample::add_nodes(c, sample::a100_80, 2, 2);
  sample::add_nodes(c, sample::a100_40, 2, 2);
  const auto job = layered(8);
  auto how = sample::staged(job, 3, 2);
  how.stages[0].gpu = how.stages[2].gpu = 1;
  how.stages[1].gpu = 0;
  const auto l = lay_out_pipelines(c, allocation{{0, 1}, {1, 1}, {2, 2}, {3, 2}}, job, how);
  REQUIRE(l);
  for (std::uint32_t p = 0; p < 2; ++p)
    for (std::uint32_t s = 0; s < 3; ++s)
      CHECK(c.nodes[l->at(p, s).node].gpu == *how.stages[s].gpu);
  how.stages[1].gpu = 1;
  CHECK_FALSE(lay_out_pipelines(c, allocation{{0, 1}, {1, 1}, {2, 2}, {3, 2}}, job, how));
}
