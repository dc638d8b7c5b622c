// Gavel's linear programs. Rows: one a job, one a type, and for max-min one a job more. Columns:
// X[job][type] where the job can run, then the least throughput. With z_m the GPUs of job m, n_t
// those of type t and r_mt its throughput there, relative to the job's own scale:
//
//   sum over t of X[m][t] <= 1,   sum over m of z_m X[m][t] <= n_t,   X >= 0,
//   max-sum: maximize the sum of r_mt X[m][t];
//   max-min: maximize y with y <= z_m * sum over t of r_mt X[m][t] for each m.
//
// A row that stands for w equal jobs has w in place of 1; its X is divided among them at the end.

#include <algorithm>
#include <utility>
#include <vector>

#include "planners/baselines/gavel.hpp"
#include "planners/solver/linear_program.hpp"

namespace troupe::planners {
namespace {

/// Has every throughput a place in the program, relative to `own`? Without that a job has no share.
bool is_usable(const gavel_job& j, double own) {
  return own > 0 && std::ranges::all_of(j.rates, [&](double rate) {
           return linear_program::takes(rate / own * j.gpus / j.weight);
         });
}

/// Throughput if the job had each type in proportion to what there is of it.
double equal_share_rate(const gavel_job& j, const std::vector<double>& capacity) {
  double all = 0, sum = 0;
  for (std::size_t t = 0; t < capacity.size(); ++t) {
    all += capacity[t];
    sum += capacity[t] * j.rates[t];
  }
  return all > 0 ? sum / all : 0;
}

}  // namespace

std::vector<std::vector<double>> gavel_allocation(const std::vector<gavel_job>& jobs,
                                                  const std::vector<double>& capacity,
                                                  gavel_objective objective) {
  constexpr double infinite = linear_program::infinite;
  linear_program p;
  std::vector<std::pair<std::size_t, std::size_t>> names;  // by column: job, type
  const auto job_rows = jobs.size(), type_rows = capacity.size();
  const bool fair = objective == gavel_objective::max_min;
  for (const auto& j : jobs) p.add_row(-infinite, j.weight);
  for (const double n : capacity) p.add_row(-infinite, n);
  for (std::size_t i = 0; fair && i < jobs.size(); ++i) p.add_row(0, infinite);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto& j = jobs[i];
    const double own = fair ? equal_share_rate(j, capacity) : *std::ranges::max_element(j.rates);
    if (!is_usable(j, own)) continue;
    for (std::size_t t = 0; t < capacity.size(); ++t) {
      if (j.rates[t] <= 0) continue;
      const double rate = j.rates[t] / own;
      std::vector<linear_program::entry> column{{i, 1}, {job_rows + t, j.gpus}};
      if (fair) column.push_back({job_rows + type_rows + i, rate * j.gpus / j.weight});
      p.add_column(std::move(column), fair ? 0 : -rate);
      names.emplace_back(i, t);
    }
  }
  if (fair) {
    std::vector<linear_program::entry> min;
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (is_usable(jobs[i], equal_share_rate(jobs[i], capacity)))
        min.push_back({job_rows + type_rows + i, -1});
    p.add_column(std::move(min), -1);
  }
  std::vector<std::vector<double>> out(jobs.size(), std::vector<double>(capacity.size()));
  if (names.empty()) return out;
  auto solver = linear_solver::of(p, false);
  if (!solver) return out;
  solver->relax();
  const auto x = solver->solution();
  for (std::size_t k = 0; k < names.size(); ++k) {
    const auto [i, t] = names[k];
    out[i][t] = std::max(0.0, x[k]) / jobs[i].weight;
  }
  return out;
}

}  // namespace troupe::planners
