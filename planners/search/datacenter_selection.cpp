#include "planners/search/datacenter_selection.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/layout.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/search/selection_table.hpp"

// ATLAS's Algorithm 1 over the pools and orders that the paper leaves open
// (docs/planners/datacenter_selection.md). More pipelines raise throughput, but they spread over
// more datacenters, whose WAN hops make each of them slower; which number is best depends on both,
// so the table has a row for every D. Each row costs a partition and a bound, O(datacenters + P),
// and one cut of the model per batch split; distinct shapes are simulated afterwards, if they have
// few enough tasks. GPU speeds, orders, depths and cell sizes are loops around it, each limited.
// select_placement, which serves the scheduler, also spends a planning budget: when that is
// exhausted, the best row so far is used.

namespace troupe::planners {

namespace {

/// The row with the highest throughput. Rows are in order of D, so the first of nearly equal ones
/// has the fewest GPUs: it is the smallest D that section 4.5 asks for.
std::optional<std::size_t> best_of(const std::vector<selection_row>& rows, batch_rule rule) {
  std::optional<std::size_t> best;
  const auto worth = [&](const selection_row& r) {
    return rule == batch_rule::each ? r.throughput : r.samples_per_s;
  };
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].feasible() && (!best || worth(rows[i]) > worth(rows[*best]) * (1 + 1e-9))) best = i;
  return best;
}

/// Algorithm 1's table for one pool of GPUs. If no cell of C pipelines fits anywhere, smaller cells
/// are tried, with less of the WAN than the paper wants, unless the caller chose the size.
expected<selection> table_of(const selection_table& t, const job_spec& job,
                             const selection_options& o) {
  selection s;
  s.datacenters = t.offers();
  s.min_flops_s = t.flops_s();
  auto stages = t.stages_for(o);
  if (!stages) return refuse(stages.error());
  s.stages = *stages;
  const auto gpus = t.total_gpus();
  s.communication_to_compute = t.communication_to_compute(s.stages);
  const auto max_cell = std::max(gpus / s.stages, 1u);
  const auto wanted = static_cast<std::uint32_t>(
      std::clamp(std::ceil(s.communication_to_compute - 1e-9), 1.0, double(max_cell)));
  for (s.cell = o.cell ? o.cell : wanted; s.cell > 0; --s.cell) {
    s.rows.clear();
    for (std::uint32_t d = 1; std::uint64_t{d} * s.cell * s.stages <= gpus; ++d)
      s.rows.push_back(t.row(s.stages, s.cell, d, o.batch));
    s.best = best_of(s.rows, o.batch);
    if (s.best || o.cell) break;
  }
  if (!s.best)
    return refuse(reason::kind::insufficient,
                  "no pipeline of {} stages fits on the {} GPUs of {} datacenters{}", s.stages,
                  gpus, s.datacenters.size(),
                  o.batch == batch_rule::whole
                      ? fmt::format(" and divides the batch of {}", job.global_batch)
                      : "");
  s.simulated = t.simulate(s, o.max_tasks);
  s.best = best_of(s.rows, o.batch);
  if (!s.best) return refuse(reason::kind::infeasible, "no schedule stays within the memory limit");
  return s;
}

/// Round trips of the WAN hops between the datacenters that the row uses, ms.
double rtt_of(const cluster& c, const std::vector<datacenter_offer>& order,
              const selection_row& row) {
  double sum = 0;
  std::optional<std::uint32_t> last;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (row.partitions[i] == 0) continue;
    if (last) sum += 2e-3 * link_between(c, *last, order[i].datacenter, 0).latency_us;
    last = order[i].datacenter;
  }
  return sum;
}

/// The orders to try, the default one first: all permutations of up to `max_permuted` datacenters
/// (720 for six), otherwise the default alone.
std::vector<std::vector<std::uint32_t>> orders_of(const selection_table& t,
                                                  std::size_t max_permuted) {
  const auto first = mapped(t.offers(), &datacenter_offer::datacenter);
  if (first.size() > max_permuted) return {first};
  std::vector<std::vector<std::uint32_t>> all;
  auto order = first;
  std::sort(order.begin(), order.end());
  do all.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));
  std::erase(all, first);
  all.insert(all.begin(), first);
  return all;
}

struct placement {
  selection_row row;
  std::uint32_t stages = 0, cell = 0;
  std::vector<datacenter_offer> order;
  double flops_s = 0;
};

/// Whether `a` is better than `b` by the job's objective. `fastest`: the highest samples/s of any
/// placement, which "efficient" measures by.
bool better(const placement& a, const placement& b, const std::string& objective, double fastest) {
  // Times within this fraction of the fastest count as equal.
  constexpr double nearly = 0.98;
  // For a sample: iterations of slot jobs have as many as there are pipelines.
  const auto cost = [](const placement& x) { return hourly_cost(x.row) / x.row.samples_per_s; };
  if (objective == "cheapest" && cost(a) != cost(b)) return cost(a) < cost(b);
  if (objective == "efficient") {
    const bool near_a = a.row.samples_per_s >= nearly * fastest,
               near_b = b.row.samples_per_s >= nearly * fastest;
    if (near_a != near_b) return near_a;
    if (near_a && a.row.gpus != b.row.gpus) return a.row.gpus < b.row.gpus;
  }
  if (a.row.samples_per_s != b.row.samples_per_s) return a.row.samples_per_s > b.row.samples_per_s;
  return a.row.gpus < b.row.gpus;
}

/// Removes placements whose iterations cost more than `max`; if all do, all but the cheapest one,
/// which shows by how much the limit is missed.
void drop_dear(std::vector<placement>& all, double max) {
  const auto cost = [](const placement& x) { return cost_of_iteration(x.row); };
  max = std::max(max, cost(*std::ranges::min_element(all, {}, cost)));
  std::erase_if(all, [&](const placement& x) { return cost(x) > max; });
}

/// Appends the feasible rows of one table: every depth, cell size and number of cells.
void all_placements(const selection_table& t, const job_spec& job, bool as_wished,
                    std::vector<placement>& out) {
  const auto gpus = t.total_gpus();
  const auto wish = job.pipeline;
  const bool exact_depth = wish.stages && (as_wished || !facts_of(job).has_model);
  const auto deepest = std::min({wish.stages ? wish.stages : gpus, t.max_stages(), gpus});
  for (std::uint32_t p = exact_depth ? wish.stages : 1; p <= deepest; ++p) {
    if (!t.spend_for(p)) return;
    const auto c = std::ceil(t.communication_to_compute(p) - 1e-9);
    for (std::uint32_t cell = 1; cell == 1 || cell <= c; ++cell) {
      if (std::uint64_t{cell} * p > gpus) break;
      for (std::uint32_t d = 1; std::uint64_t{d} * cell * p <= gpus; ++d) {
        const auto pipelines = d * cell;
        if (wish.data_parallel &&
            (as_wished ? pipelines != wish.data_parallel : pipelines > wish.data_parallel))
          continue;
        auto row = t.row(p, cell, d, batch_rule::whole);
        if (row.feasible()) out.push_back({std::move(row), p, cell, t.offers(), t.flops_s()});
      }
    }
  }
}

}  // namespace

expected<selection> select_datacenters(const cluster& c, const idle_index& idle,
                                       const job_spec& job, const selection_options& o) {
  std::optional<expected<selection>> best;
  for (const double speed : speeds_of(c, idle, job)) {
    const selection_table t{c, idle, job, speed, o.order};
    auto made = table_of(t, job, o);
    if (!best || (made && (!*best || made->chosen()->samples_per_s >
                                         (*best)->chosen()->samples_per_s * (1 + 1e-9))))
      best = std::move(made);
  }
  if (!best) return refuse(reason::kind::insufficient, "no GPU is idle" + left_out(c, job));
  return std::move(*best);
}

std::vector<order_outcome> what_if_orders(const cluster& c, const idle_index& idle,
                                          const job_spec& job, const selection_options& o) {
  constexpr std::size_t max_datacenters = 6;
  std::vector<order_outcome> out;
  const auto speeds = speeds_of(c, idle, job);
  if (speeds.empty()) return out;
  auto options = o;
  options.max_tasks = 0;
  for (auto& order : orders_of(selection_table{c, idle, job, speeds[0], {}}, max_datacenters)) {
    options.order = order;
    const auto made = select_datacenters(c, idle, job, options);
    if (!made) continue;
    TROUPE_INVARIANT(made->chosen(), "a selection that was made has a row");
    const auto& row = *made->chosen();
    const double worth = o.batch == batch_rule::each ? row.throughput : row.samples_per_s;
    out.push_back({{}, row, hourly_cost(row) / 3600 / worth, rtt_of(c, made->datacenters, row)});
    // Datacenters without stages do not count for the outcome.
    auto& last = out.back();
    last.row.partitions.clear();
    for (std::size_t i = 0; i < row.partitions.size(); ++i) {
      if (row.partitions[i] == 0) continue;
      last.order.push_back(made->datacenters[i].datacenter);
      last.row.partitions.push_back(row.partitions[i]);
    }
  }
  std::ranges::stable_sort(out, {}, [](const order_outcome& x) {
    return std::tuple(-x.row.samples_per_s, x.cost_per_batch, x.wan_rtt_ms);
  });
  std::vector<order_outcome> once;
  for (auto& x : out)
    if (std::ranges::none_of(once, [&](const auto& y) { return y.order == x.order; }))
      once.push_back(std::move(x));
  return once;
}

namespace {

/// "; needs 2 idle GPUs in each of 3 datacenters; west has 0", where the number of stages in each
/// is limited; empty: it is not, or as many datacenters have them.
std::string stages_by_datacenter(const cluster& c, const idle_index& idle, const job_spec& job) {
  const auto& wish = job.pipeline;
  if (wish.stages_per_datacenter == 0 || wish.stages == 0) return {};
  const auto each = std::min(wish.stages, wish.stages_per_datacenter);
  const auto needed = each * std::max(1U, wish.data_parallel) * std::max(1U, wish.tensor_parallel);
  const auto datacenters = (wish.stages + each - 1) / each;
  std::vector<std::uint32_t> has(c.datacenters.size()), all(c.datacenters.size());
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    if (!allows(job, c.gpu_of(n))) continue;
    has[c.nodes[n].datacenter] += idle.idle(n);
    all[c.nodes[n].datacenter] += c.nodes[n].gpus;
  }
  std::string less;
  std::size_t enough = 0;
  for (std::uint32_t d = 0; d < has.size(); ++d) {
    enough += has[d] >= needed;
    if (all[d] > 0 && has[d] < needed)
      less += fmt::format("{}{} has {}", less.empty() ? "" : ", ", c.datacenters[d].name, has[d]);
  }
  if (enough >= datacenters) return {};
  return fmt::format("; needs {} idle GPU{} in each of {} datacenters{}{}", needed,
                     needed == 1 ? "" : "s", datacenters, less.empty() ? "" : "; ", less);
}

/// The error if no row is feasible: permanent if all GPUs were idle, otherwise the job has to wait.
reason nothing_fits(const cluster& c, const idle_index& idle, const job_spec& job, bool as_wished) {
  std::uint64_t all = 0;
  for (const auto& n : c.nodes)
    if (allows(job, c.gpus[n.gpu])) all += n.gpus;
  const bool whole = idle.total_idle() == all;
  const auto stages = as_wished && job.pipeline.stages
                          ? fmt::format(" of {} stages", job.pipeline.stages)
                          : std::string{};
  const auto bound = job.limits.max_gpus ? fmt::format(" and at most {} of them ({})",
                                                       *job.limits.max_gpus, bound_key(job))
                                         : std::string{};
  // A named order keeps as many micro-batches in flight as it has stages (megatron), or all
  // (gpipe).
  const auto limit = job.pipeline.max_in_flight;
  const auto in_order =
      limit > 0 && job.train &&
              (job.train->schedule == "megatron" || job.train->schedule == "gpipe")
          ? fmt::format(
                " with at most {} micro-batches in flight (max_in_flight) under schedule {}", limit,
                job.train->schedule)
          : std::string{};
  return {
      whole ? reason::kind::infeasible : reason::kind::insufficient,
      fmt::format(
          "no pipeline layout{}{} fits on the {} {}GPUs{}{}{}{}", stages, in_order,
          idle.total_idle(), whole ? "" : "idle ",
          job.limits.required_gpu_type.empty() ? "" : " of type " + job.limits.required_gpu_type,
          bound, left_out(c, job), as_wished ? stages_by_datacenter(c, idle, job) : "")};
}

}  // namespace

expected<selection> select_placement(const cluster& c, const idle_index& idle, const job_spec& job,
                                     bool as_wished, planning_budget& budget) {
  constexpr std::size_t max_datacenters = 4;
  if (facts_of(job).has_model && as_wished)
    if (auto ok = can_split(job.model, job.pipeline.stages); !ok) return refuse(ok.error());
  std::vector<placement> all;
  for (const double speed : speeds_of(c, idle, job)) {
    const selection_table first{c, idle, job, speed, {}, &budget};
    for (const auto& order : orders_of(first, max_datacenters))
      all_placements(selection_table{c, idle, first, order}, job, as_wished, all);
  }
  if (all.empty() && budget.exhausted()) return refuse(budget.none_found());
  if (all.empty()) return refuse(nothing_fits(c, idle, job, as_wished));
  if (job.limits.budget && facts_of(job).has_model)
    drop_dear(all, *job.limits.budget / static_cast<double>(job.iterations));
  const double fastest = max_of(all, 0, [](const placement& x) { return x.row.samples_per_s; });
  const placement* best = &all[0];
  for (const auto& x : all)
    if (better(x, *best, job.objective, fastest)) best = &x;
  selection s{best->order, best->stages, best->cell, 0, {best->row}, 0, best->flops_s};
  const auto order = mapped(s.datacenters, &datacenter_offer::datacenter);
  const selection_table t{c, idle, job, best->flops_s, order};
  s.communication_to_compute = t.communication_to_compute(s.stages);
  s.simulated = t.simulate(s, selection_options{}.max_tasks);
  return s;
}

}  // namespace troupe::planners
