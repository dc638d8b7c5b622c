#include "planners/cost/lookup_table.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "messages/domain/tensor_split.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/declared_memory.hpp"

namespace troupe::planners {
namespace {

double between(double a, double b, double share) {
  return a + (b - a) * share;
}

/// The answer at `share` of the way between two.
lookup_answer between(const lookup_answer& a, const lookup_answer& b, double share) {
  return {between(a.iteration_s, b.iteration_s, share),
          between(a.bytes_per_gpu, b.bytes_per_gpu, share), a.nearest, true,
          a.outside || b.outside};
}

double share_of(std::uint32_t from, std::uint32_t to, std::uint32_t at) {
  return static_cast<double>(at - from) / static_cast<double>(to - from);
}

lookup_answer answer_of(const lookup_row& row) {
  return {row.iteration_s, row.bytes_per_gpu, &row, false, false};
}

}  // namespace

void lookup_table::add(lookup_row row) {
  auto& batches = grids_[key_of(row.gpu, row.model, row.shape)][row.shape.frozen_layers];
  const auto batch = row.shape.batch;
  batches.insert_or_assign(batch, std::move(row));
}

// Beyond the rows a smaller batch still needs the states that the smallest one has, hence its
// bytes; a larger batch is taken to need more of everything in proportion.
lookup_answer lookup_table::find_batch(const by_batch& rows, std::uint32_t batch) {
  const auto above = rows.lower_bound(batch);
  if (above != rows.end() && above->first == batch) return answer_of(above->second);
  if (above == rows.begin() || above == rows.end()) {
    const auto& edge = above == rows.end() ? std::prev(above)->second : above->second;
    const double scale = static_cast<double>(batch) / edge.shape.batch;
    return {edge.iteration_s * scale, edge.bytes_per_gpu * std::max(scale, 1.0), &edge, false,
            true};
  }
  const auto below = std::prev(above);
  return between(answer_of(below->second), answer_of(above->second),
                 share_of(below->first, above->first, batch));
}

std::optional<lookup_answer> lookup_table::find(const std::string& gpu, const std::string& model,
                                                const tuning_shape& shape) const {
  const auto grid = grids_.find(key_of(gpu, model, shape));
  if (grid == grids_.end()) return {};
  const auto& rows = grid->second;
  const auto above = rows.lower_bound(shape.frozen_layers);
  if (above != rows.end() && above->first == shape.frozen_layers)
    return find_batch(above->second, shape.batch);
  if (above == rows.begin() || above == rows.end()) {
    auto out = find_batch((above == rows.end() ? std::prev(above) : above)->second, shape.batch);
    out.outside = true;
    return out;
  }
  const auto below = std::prev(above);
  return between(find_batch(below->second, shape.batch), find_batch(above->second, shape.batch),
                 share_of(below->first, above->first, shape.frozen_layers));
}

bool lookup_table::has(const std::string& gpu, const std::string& model) const {
  const auto at = grids_.lower_bound({gpu, model, 0, 0, false, false});
  return at != grids_.end() && std::get<0>(at->first) == gpu && std::get<1>(at->first) == model;
}

lookup_table::choices lookup_table::choices_of(const std::string& gpu, const std::string& model,
                                               std::uint32_t gpus) const {
  choices out;
  std::set<std::uint32_t> batches;
  for (auto at = grids_.lower_bound({gpu, model, gpus, 0, false, false}); at != grids_.end();
       ++at) {
    const auto& [of_gpu, of_model, of_gpus, accumulate, amp, recompute] = at->first;
    if (of_gpu != gpu || of_model != model || of_gpus != gpus) break;
    out.ways.push_back({gpus, accumulate, 0, 0, amp, recompute});
    for (const auto& [frozen, rows] : at->second)
      for (const auto& [batch, row] : rows) batches.insert(batch);
  }
  out.batches.assign(batches.begin(), batches.end());
  return out;
}

// The paper caches the best parallel plan of a model; here a row has the fastest split of its GPUs
// into data and tensor parallelism that fits their memory.
std::vector<lookup_row> rows_by_cost_model(const cluster& c, gpu_index gpu, const job_spec& like,
                                           const tuning_grid& grid) {
  std::vector<lookup_row> rows;
  const auto& type = c.gpus[gpu];
  const auto nodes = nodes_of_type(c, gpu);
  if (nodes.empty()) return rows;
  const auto largest_node = c.nodes[nodes[0]].gpus;
  job_spec job = like;
  job.slots.reset();
  job.memory.emplace();
  const auto from = profile_of(job, type) ? row_source::profile : row_source::cost_model;
  const auto row_of = [&](const tuning_shape& shape,
                          std::uint32_t tensor) -> std::optional<lookup_row> {
    if (shape.gpus % tensor != 0) return {};
    lookup_row row{type.name, job.model.name, shape, 0, 0, {}, from};
    row.how.data_parallel = shape.gpus / tensor;
    row.how.tensor_parallel = tensor;
    row.how.gpu_types = {gpu};
    if (shape.batch < row.how.data_parallel * shape.accumulate) return {};
    job.global_batch = shape.batch;
    job.microbatches = shape.accumulate;
    job.memory->precision = shape.amp ? "mixed" : "fp32";
    job.memory->checkpointing = shape.recompute ? "full" : "none";
    row.bytes_per_gpu = row.how.bytes_per_gpu =
        program_bytes(job, row.how.data_parallel, tensor, c.settings.memory_headroom);
    if (!(row.bytes_per_gpu < type.memory_bytes())) return {};
    const auto e = estimate_iteration(c, job, row.how, pack(c, nodes, shape.gpus));
    if (!(e.iteration_s > 0)) return {};
    row.iteration_s = e.iteration_s;
    set_figures(row.how, e);
    return row;
  };
  const auto add_best = [&](const tuning_shape& shape) {
    std::optional<lookup_row> best;
    for (std::uint32_t tensor = 1; tensor <= largest_node && splits_into(job.model, tensor);
         tensor *= 2) {
      auto row = row_of(shape, tensor);
      if (row && (!best || row->iteration_s < best->iteration_s)) best = std::move(row);
    }
    if (best) rows.push_back(std::move(*best));
  };
  for (const auto gpus : grid.gpus)
    for (const auto accumulate : grid.accumulate)
      for (const bool amp : {false, true})
        for (const bool recompute : {false, true})
          for (const auto batch : grid.batches)
            add_best({gpus, accumulate, batch, 0, amp, recompute});
  return rows;
}

}  // namespace troupe::planners
