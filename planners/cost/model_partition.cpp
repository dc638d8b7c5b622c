#include "planners/cost/model_partition.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>

#include "messages/base/folds.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/time.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/job_memory.hpp"

namespace troupe::planners {

namespace {

constexpr double rounding = 1e-12;  // sums may have been added in another order
// Above this number of steps the search for the least sum of squares is skipped.
constexpr std::uint64_t max_cut_steps = 4'000'000;

// The cut of a chain into ranges whose largest weight is minimal. Cutting at equal shares of the
// total puts an unlucky layer on the wrong side, and a dynamic program over (ranges, links) with
// the maximum alone costs O(parts * links^2). Instead: for a given maximum, a greedy walk that
// makes each range as long as it may be uses the fewest ranges, so it decides in O(links) whether
// the maximum is possible; bisection over doubles finds the least one exactly, to the last bit.
// Many cuts have that maximum, and the rest should be even, too (micro-batches wait at uneven
// stages): among them a dynamic program minimizes the sum of squares, restricted to the windows in
// which each range can begin. Beyond 4 million steps that is skipped, and the greedy cut is the
// answer.
using links = std::vector<chain_link>;

/// Parameters of a cut.
struct cutting {
  std::uint32_t parts = 1;
  double max_size = never, last_share = 1;
};

/// Whether the chain can be cut so that no range exceeds `max`: greedy from the front, each range
/// as long as possible, as no cut with as many ranges gets further. A link that alone exceeds `max`
/// can only be in the last range, which counts less.
bool suffice(const links& chain, const cutting& by, double max) {
  const auto last_from = by.parts - 1;  // index from which the last range may begin
  std::uint32_t used = 1;
  chain_link sum;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const auto& l = chain[i];
    if (l.size > by.max_size) return false;
    if (used < by.parts && (sum.weight + l.weight > max || sum.size + l.size > by.max_size)) {
      used = l.weight > max ? by.parts : used + 1;
      if (used == by.parts && i < last_from) return false;
      sum = {};
    }
    sum.weight += l.weight;
    sum.size += l.size;
    if (used == by.parts && (sum.weight * by.last_share > max || sum.size > by.max_size))
      return false;
  }
  return true;
}

/// The least possible maximum of the ranges' sums; infinite if the sizes do not fit.
double min_largest(const links& chain, const cutting& by) {
  double low = 0, high = sum_of(chain, &chain_link::weight) * (1 + rounding);
  if (!suffice(chain, by, high)) return never;
  if (suffice(chain, by, low)) return low;
  for (;;) {  // bisection, until no number lies between
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return high;
    (suffice(chain, by, middle) ? high : low) = middle;
  }
}

/// Greedy from the front: each range as long as possible, and none empty.
std::vector<std::uint32_t> cut_from_front(const links& chain, const cutting& by, double max) {
  std::vector<std::uint32_t> cut;
  std::size_t at = 0;
  for (std::uint32_t ranges = by.parts; ranges > 1; --ranges) {
    const auto last = chain.size() - (ranges - 1);  // the other ranges need a link each
    chain_link sum;
    const auto first = at;
    for (; at < last; ++at) {
      sum.weight += chain[at].weight;
      sum.size += chain[at].size;
      if (at > first && (sum.weight > max || sum.size > by.max_size)) break;
    }
    cut.push_back(static_cast<std::uint32_t>(at - first));
  }
  cut.push_back(static_cast<std::uint32_t>(chain.size() - at));
  return cut;
}

/// The links at which a range may begin, by the number of ranges from it on, if no range's sum
/// exceeds `max`: the links before must fit the ranges before it, and those behind the ranges that
/// remain.
struct window {
  std::vector<double> before;  // prefix sums of the weights
  double max, last_share;
  std::uint32_t parts;

  window(const links& chain, const cutting& by, double limit)
      : before(chain.size() + 1),
        max{limit * (1 + 1e-9)},
        last_share{by.last_share},
        parts{by.parts} {
    for (std::size_t i = 0; i < chain.size(); ++i) before[i + 1] = before[i] + chain[i].weight;
  }
  std::size_t from(std::uint32_t ranges) const {
    const double behind = (ranges - 1) * max + max / last_share;
    const auto at = std::ranges::lower_bound(before, before.back() * (1 - 1e-9) - behind);
    return std::max(static_cast<std::size_t>(at - before.begin()), std::size_t{parts} - ranges);
  }
  std::size_t until(std::uint32_t ranges) const {
    const auto at = std::ranges::upper_bound(before, (parts - ranges) * max);
    return std::min(static_cast<std::size_t>(at - before.begin()), before.size() - ranges);
  }
};

}  // namespace

std::vector<std::uint32_t> cut_evenly(const links& chain, std::uint32_t parts, double max_size,
                                      double last_share) {
  const cutting by{parts, max_size * (1 + rounding), last_share};
  const double max = min_largest(chain, by) * (1 + rounding);
  if (max == never) return {};
  const auto n = chain.size();
  // By number of ranges and first link: the least sum of squares from there to the end, and the
  // length of the first of these ranges.
  std::vector<double> squares(n + 1, never), next(n + 1);
  std::vector<std::vector<std::uint32_t>> counts(parts + 1, std::vector<std::uint32_t>(n));
  squares[n] = 0;
  const window reach{chain, by, max};
  std::uint64_t steps = 0;
  for (std::uint32_t ranges = 1; ranges <= parts; ++ranges) {
    std::ranges::fill(next, never);
    for (auto i = reach.from(ranges); i < reach.until(ranges); ++i) {
      chain_link sum;
      if (steps > max_cut_steps) return cut_from_front(chain, by, max);
      for (auto end = i + 1; end <= n; ++end) {
        ++steps;
        sum.weight += chain[end - 1].weight;
        sum.size += chain[end - 1].size;
        const double weight = sum.weight * (ranges == 1 ? last_share : 1);
        if (weight > max || sum.size > by.max_size) break;
        const double all = weight * weight + squares[end];
        if (all == never || all > next[i] * (1 + rounding)) continue;  // the longest among equals
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

/// The part of each of `tensor` GPUs of a range of the chain.
stage_part part_of(const model_chain& chain, std::uint32_t first, std::uint32_t count,
                   std::uint32_t pieces, std::uint32_t tensor) {
  auto r = chain.range(first, count);
  if (chain.has_divided_words()) r.kernels.logits /= tensor;
  return {first,
          std::min(count, pieces - std::min(first, pieces)),
          tensor,
          r.flops.for_one_of(tensor),
          r.parameters.for_one_of(tensor),
          r.kept_bytes.for_one_of(tensor),
          r.output_bytes,
          r.kernels,
          first + count == chain.size(),
          r.state_bytes};
}

/// The copy of a tied parameter on each GPU of the last of several stages, with the optimizer's
/// state of a program's: as much for each number as in the first layer, which has it, too.
void add_tied_copy(stage_part& last, const model_chain& chain, std::uint32_t tensor) {
  const auto first = chain.range(0, 1);
  const double parameters = first.parameters.for_one_of(1);
  last.parameters += chain.tied_parameters() / (chain.has_divided_words() ? tensor : 1);
  if (parameters > 0) last.state_bytes += first.state_bytes * chain.tied_parameters() / parameters;
}

/// Pieces of each stage, and the GPUs that share it.
struct piece_count {
  std::uint32_t pieces = 0, tensor = 1;
};

std::vector<stage_part> parts_of(const model_chain& chain, const model& m,
                                 const std::vector<piece_count>& stages) {
  std::vector<stage_part> parts;
  std::uint32_t first = 0;
  for (const auto& s : stages) {
    const bool last = parts.size() + 1 == stages.size();
    parts.push_back(part_of_stage(chain, m, first, s.pieces, s.tensor, last));
    first += s.pieces;
  }
  return parts;
}

/// The work of each piece, and how much of it the last of several stages does: it does not
/// recompute.
struct piece_work {
  std::vector<double> each;
  double last_share = 1;
};

/// By the profile's times if it has the program's layers, else by FLOPs.
piece_work work_of(const job_spec& job, const model_chain& chain, std::uint32_t tensor,
                   std::uint32_t rows, const gpu_type& gpu) {
  const auto how = recomputation_of(job);
  const bool spares_last = how == recomputation::stages;
  const auto* profile = has_program_layers(job.model) ? profile_of(job, gpu) : nullptr;
  piece_work w;
  if (profile) {
    w.each = layer_weights(*profile, job.model, rows, how != recomputation::none);
    const auto once = layer_weights(*profile, job.model, rows, false);
    const double all = sum_of(w.each, std::identity{}), last = sum_of(once, std::identity{});
    if (spares_last && last < all) w.last_share = last / all;
    return w;
  }
  const double backward = cost_constants{}.backward;
  if (spares_last) w.last_share = (1 + backward) / (2 + backward);
  const auto pieces = pieces_of(job.model);
  for (std::uint32_t i = 0; i < chain.size(); ++i)
    w.each.push_back(part_of(chain, i, 1, pieces, tensor).flops);
  return w;
}

/// The number of pieces of each link that a cut may not divide: of glued layers together.
std::vector<std::uint32_t> pieces_of_links(const model& m, std::uint32_t pieces) {
  std::vector<std::uint32_t> counts;
  for (std::uint32_t i = 0; i < pieces; ++i) {
    if (is_glued(m, i))
      ++counts.back();
    else
      counts.push_back(1);
  }
  return counts;
}

/// Balances forward, recompute and backward. If no cut fits the memory, it is cut without that
/// limit: the caller reports what is missing.
std::vector<std::uint32_t> cut_by_work(const job_spec& job, const model_chain& chain,
                                       std::uint32_t stages, const stage_load& load,
                                       const gpu_type& gpu) {
  const auto tensor = std::max(1U, job.pipeline.tensor_parallel);
  const auto pieces = pieces_of(job.model);
  const auto work = work_of(job, chain, tensor, load.rows, gpu);
  const auto of_links = pieces_of_links(job.model, chain.size());
  links weights;
  std::uint32_t at = 0;
  for (const auto n : of_links) {
    auto p = part_of(chain, at, n, pieces, tensor);
    if (at + n == chain.size() && stages > 1) add_tied_copy(p, chain, tensor);
    const auto first = work.each.begin() + at;
    weights.push_back({std::accumulate(first, first + n, 0.0), bytes_of_pieces(job, p, load)});
    at += n;
  }
  const auto of_any = bytes_of_any_stage(job, part_of(chain, 0, 1, pieces, tensor), load);
  auto counts = cut_evenly(weights, stages, load.max_bytes - of_any, work.last_share);
  if (counts.empty()) counts = cut_evenly(weights, stages, never, work.last_share);
  std::size_t link = 0;
  for (auto& count : counts) {
    const auto first = of_links.begin() + static_cast<std::ptrdiff_t>(link);
    link += count;
    count = std::accumulate(first, first + count, 0U);
  }
  return counts;
}

/// Layers that are in one stage with the layer before them.
std::uint32_t number_glued(const model& m) {
  const auto after_first = [&](const auto& op) { return op.glued && &op != m.operators.data(); };
  return static_cast<std::uint32_t>(std::ranges::count_if(m.operators, after_first));
}

}  // namespace

bool is_glued(const model& m, std::uint32_t piece) {
  return piece > 0 && piece < m.operators.size() && m.operators[piece].glued;
}

std::uint32_t pieces_of(const model& m) {
  return m.operators.empty() ? 2 * m.layers : static_cast<std::uint32_t>(m.operators.size());
}

expected<void> can_split(const model& m, std::uint32_t stages) {
  if (stages <= pieces_of(m) - number_glued(m)) return {};
  if (has_program_layers(m))
    return refuse(reason::kind::infeasible,
                  "{0} stages need at least {0} layers that may be cut apart; '{1}' has {2}",
                  stages, m.name, pieces_of(m) - number_glued(m));
  if (!m.operators.empty())
    return refuse(reason::kind::infeasible, "{0} stages need at least {0} operators; '{1}' has {2}",
                  stages, m.name, m.operators.size());
  return refuse(reason::kind::infeasible,
                "{} stages need at least half as many layers (each splits into "
                "attention and MLP); '{}' has {}",
                stages, m.name, m.layers);
}

stage_part part_of_stage(const model_chain& chain, const model& m, std::uint32_t first,
                         std::uint32_t count, std::uint32_t tensor, bool last) {
  auto part = part_of(chain, first, last ? chain.size() - first : count, pieces_of(m), tensor);
  if (last && first > 0) add_tied_copy(part, chain, tensor);
  return part;
}

std::vector<stage_part> split_model(const job_spec& job, std::uint32_t stages,
                                    const stage_load& load, const gpu_type& gpu) {
  if (job.slots || stages == 0) return std::vector<stage_part>(stages);
  const model_chain chain{job.model, divides_words(job)};
  const auto counts = job.pipeline.cut.size() == stages
                          ? job.pipeline.cut
                          : cut_by_work(job, chain, stages, load, gpu);
  std::vector<piece_count> split;
  for (const auto n : counts) split.push_back({n, std::max(1U, job.pipeline.tensor_parallel)});
  return parts_of(chain, job.model, split);
}

expected<std::vector<stage_part>> parts_of(const job_spec& job,
                                           const std::vector<plan_stage>& stages) {
  if (job.slots) return std::vector<stage_part>(stages.size());
  const auto pieces = pieces_of(job.model);
  std::vector<piece_count> split;
  std::uint32_t next = 0;
  for (const auto& s : stages) {
    const bool last = split.size() + 1 == stages.size();
    if (s.first != next || (s.count == 0 && !last) || s.count > pieces - next)
      return refuse(reason::kind::invalid,
                    "stage {} of the plan has {} pieces starting at {}; '{}' has {}, "
                    "and the stages before it cover {}",
                    split.size(), s.count, s.first, job.model.name, pieces, next);
    if (is_glued(job.model, s.first))
      return refuse(reason::kind::invalid,
                    "stage {} of the plan begins with layer {} of '{}', which shares a parameter "
                    "with the layer before it: expected both in one stage",
                    split.size(), s.first, job.model.name);
    split.push_back({s.count, std::max(1U, s.tensor_parallel)});
    next += s.count;
  }
  if (next != pieces)
    return refuse(reason::kind::invalid, "the plan's {} stages cover {} of the {} pieces of '{}'",
                  stages.size(), next, pieces, job.model.name);
  return parts_of(model_chain{job.model, divides_words(job)}, job.model, split);
}

}  // namespace troupe::planners
