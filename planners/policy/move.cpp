#include "planners/policy/move.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "messages/admission/admission.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/stated_length.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/layout.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/plans/fits.hpp"
#include "planners/plans/has.hpp"
#include "planners/plans/known_types.hpp"
#include "planners/plans/places.hpp"
#include "planners/plans/plan_worth.hpp"

namespace troupe::planners {

namespace {

using kind = reason::kind;

expected<void> check_names(const cluster& c, const move_wish& wish) {
  const auto named = [](const std::string& name) {
    return [&name](const auto& x) { return x.name == name; };
  };
  if (!wish.gpu_type.empty() && std::ranges::none_of(c.gpus, named(wish.gpu_type)))
    return refuse(kind::unknown, fmt::format("{} has no GPU '{}'{}", c.name, wish.gpu_type,
                                             known_types_text(c, wish.gpu_type)));
  for (const auto& node : wish.nodes)
    if (std::ranges::none_of(c.nodes, named(node)))
      return refuse(kind::unknown, fmt::format("{} has no node '{}'", c.name, node));
  return {};
}

// A move is an ordinary placement of Algorithm 1 with the user's wishes as the job's own, on a
// cluster where the job's GPUs are idle. The orchestrator then reserves the new GPUs, lets the
// training save, and starts it there.

/// Unset wishes are the present shape. A cut by the user belongs to its number of stages. Groups
/// stay as they are if only their nodes change; all else gives pipelines that are alike.
job_spec wished(const cluster& c, const job_view& job, const move_wish& wish) {
  auto spec = *job.spec;
  auto& p = spec.pipeline;
  const bool other_shape =
      wish.stages || wish.data_parallel || wish.tensor_parallel || !wish.gpu_type.empty();
  p.groups.reset();
  if (job.how.groups && !other_shape) p.groups = chosen_as(c, *job.how.groups);
  if (p.groups) return spec;
  const auto stages = wish.stages ? wish.stages : job.how.pipeline_parallel;
  if (stages != p.cut.size()) p.cut.clear();
  p.stages = stages;
  p.data_parallel = wish.data_parallel ? wish.data_parallel : job.how.data_parallel;
  p.tensor_parallel = wish.tensor_parallel ? wish.tensor_parallel : job.how.tensor_parallel;
  if (!wish.gpu_type.empty()) spec.limits.required_gpu_type = wish.gpu_type;
  return spec;
}

bool is_requested(const cluster& c, const move_wish& wish, node_index n) {
  return (wish.gpu_type.empty() || c.gpu_of(n).name == wish.gpu_type) &&
         (wish.nodes.empty() || std::ranges::find(wish.nodes, c.nodes[n].name) != wish.nodes.end());
}

/// The requested GPUs that are idle or the job's own.
idle_index room_for(const cluster& c, const idle_index& idle, const job_view& job,
                    const move_wish& wish) {
  auto room = idle;
  for (const auto& share : job.where) room.set_idle(share.node, room.idle(share.node) + share.gpus);
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (!is_requested(c, wish, n)) room.set_idle(n, 0);
  return room;
}

/// GPUs may differ within the same shape and place: that alone is no reason to restart a training.
/// Does the job already have the requested shape and place?
bool has_already(const cluster& c, const job_view& job, const move_wish& wish, const plan& to) {
  return to.stages == job.how.stages && to.data_parallel == job.how.data_parallel &&
         to.groups == job.how.groups && to.rows == job.how.rows &&
         std::ranges::all_of(
             job.where, [&](const node_share& share) { return is_requested(c, wish, share.node); });
}

/// The idle GPUs of the nodes for which `kept` is true.
template <class Kept>
idle_index part_of(const cluster& c, idle_index room, Kept kept) {
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (!kept(n)) room.set_idle(n, 0);
  return room;
}

/// The rooms in which a plan is looked for: the nodes that it is on, then each datacenter alone,
/// its own first, then the whole cluster. A program that is moved stays near what it has.
std::vector<idle_index> rooms_of(const cluster& c, const idle_index& room, const job_view& job) {
  std::vector<idle_index> rooms{part_of(c, room, [&](node_index n) {
    return std::ranges::find(job.where, n, &node_share::node) != job.where.end();
  })};
  const auto own = job.where.empty() ? 0 : c.nodes[job.where.front().node].datacenter;
  const auto alone = [&](std::uint32_t d) {
    return part_of(c, room, [&](node_index n) { return c.nodes[n].datacenter == d; });
  };
  rooms.push_back(alone(own));
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
    if (d != own) rooms.push_back(alone(d));
  if (c.datacenters.size() > 1) rooms.push_back(room);
  return rooms;
}

/// The first of these plans, each for GPUs of one type, that one of the rooms can serve.
std::optional<placed_plan> first_placed(const cluster& c, const std::vector<idle_index>& rooms,
                                        const job_view& job, const std::vector<plan>& plans) {
  for (const auto& p : plans) {
    if (p.bytes_per_gpu <= job.history.bytes_floor) continue;
    for (const auto& room : rooms) {
      auto where = best_fit(room, p.gpus(), p.gpu_types, p.tensor_parallel);
      if (!where.empty() && fits(c, room, p, where) && within_bounds(c, *job.spec, where))
        return placed_plan{p, std::move(where)};
    }
  }
  return {};
}

/// Its own GPUs alone, as requested.
idle_index own_room(const cluster& c, const job_view& job, const move_wish& wish) {
  auto none = part_of(c, idle_index{c}, [](node_index) { return false; });
  return room_for(c, none, job, wish);
}

}  // namespace

// In pieces that are cut where either plan's stages begin. A checkpoint has three numbers in single
// precision of each parameter: its weight and Adam's two moments.
datacenter_traffic traffic_of_move(const cluster& c, const job_spec& job, const placed_plan& from,
                                   const placed_plan& to) {
  constexpr double bytes_a_parameter = 12;
  datacenter_traffic all;
  const auto before = lay_out_pipelines(c, from.where, job, from.how);
  const auto after = lay_out_pipelines(c, to.where, job, to.how);
  if (!facts_of(job).has_model || !before || !after) return all;
  std::set<std::uint32_t> firsts;
  for (const auto* layout : {&*before, &*after})
    for (const auto& part : layout->parts_of(0)) firsts.insert(part.first);
  std::vector<plan_stage> cut;
  for (const auto first : firsts) {
    if (!cut.empty()) cut.back().count = first - cut.back().first;
    cut.push_back({first, 0, 1, {}, 0});
  }
  cut.back().count = pieces_of(job.model) - cut.back().first;
  const auto pieces = parts_of(job, cut);
  if (!pieces) return all;
  const auto stage_with = [](const std::vector<stage_part>& parts, std::uint32_t piece) {
    const auto next = std::ranges::find_if(parts, [&](const auto& p) { return p.first > piece; });
    return static_cast<std::uint32_t>(next - parts.begin()) - 1;
  };
  for (const auto& piece : *pieces) {
    const auto bytes =
        static_cast<std::uint64_t>(std::llround(bytes_a_parameter * piece.parameters));
    const auto a = before->datacenter_of(0, stage_with(before->parts_of(0), piece.first));
    for (std::uint32_t p = 0; p < after->pipelines; ++p)
      if (const auto b = after->datacenter_of(p, stage_with(after->parts_of(p), piece.first));
          a != b)
        all[{a, b}] += bytes;
  }
  return all;
}

expected<placed_plan> plan_move(const cluster& c, const idle_index& idle, const job_view& job,
                                const move_wish& wish) {
  if (auto ok = check_names(c, wish); !ok) return refuse(ok.error());
  if (!job.facts().pipelines || job.how.stages.empty())
    return refuse(kind::invalid, "it is not a training; only trainings can be moved");
  const auto room = room_for(c, idle, job, wish);
  const auto spec = wished(c, job, wish);
  if (facts_of(spec).has_model)
    if (auto ok = can_split(spec.model, spec.pipeline.stages); !ok) return refuse(ok.error());
  // The sizes that bound the search are limited as for a submitted job.
  if (const auto bad = admission::objection_to(spec))
    return refuse(kind::invalid, fmt::format("{}: {}", bad->key, bad->problem));
  planning_budget budget{planning_budget::units_a_decision};
  // The micro-batch size is kept if a placement allows it: results then differ only in the order in
  // which gradients are summed.
  auto to = place_pipelines(c, room, with_rows(spec, job.rows), true, budget);
  if (!to) to = place_pipelines(c, room, spec, true, budget);
  if (!to) return to;
  if (auto ok = within_bounds(c, *job.spec, to->where); !ok) return refuse(ok.error());
  if (const auto& budget_of_job = job.spec->limits.budget) {
    const double traffic = price_of(c, traffic_of_move(c, *job.spec, {job.how, job.where}, *to));
    if (const double cost = cost_of_run(*job.spec, to->how) + traffic; cost > *budget_of_job)
      return refuse(
          kind::invalid,
          "it would cost {:.4g} there, {:.4g} of it to read its checkpoint; its budget is {:g}",
          cost, traffic, *budget_of_job);
  }
  if (has_already(c, job, wish, to->how)) return refuse(kind::invalid, "it already runs this way");
  return to;
}

expected<placed_plan> plan_program_move(const cluster& c, const idle_index& idle,
                                        const job_view& job, const move_wish& wish) {
  if (auto ok = check_names(c, wish); !ok) return refuse(ok.error());
  if (wish.stages || wish.data_parallel || wish.tensor_parallel)
    return refuse(kind::invalid,
                  "it is a program, which makes its own stages; its GPUs alone can be requested "
                  "(--gpus, --gpu, --nodes)");
  const auto gpus = wish.gpus ? wish.gpus : total_gpus(job.where);
  std::vector<plan> plans;
  std::set<std::uint32_t> numbers;
  for (const auto& p : *job.plans) {
    numbers.insert(p.gpus());
    if (p.gpus() == gpus) plans.push_back(p);
  }
  if (plans.empty()) {
    // Without a batch in its file a program has one of 1, which its user does not see anywhere.
    const auto& spec = *job.spec;
    const auto cause =
        gpus > spec.global_batch
            ? fmt::format("; every GPU needs a sample, and its global_batch is {}{}",
                          spec.global_batch, stated_batch(spec) ? "" : ", as it is not given")
            : std::string{};
    return refuse(kind::invalid, fmt::format("found {} GPUs, expected one of the numbers that it "
                                             "may have here: {}{}",
                                             gpus, fmt::join(numbers, ", "), cause));
  }
  const bool stays = std::ranges::all_of(
      job.where, [&](const node_share& share) { return is_requested(c, wish, share.node); });
  if (stays && gpus == total_gpus(job.where))
    return refuse(kind::invalid, "it already runs this way");
  std::ranges::stable_sort(plans, std::greater{},
                           [&](const plan& p) { return plan_worth(*job.spec, p); });
  // A program that shrinks keeps some of its GPUs, where they can serve it.
  if (gpus < total_gpus(job.where))
    if (auto here = first_placed(c, {own_room(c, job, wish)}, job, plans)) return std::move(*here);
  const auto room = room_for(c, idle, job, wish);
  if (auto to = first_placed(c, rooms_of(c, room, job), job, plans)) return std::move(*to);
  const auto why = has(c, room, plans, job.history.bytes_floor);
  if (!why) return refuse(why.error());
  return refuse(kind::insufficient,
                fmt::format("needs {} GPUs of one type, with more than {:.1f} GB, that it may have "
                            "together",
                            gpus, plans.front().bytes_per_gpu / bytes_per_gb));
}

}  // namespace troupe::planners
