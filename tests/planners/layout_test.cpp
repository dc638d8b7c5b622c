#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "planners/pipeline_layout.hpp"
#include "sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Datacentres of so many nodes of so many GPUs each.
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

}  // namespace

TEST_CASE("the paper's twelve GPUs hold two pipelines of six stages, two stages a datacentre") {
  const auto c = with_datacenters({{4, 1}, {4, 1}, {4, 1}});
  const auto l = lay_out_pipelines(c, all_of(c), layered(6), 6, 2);
  REQUIRE(l);
  CHECK(l->stages_of_datacenter == std::vector<std::uint32_t>{2, 2, 2});
  CHECK(l->datacenters == std::vector<std::uint32_t>{0, 1, 2});
  CHECK(l->at(0, 0) == device_place{0, {0}});
  CHECK(l->at(1, 0) == device_place{2, {0}});
  CHECK(l->at(1, 5) == device_place{11, {0}});
  for (std::uint32_t s = 0; s < 6; ++s)
    CHECK((l->parts[s].first == 2 * s && l->parts[s].count == 2));
}

TEST_CASE("every GPU is used once, and a stage's peers are in one datacentre, as its order says") {
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
    const auto l = lay_out_pipelines(c, parts, layered(9), stages, pipelines);
    if (!l) continue;
    ++laid;
    std::set<std::pair<node_index, std::uint16_t>> used;
    for (const auto& at : l->places) used.emplace(at.node, at.devices.front());
    CHECK(used.size() == stages * pipelines);
    for (std::uint32_t s = 0; s < stages; ++s)
      for (std::uint32_t p = 0; p < pipelines; ++p)
        CHECK(c.nodes[l->at(p, s).node].datacenter == l->datacenter_of(s));
    CHECK(std::accumulate(l->stages_of_datacenter.begin(), l->stages_of_datacenter.end(), 0u) ==
          stages);
    CHECK(l->parts == split_model(layered(9), stages));
  }
  CHECK(laid > 200);
}

TEST_CASE("GPUs that share a stage are of one node, and what is left of a node is nobody's") {
  const auto c = with_datacenters({{2, 5}, {1, 2}});
  auto job = layered(6);
  job.pipeline.tensor_parallel = 2;
  const auto l = lay_out_pipelines(c, all_of(c), job, 2, 2);
  REQUIRE(l);
  CHECK(l->at(0, 0) == device_place{0, {0, 1}});
  CHECK(l->at(0, 1) == device_place{0, {2, 3}});
  CHECK(l->at(1, 1) == device_place{1, {2, 3}});
  CHECK(l->parts == split_model(job, 2));
  const auto no = lay_out_pipelines(c, all_of(c), job, 6, 1);
  REQUIRE_FALSE(no);
  CHECK(no.error().text ==
        "1 pipelines of 6 stages of 2 GPUs of a node, a stage's GPUs all in one datacentre, do not "
        "fit the 10 GPUs of 2 datacentres: 5 stages do");
}

TEST_CASE("the lease's order of datacentres is the pipeline's, and stages a datacentre a wish") {
  const auto c = with_datacenters({{1, 4}, {1, 4}});
  auto parts = all_of(c);
  std::swap(parts[0], parts[1]);
  auto job = layered(6);
  auto l = lay_out_pipelines(c, parts, job, 6, 1);
  REQUIRE(l);
  CHECK(l->datacenters == std::vector<std::uint32_t>{1, 0});
  CHECK(l->stages_of_datacenter == std::vector<std::uint32_t>{4, 2});
  job.pipeline.stages_per_datacenter = 3;
  CHECK(lay_out_pipelines(c, parts, job, 6, 1)->stages_of_datacenter ==
        std::vector<std::uint32_t>{3, 3});
  job.pipeline.stages_per_datacenter = 2;  // would leave two stages without a place
  CHECK(lay_out_pipelines(c, parts, job, 6, 1)->stages_of_datacenter ==
        std::vector<std::uint32_t>{4, 2});
}

TEST_CASE("a layout is refused with a sentence") {
  const auto c = with_datacenters({{1, 4}, {1, 4}});
  const auto text = [&](std::uint32_t layers, std::uint32_t stages, std::uint32_t pipelines) {
    const auto l = lay_out_pipelines(c, all_of(c), layered(layers), stages, pipelines);
    return l ? "" : l.error().text;
  };
  CHECK(text(2, 5, 1) == can_split(layered(2).model, 5).error().text);
  CHECK(text(8, 2, 4).empty());
  CHECK(text(8, 8, 1).empty());
  CHECK(text(8, 4, 2).empty());
  CHECK(text(8, 3, 3) ==
        "3 pipelines of 3 stages, a stage's GPUs all in one datacentre, do not fit the 8 GPUs of 2 "
        "datacentres: 2 stages do");
  CHECK(text(8, 0, 1) == "a pipeline has at least one stage, and there is at least one");
  job_spec study;
  study.slots = slot_costs{};
  CHECK(lay_out_pipelines(c, all_of(c), study, 4, 2)->parts == std::vector<stage_part>(4));
}
