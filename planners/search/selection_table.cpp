#include "planners/search/selection_table.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "messages/base/folds.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/time.hpp"
#include "planners/cost/layout.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/job_device.hpp"
#include "planners/model/job_memory.hpp"
#include "planners/schedule/named_schedule.hpp"

// Rows of ATLAS's Algorithm 1 (section 4.5). get_latency_pp of line 14 is the length of the row's
// schedule. A simulation costs O(tasks) and many rows have the same shape, so a row first gets the
// shape's lower bound, O(stages); simulate() then replaces the bounds of a whole table, once per
// distinct shape. get_latency_dp of line 15 is a ring all-reduce in the slowest datacenter of the
// row, since peers never span two (section 4.2).

namespace troupe::planners {

namespace {

std::pair<std::uint32_t, std::uint64_t> key_of(std::uint32_t stages, const batch_split& split) {
  return {stages, std::uint64_t{split.microbatches} << 32 | split.rows};
}

/// Units of the planning budget for one depth: cutting a model takes some hundred steps per piece.
std::uint64_t units_of_work(std::uint32_t stages, const job_spec& job) {
  return job.slots ? stages : stages + std::uint64_t{200} * pieces_of(job.model);
}

}  // namespace

bool can_train(const job_spec& job, const gpu_type& gpu) {
  const double min = device_facts_of(job).min_compute_capability;
  return gpu.compute_capability.value_or(min) >= min;
}

std::string left_out(const cluster& c, const job_spec& job) {
  std::string names;
  for (const auto& gpu : c.gpus)
    if (!can_train(job, gpu)) names += (names.empty() ? "" : ", ") + gpu.name;
  if (names.empty()) return {};
  return fmt::format("; device {} requires compute capability {:.1f} or newer, which excludes {}",
                     job.train->device, device_facts_of(job).min_compute_capability, names);
}

double speed_of(const cluster& c, node_index node, const job_spec& job) {
  if (!can_train(job, c.gpu_of(node))) return 0;
  return job.slots ? 1 : flops_s(c, node, job);
}

std::vector<double> speeds_of(const cluster& c, const idle_index& idle, const job_spec& job) {
  std::vector<double> speeds;
  std::vector<std::pair<gpu_index, double>> kinds;  // types, and the emulated speed of their nodes
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    if (idle.idle(n) == 0 || !can_train(job, c.gpu_of(n))) continue;
    const std::pair kind{c.nodes[n].gpu, emulated_speed(c, n, job)};
    if (std::ranges::find(kinds, kind) != kinds.end()) continue;
    kinds.push_back(kind);
    speeds.push_back(speed_of(c, n, job));
  }
  std::ranges::sort(speeds);
  const auto same = std::ranges::unique(speeds);
  speeds.erase(same.begin(), same.end());
  return speeds;
}

selection_table::selection_table(const cluster& c, const idle_index& idle,
                                 const selection_table& other,
                                 const std::vector<std::uint32_t>& order)
    : selection_table{c, idle, other.job_, other.min_flops_s_, order, other.budget_} {
  works_ = other.works_;
}

// Collects the GPUs of each datacenter and the slowest of everything that a pipeline over them
// meets.
selection_table::selection_table(const cluster& c, const idle_index& idle, const job_spec& job,
                                 double min_flops_s, const std::vector<std::uint32_t>& order,
                                 planning_budget* budget)
    : c_{c},
      job_{job},
      min_flops_s_{min_flops_s},
      headroom_{c.settings.memory_headroom},
      budget_{budget},
      works_{std::make_shared<work_cache>()} {
  const auto together = std::max(1U, job.pipeline.tensor_parallel);
  bool first = true;
  struct sum {
    std::uint32_t gpus = 0, nodes = 0;
    double price = 0;
    slowest_link inter, intra;
  };
  std::vector<sum> sums(c.datacenters.size());
  double slowest_flops_s = never, min_gb = never, min_gbytes_s = never;
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    const auto& node = c.nodes[n];
    const auto gpus = idle.idle(n) / together;  // places of that many GPUs
    const double speed = speed_of(c, n, job);
    if (gpus == 0 || speed < min_flops_s) continue;
    const auto device = device_of(job, c.gpus[node.gpu]);
    if (speed < slowest_flops_s) {
      slowest_flops_s = speed;
      slowest_ = device;
      slowest_type_ = node.gpu;
      emulated_speed_ = emulated_speed(c, n, job);
    }
    min_gb = std::min(min_gb, c.gpus[node.gpu].memory_gb);
    min_gbytes_s = std::min(min_gbytes_s, device.memory_gbytes_s);
    auto& s = sums[node.datacenter];
    s.gpus += gpus;
    s.nodes += 1;
    if (std::exchange(first, false))
      inside_ = node.intra;
    else if (!(inside_ == node.intra))
      inside_ = {"", std::min(inside_.gbps, node.intra.gbps),
                 std::max(inside_.latency_us, node.intra.latency_us)};
    s.price += gpus * together * price_per_hour(c, n);
    s.inter.limit(node.inter);
    s.intra.limit(node.intra);
  }
  slowest_.memory_gb = min_gb;
  slowest_.memory_gbytes_s = min_gbytes_s;
  auto datacenters = order;
  if (order.empty()) {
    datacenters = indices<std::uint32_t>(sums.size());
    std::ranges::stable_sort(datacenters, std::greater{}, [&](auto dc) { return sums[dc].gpus; });
  }
  for (const auto dc : datacenters) {
    if (dc >= sums.size() || sums[dc].gpus == 0) continue;
    const auto& s = sums[dc];
    offers_.push_back({dc, s.gpus, s.price / s.gpus});
    hops_.push_back(s.nodes == 1 ? s.intra : s.inter);
    hop_latency_s_.push_back(s.inter.latency_s());
  }
  for (const auto& a : offers_) {
    auto& to = wan_.emplace_back();
    for (const auto& b : offers_)
      to.push_back(a.datacenter == b.datacenter
                       ? link{}
                       : link_between(c, a.datacenter, b.datacenter, job.pipeline.connections));
  }
}

std::uint32_t selection_table::total_gpus() const {
  return sum_of(offers_, &datacenter_offer::gpus);
}

std::uint32_t selection_table::max_stages() const {
  return job_.slots ? job_.pipeline.stages : pieces_of(job_.model);
}

std::string_view selection_table::schedule() const {
  // Usually the result of `best`, and cheap to make.
  constexpr std::string_view usual = "atlas-least-progress";
  if (!job_.train || job_.train->schedule.empty() || job_.train->schedule == "best") return usual;
  return job_.train->schedule;
}

batch_split selection_table::split_of(std::uint32_t stages, std::uint32_t pipelines,
                                      batch_rule batch) const {
  if (batch == batch_rule::each) pipelines = std::max(job_.pipeline.data_parallel, 1u);
  return split_batch(job_, stages, pipelines);
}

// Cuts the model for the first stage's load, which has the most micro-batches in flight, and times
// every stage on the slowest GPU.
const selection_table::work& selection_table::work_of(std::uint32_t stages,
                                                      const batch_split& split) const {
  const auto key = key_of(stages, split);
  const auto [at, is_new] = works_->try_emplace(key);
  auto& w = at->second;
  if (!is_new) return w;
  const auto memory = load_of(job_, split, stages - 1, max_bytes());
  const auto parts = split_model(job_, stages, memory, slowest_);
  const bool profiled = profile_of(job_, slowest_) != nullptr;
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    auto x = costs_of_stage(job_, slowest_, parts, stage, split.rows, inside_);
    slow_down(x, emulated_speed_);
    w.slowest.forward_s = std::max(w.slowest.forward_s, x.forward_s);
    w.slowest.recompute_s = std::max(w.slowest.recompute_s, x.recompute_s);
    w.slowest.backward_s = std::max(w.slowest.backward_s, x.backward_s);
    w.slowest.gradient_bytes = std::max(w.slowest.gradient_bytes, x.gradient_bytes);
    w.slowest.tied_bytes = std::max(w.slowest.tied_bytes, x.tied_bytes);
    if (profiled) {
      w.by_stage.push_back({x.forward_s, x.recompute_s, x.backward_s});
      w.update_s = std::max(w.update_s, x.update_s + (x.tied_bytes > 0 ? x.gradients_s : 0));
      w.exchanged_s = std::max(w.exchanged_s, x.update_s + x.gradients_s);
    }
    w.activation_bytes.push_back(x.activation_bytes);
    if (stage + 1 < stages)
      w.slowest.activation_bytes = std::max(w.slowest.activation_bytes, x.activation_bytes);
  }
  w.bytes = std::ranges::max(bytes_by_stage(job_, split, parts, headroom_, {&slowest_}));
  return w;
}

expected<std::uint32_t> selection_table::stages_for(const selection_options& o) const {
  const auto asked = o.stages ? o.stages : job_.pipeline.stages;
  const auto max = max_stages();
  if (!job_.slots)
    if (auto ok = can_split(job_.model, asked); !ok) return refuse(ok.error());
  double bytes = 0;
  bool divides = false;
  for (auto p = asked ? asked : 1; p <= (asked ? asked : max); ++p) {
    // With `whole` more pipelines mean fewer samples each: memory is checked row by row.
    const auto split = split_of(p, 1, o.batch);
    if (split.microbatches == 0) continue;
    divides = true;
    bytes = work_of(p, split).bytes;
    if (bytes < slowest_.memory_bytes() || o.batch == batch_rule::whole) return p;
  }
  if (!divides)
    return refuse(reason::kind::infeasible,
                  "global batch {} is not divisible by any allowed number of micro-batches",
                  job_.global_batch);
  return refuse(reason::kind::infeasible,
                "a stage needs at least {:.1f} GB; the smallest GPU has {:g}", bytes / bytes_per_gb,
                slowest_.memory_gb);
}

bool selection_table::spend_for(std::uint32_t stages) const {
  const bool known = job_.slots || works_->contains(key_of(stages, {1, 1}));
  return !budget_ || budget_->spend(known ? 1 : units_of_work(stages, job_));
}

double selection_table::communication_to_compute(std::uint32_t stages) const {
  if (job_.slots) return job_.slots->wan / job_.slots->forward;
  const auto& w = work_of(stages, {1, 1});
  const auto bytes = static_cast<double>(w.slowest.activation_bytes);
  double wan_s = 0;
  for (std::size_t i = 0; i + 1 < offers_.size(); ++i)
    wan_s = std::max(wan_s, bytes / wan_[i][i + 1].bytes_s(bytes, flows()));
  return w.slowest.forward_s > 0 ? wan_s / w.slowest.forward_s : 0;
}

// The pipelines of one DP-cell, whose schedule is that of all cells, or one pipeline if the
// schedule does not share the WAN. Each hop costs what the slowest of its kind does.
pipeline_shape selection_table::shape_of_row(std::uint32_t stages, std::uint32_t cell,
                                             const selection_row& r) const {
  pipeline_shape shape;
  shape.stages = stages;
  shape.pipelines = shares_wan() ? cell : 1;
  shape.microbatches = r.microbatches;
  for (const auto n : r.partitions)
    if (n > 0) shape.stages_of_datacenter.push_back(n);
  shape.max_in_flight = flight_limit(job_, stages);
  shape.recompute = recomputation_of(job_) == recomputation::stages;
  auto& costs = shape.costs;
  if (job_.slots) {
    costs = costs_in_slots(job_);
    return shape;
  }
  const auto& all = work_of(stages, {r.microbatches, r.rows});
  const auto& w = all.slowest;
  shape.by_stage = all.by_stage;
  const auto bytes = static_cast<double>(w.activation_bytes);
  costs = {w.forward_s, w.recompute_s, w.backward_s, 0, 0, 0};
  std::optional<std::size_t> last;
  for (std::size_t i = 0; i < offers_.size(); ++i) {
    if (r.partitions[i] == 0) continue;
    if (r.partitions[i] > 1)
      costs.lan = std::max(costs.lan, bytes / hops_[i].bytes_s(bytes, flows()) + hop_latency_s_[i]);
    if (last) {
      costs.wan = std::max(costs.wan, bytes / wan_[*last][i].bytes_s(bytes, flows()));
      costs.wan_latency = std::max(costs.wan_latency, wan_[*last][i].latency_us * 1e-6);
    }
    last = i;
  }
  return shape;
}

double selection_table::reduce_bytes_s(const selection_row& r, double bytes) const {
  double slowest = never;
  for (std::size_t i = 0; i < offers_.size(); ++i)
    if (r.partitions[i] > 0) slowest = std::min(slowest, hops_[i].bytes_s(bytes, flows()));
  return slowest;
}

/// All peers of a stage are in one datacenter: only pipelines' own tensors cross.
double selection_table::traffic_price(const selection_row& r) const {
  if (job_.slots || !prices_traffic(c_)) return 0;
  std::vector<std::uint32_t> datacenters;  // by stage
  for (std::size_t i = 0; i < offers_.size(); ++i)
    datacenters.insert(datacenters.end(), r.partitions[i], offers_[i].datacenter);
  const auto& w = work_of(static_cast<std::uint32_t>(datacenters.size()), {r.microbatches, r.rows});
  datacenter_traffic all;
  add_pipelines(all, datacenters, {r.microbatches, w.activation_bytes, w.slowest.tied_bytes},
                r.data_parallel);
  if (agrees_on_updates(job_)) add_agreement(all, datacenters);
  return price_of(c_, all);
}

void selection_table::finish(selection_row& r, double pipeline_s) const {
  r.pipeline_s = pipeline_s;
  r.iteration_s = pipeline_s + r.allreduce_s + r.update_s;
  r.throughput = r.data_parallel / r.iteration_s;
  r.samples_per_s = r.throughput * r.microbatches * r.rows;
}

selection_row selection_table::row(std::uint32_t stages, std::uint32_t cell, std::uint32_t cells,
                                   batch_rule batch) const {
  selection_row r;
  r.cells = cells;
  r.data_parallel = cells * cell;
  r.pipeline_s = r.iteration_s = never;
  const auto gpus = mapped(offers_, &datacenter_offer::gpus);
  r.partitions = partition(gpus, stages, r.data_parallel, job_.pipeline.stages_per_datacenter);
  std::uint32_t placed = 0;
  for (std::size_t i = 0; i < offers_.size(); ++i) {
    placed += r.partitions[i];
    r.cost_per_hour += offers_[i].price_per_hour * r.partitions[i] * r.data_parallel;
  }
  r.gpus = placed * r.data_parallel * std::max(1U, job_.pipeline.tensor_parallel);
  if (budget_ && !budget_->spend(stages + offers_.size())) return r;
  const auto split = split_of(stages, r.data_parallel, batch);
  r.microbatches = split.microbatches;
  r.rows = split.rows;
  if (placed < stages || split.microbatches == 0) return r;
  if (job_.limits.max_gpus && r.gpus > *job_.limits.max_gpus) return r;
  if (!keeps_flight_limit(job_, split.microbatches, stages)) return r;
  if (budget_ && !works_->contains(key_of(stages, split)) &&
      !budget_->spend(units_of_work(stages, job_)))
    return r;
  const auto& w = work_of(stages, split);
  r.bytes_per_gpu = w.bytes;
  r.max_bytes = max_bytes();
  r.cut_for = slowest_type_;
  if (!(w.bytes < slowest_.memory_bytes())) return r;
  // get_latency_dp: 4 * parameters * (N - 1) / (N * rate). A ring of N pipelines moves 2 (N - 1) /
  // N times the gradients, which have 2 bytes per parameter.
  const double n = r.data_parallel;
  const auto gradients = static_cast<double>(w.slowest.gradient_bytes);
  r.allreduce_s = 2 * gradients * (n - 1) / n / reduce_bytes_s(r, gradients / n);
  r.update_s = n > 1 ? w.exchanged_s : w.update_s;
  // A tied embedding's gradient goes from the last stage to the first, and its sum back.
  const auto tied = static_cast<double>(w.slowest.tied_bytes);
  if (r.update_s > 0 && stages > 1) r.update_s += 2 * tied / reduce_bytes_s(r, tied);
  r.traffic_per_iteration = traffic_price(r);
  finish(r, pipeline_lower_bound(shape_of_row(stages, cell, r)));
  return r;
}

// Rows of equal shape (partitions, batch, costs) share one simulation. The tasks are counted before
// any is simulated, so that a table is either simulated as a whole or not at all.
bool selection_table::simulate(selection& s, std::uint64_t max_tasks) const {
  struct done {
    pipeline_shape shape;
    double length;
  };
  const auto same = [](const pipeline_shape& a, const pipeline_shape& b) {
    return a.stages_of_datacenter == b.stages_of_datacenter && a.microbatches == b.microbatches &&
           a.costs == b.costs && a.by_stage == b.by_stage;
  };
  std::vector<done> all;
  std::vector<std::size_t> which(s.rows.size());
  std::uint64_t tasks = 0;
  for (std::size_t i = 0; i < s.rows.size(); ++i) {
    if (!s.rows[i].feasible()) continue;
    auto shape = shape_of_row(s.stages, s.cell, s.rows[i]);
    auto at = std::ranges::find_if(all, [&](const done& d) { return same(d.shape, shape); });
    which[i] = static_cast<std::size_t>(at - all.begin());
    if (at != all.end()) continue;
    tasks += std::uint64_t{3} * shape.stages * shape.microbatches * shape.pipelines;
    all.push_back({std::move(shape), never});
  }
  if (tasks > max_tasks) return false;
  for (auto& d : all)
    if (const auto made = schedule_pipeline(d.shape, schedule())) d.length = made->length;
  for (std::size_t i = 0; i < s.rows.size(); ++i)
    if (s.rows[i].feasible()) finish(s.rows[i], all[which[i]].length);
  return true;
}

}  // namespace troupe::planners
