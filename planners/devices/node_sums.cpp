#include "planners/devices/node_sums.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "planners/devices/kernel_time.hpp"

namespace troupe::planners {

namespace {

/// A kind of link whose all-reduces were published.
struct kind_of_link {
  std::string_view link;  // its name in cluster files
  double gbps = 0;        // its rate there: another one is another link
  std::string_view gpu;   // of this type alone; empty: of all others
  node_sums sums;
};

// NVIDIA's own nccl-tests for its inference planner, half precision, one node a type:
// github.com/ai-dynamo/aiconfigurator at 095f58a5 (Apache-2.0), aic-core/src/aiconfigurator_core/
// systems/data/*/comm/nccl. Two numbers for each count of GPUs, with the smallest error of the
// worst row from 1 MiB to 256 MiB (two GPUs on NVLink 5: without the rows of 4 MiB, where NCCL
// changes its protocol). docs/planners/cost_model.md has the errors.
constexpr std::string_view nccl_tables =
    "ai-dynamo/aiconfigurator 095f58a5, nccl-tests of one node";

node_sums measured_sums_of(std::string_view of, std::vector<group_rate> rates) {
  return {std::move(rates), fmt::format("{} ({})", nccl_tables, of), false};
}

// PCIe: 2, 4 and 8 RTX PRO 6000 reached 0.64, 0.45 and 0.37 of PCIe 5's rate. Nodes differ by how
// their slots are connected, and whether GPUs may read each other's memory: eight L40S of another
// node reached 0.06 of PCIe 4's.
node_sums shares_of_pcie(double gbps) {
  return {{{2, 0.643 * gbps, 2.1}, {4, 0.454 * gbps, 2.1}, {8, 0.375 * gbps, 3.9}},
          fmt::format("the shares of PCIe's rate that 8 RTX PRO 6000 reached: {}", nccl_tables),
          true};
}

const std::array<kind_of_link, 7>& published_kinds() {
  static const std::array<kind_of_link, 7> all{{
      {"nvlink", 2400, "",
       measured_sums_of("A100", {{2, 2144, 16}, {4, 1880, 8.8}, {8, 2056, 13.3}})},
      {"nvlink4", 3600, "",
       measured_sums_of("H100, H200", {{2, 2880, 4.7}, {4, 3328, 5.9}, {8, 4168, 10.5}})},
      {"nvlink5", 7200, "",
       measured_sums_of("B200, B300, GB200, GB300",
                        {{2, 5152, 7.9}, {4, 6320, 11.1}, {8, 6688, 16.8}})},
      {"pcie4",
       252,
       "L40S",
       {{{2, 175.2, 2.2}, {4, 44, 0}, {8, 14.2, 0}},
        fmt::format("another node of 8 L40S: {}", nccl_tables),
        true}},
      {"pcie3", 126, "", shares_of_pcie(126)},
      {"pcie4", 252, "", shares_of_pcie(252)},
      {"pcie5", 504, "", shares_of_pcie(504)},
  }};
  return all;
}

}  // namespace

const std::vector<group_rate>* group_rates_of(const link& inside, const gpu_type& gpu) {
  if (inside.group_rates) return &*inside.group_rates;
  const auto* known = sums_of_kind(inside, gpu);
  return known ? &known->rates : nullptr;
}

const node_sums* sums_of_kind(const link& inside, const gpu_type& gpu) {
  if (ring_share(gpu) >= 1) return nullptr;
  const auto at = std::ranges::find_if(published_kinds(), [&](const kind_of_link& k) {
    return k.link == inside.name && k.gbps == inside.gbps && (k.gpu.empty() || k.gpu == gpu.name);
  });
  return at == published_kinds().end() ? nullptr : &at->sums;
}

double all_reduce_s(const std::vector<group_rate>& rates, double gpus, double bytes) {
  if (gpus <= 1 || bytes <= 0) return 0;
  const auto high =
      std::ranges::find_if(rates, [&](const group_rate& r) { return r.gpus >= gpus; });
  auto [n, gbps, latency_us] = high == rates.end() ? rates.back() : *high;
  if (high != rates.end() && high != rates.begin()) {
    const auto& low = *(high - 1);
    const double fraction = std::log2(gpus / low.gpus) / std::log2(double{1} * n / low.gpus);
    gbps = low.gbps + fraction * (gbps - low.gbps);
    latency_us = low.latency_us + fraction * (latency_us - low.latency_us);
  }
  const double sent_s = 2 * (gpus - 1) / gpus * bytes / (gbps * 1e9 / 8);
  const double root = std::sqrt(latency_us * 1e-6) + std::sqrt(sent_s);
  constexpr double launch_s = 2e-6;  // of each GPU
  return std::max(launch_s * gpus, root * root);
}

}  // namespace troupe::planners
