#include "planners/crius/cell.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/model_chain.hpp"

namespace troupe::planners {

namespace {

// Stage determination (Crius, section 4.2, Figure 7). The paper gives each operator GPUs in
// proportion to its FLOPs, cuts at the cheapest edges and rounds each stage's sum to a power of
// two. The cheapest edges may be next to each other, and rounding then leaves stages lopsided,
// which the slowest one pays for. Enumerating all cuts and powers of two is exponential in the
// stages. Both costs are sums or maxima over the stages in order, so dynamic programs over (stages,
// GPUs, operators) are exact: the best cut of a prefix extends to the best cut of the whole,
// whatever follows. The first one finds the least possible FLOPs per GPU; the second one, among the
// cuts within `balance` of it, the fewest bytes between stages, then the least sum of squares.
// Where the paper's rule is even enough, the result is its cut (`cheapest_edges`).

constexpr double unreachable = std::numeric_limits<double>::infinity();

/// The best cut of a prefix: the values by which cuts are compared, and its last stage.
struct prefix_cut {
  double bytes = unreachable, squares = unreachable;
  std::uint32_t from = 0, gpus = 0;

  bool better_than(const prefix_cut& other) const {
    return std::tie(bytes, squares) < std::tie(other.bytes, other.squares);
  }
};

/// Prefixes of the chain by (stages, GPUs, operators), in two passes. A spread is a window of stage
/// sizes [fewest_, max_]: both passes are repeated for each window, so that it costs a factor of
/// log(gpus).
class stage_determination {
 public:
  stage_determination(const std::vector<chain_operator>& chain, std::uint32_t gpus,
                      std::uint32_t stages)
      : chain_{chain}, gpus_{gpus}, stages_{stages}, before_(chain.size() + 1) {
    for (std::size_t i = 0; i < chain.size(); ++i) before_[i + 1] = before_[i] + chain[i].flops;
  }

  cell_stages solve(double balance, std::uint32_t spread) {
    double min = unreachable;
    for (fewest_ = 1; fewest_ * stages_ <= gpus_; fewest_ *= 2) {
      max_ = spread > 0 ? fewest_ * spread : gpus_;
      min = std::min(min, min_slowest());
      if (spread == 0) break;  // a stage of one GPU is among those that may be
    }
    if (min == unreachable) return {};
    constexpr double rounding = 1e-12;  // of sums added up in another order
    const double limit = min * (1 + balance) * (1 + rounding);
    cell_stages best;
    prefix_cut best_cut;
    for (fewest_ = 1; fewest_ * stages_ <= gpus_; fewest_ *= 2) {
      max_ = spread > 0 ? fewest_ * spread : gpus_;
      fill_cuts(limit);
      if (const auto& all = cuts_[index(stages_, gpus_, size())]; all.better_than(best_cut)) {
        best_cut = all;
        best = read_cut();
      }
      if (spread == 0) break;
    }
    return best;
  }

 private:
  cell_stages read_cut() const {
    cell_stages out;
    auto at = static_cast<std::uint32_t>(chain_.size());
    auto left = gpus_;
    for (auto s = stages_; s > 0; --s) {
      const auto& c = cuts_[index(s, left, at)];
      out.stages.insert(out.stages.begin(), {c.from, at - c.from, c.gpus});
      at = c.from;
      left -= c.gpus;
    }
    out.cut_bytes = cuts_[index(stages_, gpus_, size())].bytes;
    out.cheapest_edges = out.cut_bytes <= cheapest_edges();
    return out;
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(chain_.size()); }
  double flops(std::uint32_t from, std::uint32_t to) const { return before_[to] - before_[from]; }
  double edge_before(std::uint32_t at) const { return at == 0 ? 0 : chain_[at - 1].output_bytes; }
  std::size_t index(std::uint32_t stage, std::uint32_t gpus, std::uint32_t end) const {
    return (std::size_t{stage} * (gpus_ + 1) + gpus) * (size() + 1) + end;
  }

  /// Calls f(stage, GPUs used, end) for each prefix that leaves the other stages a GPU and an
  /// operator each, in an order in which shorter ones come first.
  template <class F>
  void for_prefixes(F f) const {
    for (std::uint32_t s = 1; s <= stages_; ++s) {
      const auto rest = stages_ - s;
      const auto first_gpus = s == stages_ ? gpus_ : s;
      const auto first_end = s == stages_ ? size() : s;
      for (auto g = first_gpus; g + rest <= gpus_; ++g)
        for (auto end = first_end; end + rest <= size(); ++end) f(s, g, end);
    }
  }

  /// First pass: the least possible maximum of FLOPs per GPU. A stage's FLOPs grow as its beginning
  /// moves to the front, so the inner loop ends early.
  double min_slowest() const {
    std::vector<double> min((stages_ + 1) * std::size_t{gpus_ + 1} * (size() + 1), unreachable);
    min[index(0, 0, 0)] = 0;
    for_prefixes([&](std::uint32_t s, std::uint32_t g, std::uint32_t end) {
      double best = unreachable;
      for (auto n = fewest_; n <= std::min(g, max_); n *= 2)
        for (auto from = end; from-- > s - 1;) {
          if (edge_before(from) == unreachable) continue;
          const double mine = flops(from, end) / n;
          if (mine >= best) break;  // and more for every earlier beginning
          best = std::min(best, std::max(mine, min[index(s - 1, g - n, from)]));
        }
      min[index(s, g, end)] = best;
    });
    return min[index(stages_, gpus_, size())];
  }

  /// Second pass: the best cut of every prefix whose stages are within the limit.
  void fill_cuts(double limit) {
    cuts_.assign((stages_ + 1) * std::size_t{gpus_ + 1} * (size() + 1), {});
    cuts_[index(0, 0, 0)] = {0, 0, 0, 0};
    for_prefixes([&](std::uint32_t s, std::uint32_t g, std::uint32_t end) {
      auto& best = cuts_[index(s, g, end)];
      for (auto n = fewest_; n <= std::min(g, max_); n *= 2)
        for (auto from = end; from-- > s - 1;) {
          const double work = flops(from, end);
          if (work / n > limit) break;
          const auto& before = cuts_[index(s - 1, g - n, from)];
          const prefix_cut now{before.bytes + edge_before(from), before.squares + work * work / n,
                               from, n};
          if (now.better_than(best)) best = now;
        }
    });
  }

  /// The sum of the cheapest stages - 1 edges, where the paper's rule cuts.
  double cheapest_edges() const {
    auto edges = mapped(chain_, &chain_operator::output_bytes);
    TROUPE_INVARIANT(stages_ >= 1 && stages_ <= edges.size(),
                     "a Cell has no more stages than its model has operators");
    edges.pop_back();
    std::ranges::sort(edges);
    return std::accumulate(edges.begin(), edges.begin() + (stages_ - 1), 0.0);
  }

  const std::vector<chain_operator>& chain_;
  std::uint32_t gpus_, stages_;
  std::uint32_t fewest_ = 1, max_ = 1;  // GPUs that a stage may have
  std::vector<double> before_;
  std::vector<prefix_cut> cuts_;
};

}  // namespace

cell_stages determine_stages(const std::vector<chain_operator>& chain, std::uint32_t gpus,
                             std::uint32_t stages, double balance, std::uint32_t spread) {
  if (stages == 0 || stages > gpus || stages > chain.size()) return {};
  return stage_determination{chain, gpus, stages}.solve(balance, spread);
}

std::vector<chain_operator> chain_of(const model& m, const device_profile* profile) {
  const model_chain chain{m};
  const auto times = profile && has_program_layers(m) ? layer_weights(*profile, m, 1, false)
                                                      : std::vector<double>{};
  std::vector<chain_operator> out;
  const auto pieces = pieces_of(m);
  for (std::uint32_t i = 0; i < pieces; ++i) {
    const auto r = chain.range(i, i + 1 == pieces ? chain.size() - i : 1);
    const double edge = is_glued(m, i + 1) ? unreachable : r.output_bytes;
    out.push_back({times.empty() ? r.flops.divided + r.flops.whole : times[i], edge});
  }
  return out;
}

std::uint32_t wanted_gpus(const job_spec& job) {
  const auto& p = job.pipeline;
  const auto wanted = std::max(1U, p.stages) * std::max(1U, p.data_parallel);
  if (p.stages > 0 || p.data_parallel > 0) return wanted * std::max(1U, p.tensor_parallel);
  return std::max(1U, job.request.gpus);
}

std::vector<std::uint32_t> cell_counts(const job_spec& job) {
  const auto wanted = wanted_gpus(job);
  std::vector<std::uint32_t> counts;
  for (const auto n : {wanted / 2, wanted, 2 * wanted})
    if (n > 0 && (!job.limits.max_gpus || n <= *job.limits.max_gpus)) counts.push_back(n);
  if (counts.empty() && job.limits.max_gpus && *job.limits.max_gpus > 0)
    counts.push_back(*job.limits.max_gpus);
  return counts;
}

// Rows by the Cell with the most GPUs, if all of them are replicas: up to four micro-batches for
// each. Cells with fewer replicas have more micro-batches of the same size.
job_spec with_common_rows(job_spec job) {
  if (!job.train || job.pipeline.rows > 0) return job;
  const auto counts = cell_counts(job);
  if (counts.empty()) return job;
  constexpr std::uint32_t fewest_microbatches = 4;
  const auto widest = counts.back();
  if (job.global_batch % widest != 0) return job;
  const auto each = job.global_batch / widest;
  auto m = std::min(each, fewest_microbatches);
  while (each % m != 0) --m;
  job.pipeline.rows = each / m;
  job.pipeline.microbatches = 0;
  job.microbatches.reset();
  return job;
}

std::vector<std::uint32_t> cell_depths(const job_spec& job, std::uint32_t gpus) {
  std::vector<std::uint32_t> depths;
  for (std::uint32_t n = 1; n <= std::min(gpus, pieces_of(job.model)); n *= 2) depths.push_back(n);
  return depths;
}

}  // namespace troupe::planners
