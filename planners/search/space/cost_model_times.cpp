#include "planners/search/space/cost_model_times.hpp"

#include <algorithm>
#include <limits>

#include "messages/base/refuse.hpp"
#include "messages/domain/tensor_split.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/devices/kernel_time.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/job_memory.hpp"
#include "planners/plans/explicit_plan.hpp"

namespace troupe::planners {

namespace {

constexpr double cannot_be = std::numeric_limits<double>::infinity();

/// Samples of a micro-batch that some profile of the model was measured with, ascending.
std::vector<std::uint32_t> measured_rows(const cluster& c, const job_spec& job,
                                         const std::vector<gpu_index>& gpus) {
  std::vector<std::uint32_t> rows;
  for (const auto g : gpus) {
    const auto* profile = profile_of(job, c.gpus[g]);
    if (!profile) continue;
    if (const auto sizes = sizes_of(*profile, job.model))
      for (const auto& p : (*sizes)->points) rows.push_back(p.rows);
    if (const auto layers = layers_of(*profile, job.model))
      for (const auto& p : (*layers)->points) rows.push_back(p.rows);
  }
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  return rows;
}

}  // namespace

expected<std::unique_ptr<cost_model_times>> cost_model_times::of(const cluster& c,
                                                                 const idle_index& idle,
                                                                 const job_spec& job,
                                                                 const plan_space& space) {
  const auto work = facts_of(job);
  if (!work.simulated || !work.has_model)
    return refuse(reason::kind::invalid,
                  "a search for pipelines is for simulated work; '{}' is a {}", job.name,
                  work.name);
  std::unique_ptr<cost_model_times> out{new cost_model_times{c, idle, job, space}};
  if (out->problem_.classes.empty() || out->problem_.rows.empty())
    return refuse(reason::kind::infeasible, "no idle GPU can have a stage of '{}'", job.model.name);
  return out;
}

cost_model_times::cost_model_times(const cluster& c, const idle_index& idle, const job_spec& job,
                                   const plan_space& space)
    : c_{c}, idle_{idle}, job_{job} {
  if (!job_.train) job_.train.emplace();
  job_.train->schedule = "megatron";
  job_.train->costs.clear();  // of another cut
  problem_.space = space;
  // A plan has no groups of pipelines yet.
  problem_.space.several_datacenters = problem_.space.mixed_pipelines = false;
  problem_.space.several_kinds = problem_.space.own_shares = false;
  if (space.name == "marp") problem_.max_stages = 1;
  problem_.samples = job.global_batch;
  const auto pieces = pieces_of(job.model);
  const bool halves = job.model.operators.empty();
  if (space.name == "sailor" && halves && pieces % 2 == 0) unit_ = 2;
  while (pieces / unit_ > 64) unit_ *= 2;
  problem_.pieces = (pieces + unit_ - 1) / unit_;
  if (unit_ == 1 && halves && problem_.pieces > 24) problem_.grain = 2;
  problem_.goal = job.objective == "fastest"    ? space_goal::fastest
                  : job.objective == "cheapest" ? space_goal::cheapest
                                                : space_goal::efficient;
  const auto iterations = static_cast<double>(job.iterations);
  for (const auto& limit : {job.limits.slo_s, job.limits.deadline_s})
    if (limit) problem_.max_s = std::min(problem_.max_s.value_or(cannot_be), *limit / iterations);
  if (job.limits.budget) problem_.max_dollars = *job.limits.budget / iterations;
  if (job.limits.max_gpus) problem_.max_gpus = *job.limits.max_gpus;
  sends_in_steps_ = divides_words(job_) && !job_.pipeline.overlap.value_or(false);
  add_pools();
  add_classes();
  add_rows();
  add_links();
}

void cost_model_times::add_pools() {
  problem_.datacenters =
      static_cast<std::uint32_t>(std::max<std::size_t>(1, c_.datacenters.size()));
  idle_in_.assign(problem_.datacenters, idle_);
  std::map<std::pair<std::uint32_t, gpu_index>, std::vector<std::uint32_t>> free;
  for (node_index n = 0; n < c_.nodes.size(); ++n) {
    const auto& node = c_.nodes[n];
    for (std::uint32_t d = 0; d < problem_.datacenters; ++d)
      if (d != node.datacenter) idle_in_[d].set_idle(n, 0);
    if (idle_.idle(n) == 0) continue;
    free[{node.datacenter, node.gpu}].push_back(idle_.idle(n));
    if (std::ranges::find(gpus_, node.gpu) == gpus_.end()) {
      gpus_.push_back(node.gpu);
      problem_.kinds.push_back({price_per_hour(c_, n)});
    }
    const auto kind = std::ranges::find(gpus_, node.gpu) - gpus_.begin();
    auto& price = problem_.kinds[static_cast<std::size_t>(kind)].price_per_hour;
    price = std::min(price, price_per_hour(c_, n));
  }
  for (auto& [at, nodes] : free) {
    const auto kind = std::ranges::find(gpus_, at.second) - gpus_.begin();
    problem_.pools.push_back({static_cast<std::uint32_t>(kind), at.first, std::move(nodes)});
  }
}

void cost_model_times::add_classes() {
  for (std::uint32_t k = 0; k < gpus_.size(); ++k) {
    std::uint32_t largest = 0;
    for (const auto& p : problem_.pools)
      if (p.kind == k) largest = std::max(largest, std::ranges::max(p.free));
    const auto asked = job_.pipeline.tensor_parallel;
    for (std::uint32_t t = 1; t <= largest && splits_into(job_.model, t); t *= 2)
      if (asked == 0 || asked == t) problem_.classes.push_back({k, t});
  }
}

/// Divisors of the batch, those first that a profile was measured with; none beyond twice the
/// largest of these. At most twelve.
void cost_model_times::add_rows() {
  auto& rows = problem_.rows;
  const auto fixed =
      job_.pipeline.rows > 0 ? job_.pipeline.rows : (job_.memory ? job_.memory->micro_batch : 0);
  if (fixed > 0) {
    if (problem_.samples % fixed == 0) rows.push_back(fixed);
    return;
  }
  const auto measured = measured_rows(c_, job_, gpus_);
  const auto largest = measured.empty() ? problem_.samples : 2 * measured.back();
  const auto add = [&](std::uint32_t r) {
    const bool new_one = std::ranges::find(rows, r) == rows.end();
    if (new_one && r <= largest && problem_.samples % r == 0 && rows.size() < 12) rows.push_back(r);
  };
  for (const auto r : measured) add(r);
  for (std::uint32_t r = 1; r <= problem_.samples; ++r) add(r);
}

/// The links between the nodes of two kinds in each datacenter, and inside nodes. Those of one kind
/// and datacenter are taken to be alike.
void cost_model_times::add_links() {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<node_index>> nodes;
  for (node_index n = 0; n < c_.nodes.size(); ++n) {
    if (idle_.idle(n) == 0) continue;
    const auto kind = std::ranges::find(gpus_, c_.nodes[n].gpu) - gpus_.begin();
    nodes[{c_.nodes[n].datacenter, static_cast<std::uint32_t>(kind)}].push_back(n);
  }
  for (const auto& [at, from] : nodes)
    for (const auto& [other, to] : nodes) {
      if (at.first != other.first) continue;
      if (at == other) {
        std::uint32_t room = 0;
        for (const auto n : from) room = std::max(room, idle_.idle(n) / 2);
        links_.push_back(
            {link_cost_between(c_, from[0], from[0]), at.second, at.second, true, room});
        if (from.size() < 2) continue;
      }
      links_.push_back({link_cost_between(c_, from[0], to[at == other ? 1 : 0]), at.second,
                        other.second, false, 0});
    }
}

std::uint32_t cost_model_times::piece(std::uint32_t unit) const {
  return std::min(unit * unit_, pieces_of(job_.model));
}

const stage_table& cost_model_times::table(std::uint32_t tensor, std::uint32_t rows) const {
  auto& t = tables_[{tensor, rows}];
  if (t) return *t;
  std::vector<stage_table::gpus_of_stage> types;
  for (const auto g : gpus_) {
    const auto at = std::ranges::find(c_.nodes, g, &node::gpu);
    types.push_back({g, at->intra});
  }
  // The more pipelines share a program's states, the less each needs.
  const auto pipelines = job_.memory && job_.memory->zero > 0 ? problem_.microbatches(rows) : 1;
  t = std::make_unique<stage_table>(c_, job_, tensor, rows, types, pipelines);
  return *t;
}

const range_costs& cost_model_times::costs(std::uint32_t rows, std::uint32_t cls,
                                           std::uint32_t first, std::uint32_t count,
                                           std::uint32_t behind) const {
  const auto& c = problem_.classes[cls];
  const auto& t = table(c.tensor, rows);
  if (behind == 0) return t.last(c.kind, piece(first));
  return t.middle(c.kind, piece(first), piece(first + count) - piece(first));
}

/// A send from a stage of so many GPUs, or to one, over the fastest link that it may have.
double cost_model_times::fastest_send_s(std::uint32_t kind, std::uint32_t tensor,
                                        double bytes) const {
  double s = cannot_be;
  for (const auto& w : links_) {
    if (w.from != kind && w.to != kind) continue;
    if (w.inside && w.room < tensor) continue;
    auto link = w.link;
    if (link.has_rates()) link.flows = std::max(8U, tensor);
    s = std::min(s, link.alone_s(bytes) + link.latency_s);
  }
  return s < cannot_be ? s : 0;
}

space_times::stage_floor cost_model_times::floor_of(std::uint32_t rows, std::uint32_t cls,
                                                    std::uint32_t first, std::uint32_t count,
                                                    std::uint32_t behind) const {
  const auto& c = problem_.classes[cls];
  const auto& k = costs(rows, cls, first, count, behind);
  if (!(k.bytes + (behind + 1) * k.bytes_each < c_.gpus[gpus_[c.kind]].memory_bytes()))
    return {cannot_be, cannot_be, 0};
  const auto& t = table(c.tensor, rows);
  const double send =
      behind > 0 || first > 0 ? fastest_send_s(c.kind, c.tensor, t.min_activation_bytes()) : 0;
  // A program's stage is busy while it sends or receives: each way at both ends.
  const double neighbours = (behind > 0 ? 1 : 0) + (first > 0 ? 1 : 0);
  const double in_steps = sends_in_steps_ ? 2 * neighbours * send : 0;
  const double on_ways = sends_in_steps_ || behind == 0 ? 0 : 2 * send;
  return {k.forward_s + k.backward_s + in_steps + on_ways, k.step_s() + in_steps,
          behind * (k.forward_s + in_steps / 2)};
}

/// A stage's sum and update begin with its last backward, after which the backwards of the stages
/// in front of it follow: these hide no more than those of all pieces before it, where they take
/// the longest, and their sends.
double cost_model_times::tail_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                                      std::uint32_t count, std::uint32_t pipelines) const {
  const auto& c = problem_.classes[cls];
  const auto& k = costs(rows, cls, first, count, first + count == problem_.pieces ? 0 : 1);
  double sum_s = 0;
  if (pipelines > 1) {
    // In nodes that have as many of the stage's peers as they can.
    std::uint32_t here = 1;
    for (const auto& p : problem_.pools)
      if (p.kind == c.kind) here = std::max(here, std::ranges::max(p.free) / c.tensor);
    const double others = pipelines > here ? pipelines - here : 0;
    const double rings = divides_words(job_) ? c.tensor : 1;
    const double chunk = rings * (k.gradient_bytes - k.tied_bytes) / pipelines;
    double each = cannot_be;
    for (const auto& w : links_)
      if (w.from == c.kind && w.to == c.kind && !w.inside)
        each = std::min(each, w.link.link_s(chunk));
    if (each < cannot_be) sum_s = 2 * others * each;
  }
  return std::max(0.0, sum_s + k.update_s - hidden_s(rows, first));
}

/// The longest that backwards of the pieces before `first` may take, with their sends.
double cost_model_times::hidden_s(std::uint32_t rows, std::uint32_t first) const {
  if (first == 0) return 0;
  auto& known = hidden_[{rows, first}];
  if (known > 0) return known;
  for (std::uint32_t c = 0; c < problem_.classes.size(); ++c) {
    const auto& cls = problem_.classes[c];
    const auto& k = costs(rows, c, 0, first, 1);
    // Pieces that no GPU of the class can hold at a time, in as many stages as there may be.
    const auto stages = std::min(first, problem_.max_stages - 1);
    const auto bytes = table(cls.tensor, rows).max_activation_bytes();
    double send = 0;
    for (const auto& w : links_)
      if (w.from == cls.kind) send = std::max(send, w.link.max_s(bytes) + w.link.latency_s);
    const double launch = launch_s(job_, c_.gpus[gpus_[cls.kind]]);
    known = std::max(known, k.backward_s + stages * (4 * send + launch));
  }
  return known;
}

double cost_model_times::line_s(const space_line& line, std::uint32_t microbatches) const {
  const auto stages = static_cast<std::uint32_t>(line.firsts.size());
  double way = 0, longest = 0;
  for (std::uint32_t i = 0; i < stages; ++i) {
    const auto end = i + 1 < stages ? line.firsts[i + 1] : problem_.pieces;
    const auto f = floor_of(line.rows, line.seats[i].cls, line.firsts[i], end - line.firsts[i],
                            stages - 1 - i);
    way += f.way_s;
    longest = std::max(longest, (microbatches - 1) * f.step_s - f.early_s);
  }
  return way + std::max(0.0, longest);
}

job_spec cost_model_times::job_of(const space_plan& plan) const {
  auto job = job_;
  job.pipeline.rows = plan.rows;
  job.pipeline.microbatches = 0;
  job.microbatches.reset();
  return job;
}

std::optional<placed_plan> cost_model_times::placed(const space_plan& plan) const {
  if (plan.groups.size() != 1) return {};
  const auto& g = plan.groups.front();
  const auto wished =
      job_.pipeline.microbatches > 0 ? job_.pipeline.microbatches : job_.microbatches.value_or(0);
  if (wished > 0 && g.microbatches != wished) return {};
  const auto& asked = job_.pipeline;
  if (asked.stages > 0 && plan.stages() != asked.stages) return {};
  if (asked.data_parallel > 0 && g.pipelines != asked.data_parallel) return {};
  std::vector<stage_request> stages;
  for (std::uint32_t i = 0; i < plan.stages(); ++i) {
    const auto& c = problem_.classes[g.seats[i].cls];
    const auto end = i + 1 < plan.stages() ? plan.firsts[i + 1] : problem_.pieces;
    // One datacenter has all stages.
    if (g.seats[i].datacenter != g.seats[0].datacenter) return {};
    const auto first = plan.firsts[i];
    if (!(floor_of(plan.rows, g.seats[i].cls, first, end - first, plan.stages() - 1 - i).way_s <
          cannot_be))
      return {};
    stages.push_back({gpus_[c.kind], piece(end) - piece(first), c.tensor});
  }
  const auto& idle = idle_in_[g.seats[0].datacenter];
  auto p = plan_of_stages(c_, idle, job_of(plan), stages, g.pipelines);
  if (!p || !fits(c_, idle, p->how, p->where)) return {};
  return std::move(*p);
}

space_value cost_model_times::value(const space_plan& plan) const {
  const auto p = placed(plan);
  if (!p || !(p->how.samples_per_s > 0)) return {};
  const double seconds = job_.global_batch / p->how.samples_per_s;
  return {seconds, cost_of_run(job_, p->how, 1)};
}

}  // namespace troupe::planners
