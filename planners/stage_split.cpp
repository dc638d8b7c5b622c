#include "planners/stage_split.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "planners/model_shape.hpp"

namespace troupe::planners {

namespace {

/// How many ranges it takes from each weight to the end if none sums to more than `most`; one too
/// many for one that is larger.
std::vector<std::uint32_t> ranges_needed(const std::vector<double>& weights, double most) {
  const auto n = weights.size();
  const auto never = static_cast<std::uint32_t>(n) + 1;
  std::vector<std::uint32_t> needed(n + 1, 0);
  double sum = 0;
  auto end = n;  // of the longest range from i
  for (auto i = n; i-- > 0;) {
    sum += weights[i];
    while (end > i && sum > most) sum -= weights[--end];
    needed[i] = end == i ? never : std::min(never, needed[end] + 1);
  }
  return needed;
}

/// The least that the largest of so many ranges can sum to.
double least_largest(const std::vector<double>& weights, std::uint32_t parts) {
  double low = 0, high = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (ranges_needed(weights, low)[0] <= parts) return low;
  for (;;) {  // until no number lies between
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return high;
    (ranges_needed(weights, middle)[0] <= parts ? high : low) = middle;
  }
}

}  // namespace

std::vector<std::uint32_t> cut_evenly(const std::vector<double>& weights, std::uint32_t parts) {
  constexpr double never = std::numeric_limits<double>::infinity(), hair = 1e-12;
  // A hair more, for sums that were added up in another order.
  const double most = least_largest(weights, parts) * (1 + hair);
  const auto n = weights.size();
  // For so many ranges from each weight to the end: the least sum of squares, and the first one's
  // count.
  std::vector<double> squares(n + 1, never), next(n + 1);
  std::vector<std::vector<std::uint32_t>> counts(parts + 1, std::vector<std::uint32_t>(n));
  squares[n] = 0;
  for (std::uint32_t ranges = 1; ranges <= parts; ++ranges) {
    std::ranges::fill(next, never);
    for (std::size_t i = parts - ranges; i + ranges <= n; ++i) {
      double sum = 0;
      for (auto end = i + 1; end <= n && (sum += weights[end - 1]) <= most; ++end) {
        const double all = sum * sum + squares[end];
        if (all > next[i] * (1 + hair) || all == never) continue;  // the longest of equals
        next[i] = all;
        counts[ranges][i] = static_cast<std::uint32_t>(end - i);
      }
    }
    squares.swap(next);
  }
  std::vector<std::uint32_t> cut;
  std::size_t at = 0;
  for (auto ranges = parts; ranges > 0; --ranges) {
    cut.push_back(counts[ranges][at]);
    at += cut.back();
  }
  return cut;
}

namespace {

std::vector<stage_part> split_operators(const model& m, std::uint32_t stages) {
  std::vector<stage_part> parts(stages);
  const auto whole = pieces_of(m);
  std::uint32_t first = 0;
  for (std::uint32_t s = 0; s < stages; ++s) {
    auto& p = parts[s];
    p.first = first;
    p.count = whole / stages + (s < whole % stages ? 1 : 0);
    for (; first < p.first + p.count; ++first) {
      const auto& op = m.operators[first];
      p.flops += op.flops;
      p.parameters += op.parameters;
      p.activation_bytes += op.output_bytes;
      p.output_bytes = op.output_bytes;
    }
  }
  return parts;
}

/// What a sublayer keeps for its backward (Korthikanti et al., section 4.1, with the layer norm
/// before it): 34 s h + 5 a s^2 a layer.
double kept_bytes(const model& m, bool attention) {
  const double s = m.sequence, h = m.hidden, a = m.heads;
  return attention ? 13 * s * h + 5 * a * s * s : 21 * s * h;
}

/// Parameters of a head that is the embedding, in the last stage a copy of the first one's.
double copied_embedding(troupe::model m) {
  const double tied = shape_of(m).parameters;
  m.tied_head = false;
  return shape_of(m).parameters - tied;
}

}  // namespace

std::uint32_t pieces_of(const model& m) {
  return m.operators.empty() ? 2 * m.layers : static_cast<std::uint32_t>(m.operators.size());
}

expected<void> can_split(const model& m, std::uint32_t stages) {
  if (stages <= pieces_of(m)) return {};
  if (!m.operators.empty())
    return refuse(reason::kind::infeasible,
                  fmt::format("{} stages need as many operators; '{}' has {}", stages, m.name,
                              m.operators.size()));
  return refuse(reason::kind::infeasible,
                fmt::format("{} stages need half as many layers, a layer being its attention and "
                            "its MLP; '{}' has {}",
                            stages, m.name, m.layers));
}

std::vector<stage_part> split_model(const model& m, std::uint32_t stages) {
  if (!m.operators.empty()) return split_operators(m, stages);
  const auto chain = expand(m);  // embedding, sublayers, head
  std::vector<double> weights;
  for (std::size_t i = 1; i < chain.size(); ++i) weights.push_back(chain[i].flops);
  weights.front() += chain.front().flops;
  const auto counts = cut_evenly(weights, stages);
  std::vector<stage_part> parts(stages);
  std::uint32_t first = 0;
  for (std::uint32_t s = 0; s < stages; ++s) {
    auto& p = parts[s];
    const bool last = s + 1 == stages;
    p.first = first;
    p.count = counts[s] - (last ? 1 : 0);
    if (s == 0) p.flops += chain.front().flops, p.parameters += chain.front().parameters;
    for (; first < p.first + p.count; ++first) {
      const auto& op = chain[first + 1];
      p.flops += op.flops;
      p.parameters += op.parameters;
      p.activation_bytes += kept_bytes(m, first % 2 == 0);
    }
    if (last) p.flops += chain.back().flops, p.parameters += chain.back().parameters;
    if (last && stages > 1) p.parameters += copied_embedding(m);
    p.output_bytes = chain[1].output_bytes;
  }
  return parts;
}

std::vector<stage_part> parts_of(const job_spec& job, std::uint32_t stages) {
  return job.slots ? std::vector<stage_part>(stages) : split_model(job.model, stages);
}

}  // namespace troupe::planners
