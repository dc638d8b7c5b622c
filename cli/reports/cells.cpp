#include "cli/reports/cells.hpp"

#include <algorithm>
#include <cmath>

#include "cli/output/human.hpp"
#include "cli/output/table.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/crius/cell_tuner.hpp"
#include "planners/plans/plan_text.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::cli {

namespace {

using planners::cell;

// The options that the estimator assembles: data parallelism alone and tensor parallelism alone.
// Mixed ones are left to the tuner.
json options_of(const cell& x, std::size_t stage) {
  json options = json::array();
  const auto few = planners::sampled(x.space);
  for (const auto& p : few.plans[stage]) {
    if (p.data != 1 && p.tensor != 1) continue;
    double comm_s = 0;
    if (stage > 0 && x.estimated) {
      const auto& at = x.estimated->chosen;
      // The transfer into a stage depends on the stage before it, too: shown for the option that
      // was chosen there.
      comm_s = x.space.send(stage, at[stage - 1],
                            static_cast<std::size_t>(&p - few.plans[stage].data()));
    }
    options.push_back({{"data_parallel", p.data},
                       {"tensor_parallel", p.tensor},
                       {"time_s", p.work_s + comm_s},
                       {"comm_s", comm_s},
                       {"tail_s", p.tail_s},
                       {"bytes_per_gpu", std::llround(p.bytes_per_gpu)},
                       {"fits", p.fits}});
  }
  return options;
}

json stage_of(const cell& x, std::size_t i) {
  const auto& s = x.stages.stages[i];
  json out{{"gpus", s.gpus}, {"operators", {s.first, s.first + s.count - 1}}};
  if (!x.estimated) return out;
  const auto& p = x.space.plans[i][x.estimated->chosen[i]];
  out["data_parallel"] = p.data;
  out["tensor_parallel"] = p.tensor;
  out["bytes_per_gpu"] = std::llround(p.bytes_per_gpu);
  out["forward_s"] = p.work_s - p.backward_s;
  out["backward_s"] = p.backward_s;
  return out;
}

json cell_document(const cluster& c, const std::vector<planners::gpu_pool>& pools, const cell& x) {
  json stages = json::array(), options = json::array();
  for (std::size_t i = 0; i < x.stages.stages.size(); ++i) {
    stages.push_back(stage_of(x, i));
    options.push_back(options_of(x, i));
  }
  const auto& e = x.estimated;
  return {{"gpu", c.gpus[pools[x.pool].gpu].name},
          {"gpus", x.gpus},
          {"stages", stages},
          {"microbatches", x.space.microbatches},
          {"printed_s", e ? json(e->printed_s) : json()},
          {"estimate_s", e ? json(e->estimate_s) : json()},
          {"assemblies", x.assemblies},
          {"bottleneck_stage", e ? json(e->bottleneck) : json()},
          {"executable", x.tuned.has_value()},
          {"greedy_cut", x.stages.cheapest_edges},
          {"options", options}};
}

// Crius compares a Cell by its estimate, tunes the favoured half of its space, and runs the result;
// each step's time is here, so that its loss can be seen.
json tuned_document(const job_spec& job, const std::vector<cell>& all, const cell& x) {
  const auto t = planners::tune(x);
  // The reference of the paper's tuning accuracy: the best plan of the whole space.
  const auto full = planners::full_space(all, x);
  return {{"iteration_s", job.global_batch / x.tuned->samples_per_s},
          {"favoured_iteration_s", t.favoured.estimate_s},
          {"exact_iteration_s", t.exact.estimate_s},
          {"full_space_iteration_s", full.best_s},
          {"measured_plans", t.measured_plans},
          {"full_space_plans", full.plans},
          {"tuning_accuracy", 1 - (t.favoured.estimate_s - full.best_s) / full.best_s},
          {"plan", planners::split_text(*x.tuned)}};
}

std::vector<cell> tuned_cells(const cluster& c, const std::vector<planners::gpu_pool>& pools,
                              const job_spec& job) {
  auto cells = planners::cells_of(c, pools, job);
  for (auto& x : cells)
    // A Cell whose plans do not fit has no estimate.
    if (x.estimated) x.tuned = planners::runnable_plan(c, pools[x.pool], job, x);
  return cells;
}

}  // namespace

// All Cells, not only the chosen one: papers' figures compare them.
json cells_document(const cluster& c, const job_spec& job, const plan& how) {
  const runtime::stopwatch watch;
  const auto pools = planners::pools_of(c, planners::idle_index{c});
  // Cells are comparable only with common rows; the policy fixes them in the same way.
  const auto cells = tuned_cells(c, pools, planners::with_common_rows(job));
  const double seconds = watch.s();
  json all = json::array();
  std::size_t left_out = 0;
  for (const auto& x : cells) {
    all.push_back(cell_document(c, pools, x));
    left_out += x.tuned ? 0 : 1;
  }
  const auto chosen =
      std::ranges::find_if(cells, [&](const cell& x) { return x.tuned && *x.tuned == how; });
  const bool found = chosen != cells.end();
  return {{"cells", all},
          {"chosen", found ? json(chosen - cells.begin()) : json()},
          {"not_executable", left_out},
          {"tuned", found ? tuned_document(job, cells, *chosen) : json()},
          {"seconds", seconds}};
}

std::string cells_table(const cluster& c, const job_spec& job) {
  const auto pools = planners::pools_of(c, planners::idle_index{c});
  table t{{"GPUs", "stages", "estimate", "tuned", "plan", "GB/GPU"}};
  for (const auto& x : planners::best_cells(c, pools, job))
    t.row({fmt::format("{} {}", x.gpus, c.gpus[pools[x.pool].gpu].name),
           fmt::to_string(x.stages.stages.size()), duration_text(x.estimated->estimate_s),
           duration_text(job.global_batch / x.tuned->samples_per_s), planners::split_text(*x.tuned),
           fmt::format("{:.2f}", x.tuned->bytes_per_gpu / bytes_per_gb)});
  return t.text(terminal_columns());
}

}  // namespace troupe::cli
