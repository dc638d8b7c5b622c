#include "planners/stage_split.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "planners/cost_model.hpp"
#include "planners/model_shape.hpp"

namespace troupe::planners {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr double hair = 1e-12;  // for sums that were added up in another order
// Beyond so many steps the cut with the least sum of squares is not looked for.
constexpr std::uint64_t max_cut_steps = 4'000'000;
constexpr double bytes_a_parameter = 20;

using links = std::vector<chain_link>;

/// What the ranges are cut by.
struct cutting {
  std::uint32_t parts = 1;
  double most_size = never, last_share = 1;
};

/// Whether so many ranges can do: from the front, each as long as it may be.
bool suffice(const links& chain, const cutting& by, double most) {
  const auto last_from = by.parts - 1;  // links before the last range, at least
  std::uint32_t used = 1;
  chain_link sum;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const auto& l = chain[i];
    if (l.size > by.most_size) return false;
    if (used < by.parts && (sum.weight + l.weight > most || sum.size + l.size > by.most_size)) {
      used = l.weight > most ? by.parts : used + 1;
      if (used == by.parts && i < last_from) return false;
      sum = {};
    }
    sum.weight += l.weight;
    sum.size += l.size;
    if (used == by.parts && (sum.weight * by.last_share > most || sum.size > by.most_size))
      return false;
  }
  return true;
}

/// The least that the largest of so many ranges can sum to; infinite if their sizes do not fit.
double least_largest(const links& chain, const cutting& by) {
  double low = 0, high = 0;
  for (const auto& l : chain) high += l.weight;
  high *= 1 + hair;
  if (!suffice(chain, by, high)) return never;
  if (suffice(chain, by, low)) return low;
  for (;;) {  // until no number lies between
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return high;
    (suffice(chain, by, middle) ? high : low) = middle;
  }
}

/// From the front, each range as long as it may be, and none empty.
std::vector<std::uint32_t> cut_from_front(const links& chain, const cutting& by, double most) {
  std::vector<std::uint32_t> cut;
  std::size_t at = 0;
  for (std::uint32_t ranges = by.parts; ranges > 1; --ranges) {
    const auto last = chain.size() - (ranges - 1);  // the others need a link each
    chain_link sum;
    const auto first = at;
    for (; at < last; ++at) {
      sum.weight += chain[at].weight;
      sum.size += chain[at].size;
      if (at > first && (sum.weight > most || sum.size > by.most_size)) break;
    }
    cut.push_back(static_cast<std::uint32_t>(at - first));
  }
  cut.push_back(static_cast<std::uint32_t>(chain.size() - at));
  return cut;
}

/// The links at which a cut into ranges of at most `most` can have so many ranges left: what is
/// before and what is behind must fit their ranges.
struct window {
  std::vector<double> before;  // weight of the links before each, and of all
  double most, last_share;
  std::uint32_t parts;

  window(const links& chain, const cutting& by, double limit)
      : before(chain.size() + 1),
        most{limit * (1 + 1e-9)},
        last_share{by.last_share},
        parts{by.parts} {
    for (std::size_t i = 0; i < chain.size(); ++i) before[i + 1] = before[i] + chain[i].weight;
  }
  std::size_t from(std::uint32_t ranges) const {
    const double behind = (ranges - 1) * most + most / last_share;
    const auto at = std::ranges::lower_bound(before, before.back() * (1 - 1e-9) - behind);
    return std::max(static_cast<std::size_t>(at - before.begin()), std::size_t{parts} - ranges);
  }
  std::size_t until(std::uint32_t ranges) const {
    const auto at = std::ranges::upper_bound(before, (parts - ranges) * most);
    return std::min(static_cast<std::size_t>(at - before.begin()), before.size() - ranges);
  }
};

}  // namespace

std::vector<std::uint32_t> cut_evenly(const links& chain, std::uint32_t parts, double most_size,
                                      double last_share) {
  const cutting by{parts, most_size * (1 + hair), last_share};
  const double most = least_largest(chain, by) * (1 + hair);
  if (most == never) return {};
  const auto n = chain.size();
  // For so many ranges from each link to the end: the least sum of squares, and the first one's
  // count.
  std::vector<double> squares(n + 1, never), next(n + 1);
  std::vector<std::vector<std::uint32_t>> counts(parts + 1, std::vector<std::uint32_t>(n));
  squares[n] = 0;
  const window reach{chain, by, most};
  std::uint64_t steps = 0;
  for (std::uint32_t ranges = 1; ranges <= parts; ++ranges) {
    std::ranges::fill(next, never);
    for (auto i = reach.from(ranges); i < reach.until(ranges); ++i) {
      chain_link sum;
      if (steps > max_cut_steps) return cut_from_front(chain, by, most);
      for (auto end = i + 1; end <= n; ++end) {
        ++steps;
        sum.weight += chain[end - 1].weight;
        sum.size += chain[end - 1].size;
        const double weight = sum.weight * (ranges == 1 ? last_share : 1);
        if (weight > most || sum.size > by.most_size) break;
        const double all = weight * weight + squares[end];
        if (all == never || all > next[i] * (1 + hair)) continue;  // the longest of equals
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

/// What a sublayer keeps for its backward (Korthikanti et al., sections 4.1 and 4.2.1, with the
/// layer norm before it): 34 s h + 5 a s^2 a layer, of which t GPUs share all but 10 s h.
double kept_bytes(const model& m, bool attention, double t) {
  const double s = m.sequence, h = m.hidden, a = m.heads;
  return 5 * s * h + (attention ? 8 * s * h + 5 * a * s * s : 16 * s * h) / t;
}

/// Of a sublayer's: norm and last bias are everybody's.
double parameters_of_share(const model& m, double all, double t) {
  const double everybodys = 3 * double{1} * m.hidden;
  return t > 1 ? everybodys + (all - everybodys) / t : all;
}

/// Parameters of a head that is the embedding, in the last stage a copy of the first one's.
double copied_embedding(model m) {
  const double tied = shape_of(m).parameters;
  m.tied_head = false;
  return shape_of(m).parameters - tied;
}

/// But for the inputs that are held.
double bytes_of(const stage_part& p, const stage_memory& memory) {
  const double whole = memory.recompute ? 1 : memory.held;  // micro-batches with all activations
  return bytes_a_parameter * p.parameters + memory.rows * whole * p.activation_bytes;
}

double input_bytes(const stage_part& p, const stage_memory& memory) {
  return memory.recompute ? double{1} * memory.rows * memory.held * p.output_bytes : 0;
}

/// A transformer's sublayers, the first one with the embedding, and the head: each a part of one.
std::vector<stage_part> pieces(const job_spec& job, bool copies_embedding) {
  const auto& m = job.model;
  const double t = std::max(1U, job.pipeline.tensor_parallel);
  std::vector<stage_part> out;
  const auto chain = expand(m);
  for (std::uint32_t i = 0; i + 1 < chain.size(); ++i) {
    const auto& op = chain[i + 1];
    const bool head = i + 2 == chain.size();
    out.push_back({i, head ? 0u : 1u, head ? op.flops : op.flops / t,
                   head ? op.parameters : parameters_of_share(m, op.parameters, t),
                   head ? 0 : kept_bytes(m, i % 2 == 0, t), chain[1].output_bytes});
  }
  out.front().flops += chain.front().flops;
  out.front().parameters += chain.front().parameters;
  if (copies_embedding) out.back().parameters += copied_embedding(m);
  return out;
}

std::vector<stage_part> split_transformer(const job_spec& job, std::uint32_t stages,
                                          const stage_memory& memory) {
  const double backward = cost_constants{}.backward;
  const double last = job.pipeline.recompute ? (1 + backward) / (2 + backward) : 1;
  const auto all = pieces(job, stages > 1);
  links chain;
  for (const auto& p : all) chain.push_back({p.flops, bytes_of(p, memory)});
  auto counts =
      cut_evenly(chain, stages, memory.most_bytes - input_bytes(all.front(), memory), last);
  if (counts.empty()) counts = cut_evenly(chain, stages, never, last);
  std::vector<stage_part> parts;
  std::size_t at = 0;
  for (const auto count : counts) {
    auto p = all[at++];
    for (std::uint32_t i = 1; i < count; ++i, ++at) {
      p.count += all[at].count;
      p.flops += all[at].flops;
      p.parameters += all[at].parameters;
      p.activation_bytes += all[at].activation_bytes;
    }
    parts.push_back(p);
  }
  return parts;
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

std::vector<stage_part> split_model(const job_spec& job, std::uint32_t stages,
                                    const stage_memory& memory) {
  if (job.slots || stages == 0) return std::vector<stage_part>(stages);
  if (!job.model.operators.empty()) return split_operators(job.model, stages);
  return split_transformer(job, stages, memory);
}

double bytes_of_stage(const std::vector<stage_part>& parts, const stage_memory& memory) {
  double most = 0;
  for (const auto& p : parts) most = std::max(most, bytes_of(p, memory) + input_bytes(p, memory));
  return most;
}

}  // namespace troupe::planners
