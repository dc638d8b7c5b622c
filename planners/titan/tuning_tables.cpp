#include "planners/titan/tuning_tables.hpp"

#include <algorithm>

#include "planners/cost/program_time.hpp"
#include "planners/titan/titan_problem.hpp"

namespace troupe::planners {
namespace {

// Options refer to rows of their table, so that both are kept together.
struct made_options {
  lookup_table by_cost_model;
  tuning_tables::by_gpus options;
};

std::shared_ptr<const tuning_tables::by_gpus> make_options(const lookup_table* measured,
                                                           const cluster& c, gpu_index gpu,
                                                           const job_spec& job,
                                                           std::optional<std::uint32_t> batch) {
  const auto nodes = nodes_of_type(c, gpu);
  auto made = std::make_shared<made_options>();
  if (nodes.empty()) return {made, &made->options};
  std::uint32_t gpus = 0;
  for (const auto n : nodes) gpus += c.nodes[n].gpus;
  const auto& type = c.gpus[gpu];
  tuning_grid grid;
  grid.gpus = titan_counts(c.nodes[nodes[0]].gpus, gpus);
  if (batch) grid.batches = {*batch};
  const bool known = measured && measured->has(type.name, job.model.name);
  if (!known)
    for (auto& row : rows_by_cost_model(c, gpu, job, grid)) made->by_cost_model.add(std::move(row));
  const auto& table = known ? *measured : made->by_cost_model;
  for (const auto n : grid.gpus) {
    auto options =
        options_by_batch(table, type.name, job.model.name, n, type.memory_bytes(), batch);
    if (!options.empty()) made->options.emplace(n, std::move(options));
  }
  return {made, &made->options};
}

}  // namespace

std::shared_ptr<const tuning_tables::by_gpus> tuning_tables::options_of(
    const cluster& c, gpu_index gpu, const job_spec& job,
    std::optional<std::uint32_t> batch) const {
  if (!cluster_ || *cluster_ != c) {
    cluster_ = c;
    answers_.clear();
  }
  question q{gpu, job.model, batch};
  const auto at = std::ranges::find(answers_, q, &answer::about);
  if (at != answers_.end()) return at->options;
  answers_.push_back({std::move(q), make_options(measured_.get(), c, gpu, job, batch)});
  return answers_.back().options;
}

}  // namespace troupe::planners
