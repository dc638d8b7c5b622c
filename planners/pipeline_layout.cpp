#include "planners/pipeline_layout.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace troupe::planners {

namespace {

/// A datacentre's GPUs, in the order in which the lease names them, so many of a node together.
struct stock {
  std::uint32_t datacenter = 0;
  std::vector<device_place> places;
};

std::vector<stock> by_datacenter(const cluster& c, const std::vector<lease_part>& parts,
                                 std::uint32_t together) {
  std::vector<stock> stocks;
  for (const auto& part : parts) {
    const auto dc = c.nodes[part.node].datacenter;
    auto at = std::ranges::find(stocks, dc, &stock::datacenter);
    if (at == stocks.end()) at = stocks.insert(at, stock{dc, {}});
    for (auto first = part.devices.begin(); part.devices.end() - first >= together;
         first += together)
      at->places.push_back({part.node, {first, first + together}});
  }
  return stocks;
}

std::uint32_t sum(const std::vector<std::uint32_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0u);
}

expected<void> check(const cluster& c, const std::vector<lease_part>& parts, const job_spec& job,
                     std::uint32_t stages, std::uint32_t pipelines) {
  using kind = reason::kind;
  if (stages == 0 || pipelines == 0)
    return refuse(kind::invalid, "a pipeline has at least one stage, and there is at least one");
  for (const auto& part : parts)
    if (part.node >= c.nodes.size())
      return refuse(kind::unknown, fmt::format("there is no node number {}", part.node));
  return job.slots ? expected<void>{} : can_split(job.model, stages);
}

}  // namespace

std::uint32_t pipeline_layout::datacenter_of(std::uint32_t stage) const {
  for (std::size_t i = 0; i < datacenters.size(); ++i) {
    if (stage < stages_of_datacenter[i]) return datacenters[i];
    stage -= stages_of_datacenter[i];
  }
  return datacenters.back();
}

std::vector<std::uint32_t> partition(const std::vector<std::uint32_t>& gpus, std::uint32_t stages,
                                     std::uint32_t pipelines, std::uint32_t most_each) {
  std::vector<std::uint32_t> result;
  for (const auto n : gpus) {
    const auto fit = most_each ? std::min(n / pipelines, most_each) : n / pipelines;
    result.push_back(std::min(stages, fit));
    stages -= result.back();
  }
  return result;
}

expected<pipeline_layout> lay_out_pipelines(const cluster& c, const std::vector<lease_part>& parts,
                                            const job_spec& job, std::uint32_t stages,
                                            std::uint32_t pipelines, const stage_load& memory) {
  if (auto ok = check(c, parts, job, stages, pipelines); !ok)
    return tl::unexpected<reason>(ok.error());
  const auto together = std::max(1U, job.pipeline.tensor_parallel);
  const auto stocks = by_datacenter(c, parts, together);
  std::vector<std::uint32_t> places;
  for (const auto& s : stocks) places.push_back(static_cast<std::uint32_t>(s.places.size()));
  auto share = partition(places, stages, pipelines, job.pipeline.stages_per_datacenter);
  if (sum(share) < stages) share = partition(places, stages, pipelines, 0);
  if (sum(share) < stages)
    return refuse(
        reason::kind::insufficient,
        fmt::format("{} pipelines of {} stages{}, a stage's GPUs all in one datacentre, do "
                    "not fit the {} GPUs of {} datacentres: {} stages do",
                    pipelines, stages,
                    together > 1 ? fmt::format(" of {} GPUs of a node", together) : "",
                    together * sum(places), stocks.size(), sum(share)));
  pipeline_layout layout;
  layout.stages = stages;
  layout.pipelines = pipelines;
  layout.places.resize(std::size_t{stages} * pipelines);
  layout.parts = split_model(job, stages, memory);
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < stocks.size(); ++i) {
    if (share[i] == 0) continue;
    // A pipeline's stages are neighbours on a node; peers of a stage are then on different ones,
    // and each has a share of the WAN of its own.
    auto next = stocks[i].places.begin();
    for (std::uint32_t p = 0; p < pipelines; ++p)
      for (std::uint32_t s = first; s < first + share[i]; ++s)
        layout.places[std::size_t{p} * stages + s] = *next++;
    layout.datacenters.push_back(stocks[i].datacenter);
    layout.stages_of_datacenter.push_back(share[i]);
    first += share[i];
  }
  return layout;
}

}  // namespace troupe::planners
