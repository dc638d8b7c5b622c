#include "planners/cost/plan_time.hpp"

#include <algorithm>
#include <limits>

#include "messages/base/folds.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/closed_form.hpp"
#include "planners/cost/repeated_pipelines.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/cost/tensor_routes.hpp"
#include "planners/model/engine_memory.hpp"
#include "planners/model/job_memory.hpp"
#include "planners/schedule/named_schedule.hpp"

namespace troupe::planners {

namespace {

/// The batch splits of the plan's groups, or of the job if the plan has none.
expected<std::vector<batch_split>> batches_of(const job_spec& job, const plan& how) {
  std::vector<batch_split> batches;
  std::uint64_t samples = 0;
  bool whole = true;
  for (const auto& g : groups_of(how)) {
    const auto split = g.microbatches > 0 ? batch_split{g.microbatches, how.rows}
                                          : split_batch(job, how.pipeline_parallel, g.pipelines);
    whole = whole && split.microbatches > 0;
    samples += std::uint64_t{g.pipelines} * split.microbatches * split.rows;
    batches.push_back(split);
  }
  samples /= context_parallel_of(job.pipeline);
  if (whole && (job.slots || samples == job.global_batch)) return batches;
  if (how.groups)
    return refuse(reason::kind::invalid,
                  "the plan's micro-batches have {} samples, the global batch has {}", samples,
                  job.global_batch);
  return refuse(reason::kind::invalid,
                "global batch {} is not divisible by {} pipelines x micro-batches",
                job.global_batch, how.data_parallel);
}

/// The limits that a plan's stages name; those without one have the largest. Empty: none does.
std::vector<std::uint32_t> held_of(const std::vector<plan_stage>& stages) {
  if (std::ranges::none_of(stages, [](const auto& s) { return s.held.has_value(); })) return {};
  return mapped(stages, [](const plan_stage& s) {
    return s.held.value_or(std::numeric_limits<std::uint32_t>::max());
  });
}

/// Times every stage of a layout, then its links, then what schedules and simulation need of both.
class timer {
 public:
  timer(const cluster& c, const job_spec& job, const plan& how, pipeline_layout layout,
        std::vector<batch_split> batches)
      : c_{c}, job_{job}, how_{how}, pipelines_{how.data_parallel} {
    out_.layout = std::move(layout);
    out_.batches = std::move(batches);
    first_ = at().first_pipelines();
  }

  timed_plan time() {
    for (std::uint32_t p = 0; p < at().pipelines; ++p)
      for (std::uint32_t s = 0; s < at().stages; ++s) out_.costs.push_back(costs_at(p, s));
    set_ways();
    for (std::uint32_t g = 0; g < first_.size(); ++g) out_.shapes.push_back(shape_of(g));
    set_times();
    for (std::uint32_t g = 0; g < first_.size(); ++g) {
      auto& shape = out_.shapes[g];
      shape.by_stage = slowest_peers(shape, out_.times, first_[g]);
      shape.tail = longest_tails(shape, out_.times, first_[g]);
    }
    return std::move(out_);
  }

 private:
  const pipeline_layout& at() const { return out_.layout; }
  /// The first pipeline that is laid out after a group's.
  std::uint32_t end_of(std::uint32_t group) const {
    return group + 1 < first_.size() ? first_[group + 1] : at().pipelines;
  }
  /// Those of the plan: of one group only the first ones may be laid out.
  std::uint32_t pipelines_of(std::uint32_t group) const {
    return first_.size() == 1 ? pipelines_ : end_of(group) - first_[group];
  }
  const stage_costs& costs(std::uint32_t pipeline, std::uint32_t stage) const {
    return out_.costs[std::size_t{pipeline} * at().stages + stage];
  }
  /// Peers usually have equal nodes, so the costs of the pipeline before are copied if they do.
  stage_costs costs_at(std::uint32_t p, std::uint32_t s) const {
    const auto node = at().at(p, s).node;
    if (p > 0 && at().group_of[p] == at().group_of[p - 1]) {
      const auto& n = c_.nodes[node];
      const auto& other = c_.nodes[at().at(p - 1, s).node];
      if (n.gpu == other.gpu && n.intra == other.intra && n.inter == other.inter &&
          n.gpus == other.gpus && n.emulate_speed == other.emulate_speed)
        return costs(p - 1, s);
    }
    return costs_on_node(c_, node, job_, at().parts_of(p), s, out_.batches.front().rows,
                         pipelines_);
  }

  /// A group's slowest stage and slowest hop of each kind, for schedules with one cost per kind of
  /// step.
  pipeline_costs slowest_costs(std::uint32_t group) const {
    if (job_.slots) return costs_in_slots(job_);
    pipeline_costs out{0, 0, 0, 0, 0, 0};
    for (std::uint32_t s = 0; s < at().stages; ++s)
      for (auto p = first_[group]; p < end_of(group); ++p) {
        const auto& x = costs(p, s);
        out.forward = std::max(out.forward, x.forward_s);
        out.recompute = std::max(out.recompute, x.recompute_s);
        out.backward = std::max(out.backward, x.backward_s);
        if (s + 1 == at().stages) continue;
        const double bytes = static_cast<double>(x.activation_bytes);
        if (is_wan(p, s)) {
          const auto wan = wan_link(p, s);
          out.wan = std::max(out.wan, bytes / wan.bytes_s(bytes, at().flows(p, s, s + 1)));
          out.wan_latency = std::max(out.wan_latency, wan.latency_us * 1e-6 + x.handling_s);
        }
      }
    for (std::uint32_t s = 0; s < at().stages; ++s)
      out.lan = std::max(out.lan, out_.times.lan[group * at().stages + s]);
    return out;
  }

  pipeline_shape shape_of(std::uint32_t group) const {
    pipeline_shape shape;
    shape.stages = at().stages;
    shape.pipelines = pipelines_of(group);
    shape.microbatches = out_.batches[group].microbatches;
    shape.stages_of_datacenter = at().stages_of_datacenter(first_[group]);
    shape.recompute = recomputation_of(job_) == recomputation::stages;
    shape.costs = slowest_costs(group);
    shape.cell = cell_of(shape.costs, shape.pipelines);
    shape.max_in_flight = flight_limit(job_, shape.stages);
    shape.holds_one_at_end = facts_of(job_).on_engine;
    shape.held = held_of(groups_of(how_)[group].stages);
    return shape;
  }

  void set_ways() {
    auto& t = out_.times;
    t.lan.assign(first_.size() * at().stages, job_.slots ? job_.slots->lan : 0);
    if (job_.slots) return;
    tensor_routes routes{c_, job_, at(), pipelines_, out_.costs};
    for (std::uint32_t p = 0; p < at().pipelines; ++p)
      for (std::uint32_t s = 0; s < at().stages; ++s) t.routes.push_back(routes.of(p, s));
    for (std::uint32_t g = 0; g < first_.size(); ++g)
      for (std::uint32_t s = 0; s < at().stages; ++s)
        t.lan[g * at().stages + s] = routes.hop_s(first_[g], end_of(g), s);
    t.links = routes.links();
    if (divides_words(job_) && !job_.pipeline.overlap.value_or(false)) put_messages_into_steps();
  }
  /// A program's stage sends a message and waits for one before its host launches the next step
  /// (docs/planners/cost_model.md, "Stages"). So the transfer becomes a part of the steps at both
  /// of its ends, and the launch of the sender's. Interleaved stages have a message per part, and
  /// send and receive at once.
  void put_messages_into_steps() {
    auto& t = out_.times;
    const double v = std::max(1U, job_.pipeline.virtual_stages), each_way = v > 1 ? v / 2 : 1;
    const auto put = [&](lan_route& way, double& sender_s, double& receiver_s, double launch) {
      sender_s += each_way * (way.total_s() + launch);
      if (v == 1) receiver_s += way.total_s();
      way = {way.link};
    };
    for (std::uint32_t p = 0; p < at().pipelines; ++p)
      for (std::uint32_t s = 0; s + 1 < at().stages; ++s) {
        if (is_wan(p, s)) continue;
        const auto i = std::size_t{p} * at().stages + s, next = i + 1;
        auto &here = out_.costs[i], &there = out_.costs[next];
        const auto launch = [&](std::uint32_t stage) {
          return launch_s(job_, c_.gpu_of(at().at(p, stage).node));
        };
        put(t.routes[i].forward, here.forward_s, there.forward_s, launch(s));
        put(t.routes[next].backward, there.backward_s, here.backward_s, launch(s + 1));
      }
    t.lan.assign(t.lan.size(), 0);
  }
  bool is_wan(std::uint32_t pipeline, std::uint32_t stage) const {
    return at().crosses(pipeline, stage, stage + 1);
  }
  link wan_link(std::uint32_t pipeline, std::uint32_t stage) const {
    return link_between(c_, at().datacenter_of(pipeline, stage),
                        at().datacenter_of(pipeline, stage + 1), job_.pipeline.connections);
  }
  void set_times() {
    auto& t = out_.times;
    // The trainer checks for drift after that many iterations.
    constexpr std::uint64_t window = 100;
    const std::uint64_t every = job_.train ? job_.train->replan_every : 0;
    if (!job_.slots) t.iterations = std::min(job_.iterations, every > 0 ? every : window);
    const auto exchange = exchanges();
    for (std::uint32_t p = 0; p < at().pipelines; ++p)
      for (std::uint32_t s = 0; s < at().stages; ++s) {
        const auto& k = costs(p, s);
        const auto* routes = t.routes.empty() ? nullptr : &t.routes[t.stages.size()];
        // Devices that all-reduce directly copy no gradients to the host.
        const double gradients = routes && routes->sums && routes->sum_s == 0 ? k.gradients_s : 0;
        // A single stage has all norms: they are a part of its update.
        const double norms = k.norms_s.value_or(0), alone = at().stages == 1 ? norms : 0;
        t.stages.push_back(
            {k.forward_s, k.recompute_s, k.backward_s, k.update_s + gradients + alone,
             exchange[at().group_of[p] * at().stages + s], gradients, norms - alone});
      }
    for (std::uint32_t g = 0; g < first_.size(); ++g) {
      for (std::uint32_t s = 0; s < at().stages; ++s) t.wan.push_back(wan_s(g, s));
      t.wan_latency = std::max(t.wan_latency, out_.shapes[g].costs.wan_latency);
    }
    t.commit = ways_to_agree();
  }
  bool agrees() const {
    return agrees_on_updates(job_) && std::size_t{at().stages} * at().pipelines > 1;
  }
  commit_ways ways_to_agree() const {
    commit_ways ways;
    const auto stages = at().stages;
    if (!agrees()) return ways;
    const auto& routes = out_.times.routes;
    ways.stages.assign(stages, 0);
    ways.peers.assign(std::size_t{stages} * at().pipelines, 0);
    for (std::uint32_t s = 0; s < stages; ++s) {
      if (s + 1 < stages)
        ways.stages[s] = at().crosses(0, s, s + 1)
                             ? wan_link(0, s).latency_us * 1e-6 + costs(0, s).handling_s
                             : routes[s].forward.latency_s;
      const auto here = at().datacenter_of(0, s);
      for (std::uint32_t p = 1; p < at().pipelines; ++p) {
        // A peer elsewhere has the running sum a way before the first pipeline does, so that its
        // word comes with that; and what it begins later by the answer's way, the next running sum
        // takes to get there.
        const auto& near = routes[std::size_t{p} * stages + s].peers;
        if (here == at().datacenter_of(p, s) && !near.empty())
          ways.peers[std::size_t{p} * stages + s] = near.front().route.latency_s;
      }
    }
    return ways;
  }
  double wan_s(std::uint32_t group, std::uint32_t stage) const {
    if (!out_.shapes[group].is_wan(stage)) return 0;
    if (job_.slots) return job_.slots->wan;
    const auto p = first_[group];
    const auto wan = wan_link(p, stage);
    const auto bytes = static_cast<double>(costs(p, stage).activation_bytes);
    return bytes / wan.bytes_s(bytes, at().flows(p, stage, stage + 1));
  }

  /// By group and stage: the time to all-reduce gradients with its peers, and a tied embedding's
  /// with the other stage that has it, on otherwise idle links: from the last backward to the begin
  /// of the update, without copying gradients to the host.
  std::vector<double> exchanges() const {
    const auto stages = at().stages, last = stages - 1;
    const auto& routes = out_.times.routes;
    std::vector<double> peers(stages, 0.0), out;
    for (std::size_t i = 0; i < routes.size(); ++i)
      peers[i % stages] = std::max(peers[i % stages], peers_s(routes[i]));
    for (const auto p : first_) {
      const auto first = out.size();
      out.insert(out.end(), peers.begin(), peers.end());
      const auto own = std::size_t{p} * stages;
      if (routes.empty() || !routes[own].tied) continue;
      // The last stage's gradient goes to the first, and the sum back.
      const double there_s = routes[own + last].tied_route.total_s(),
                   back_s = routes[own].tied_route.total_s();
      const double whole_s = there_s + out[first] + back_s;
      out[first] += there_s;
      if (!agrees()) out[first] += std::max(0.0, costs(p, last).update_s - costs(p, 0).update_s);
      out[first + last] = std::max(out[first + last], whole_s);
    }
    return out;
  }

  const cluster& c_;
  const job_spec& job_;
  const plan& how_;
  const std::uint32_t pipelines_;  // of the plan
  timed_plan out_;
  std::vector<std::uint32_t> first_;  // pipeline of each group
};

/// `layout`: all pipelines of the plan, or the first ones, which stand for all.
expected<timed_plan> time_layout(const cluster& c, const job_spec& job, const plan& how,
                                 expected<pipeline_layout> layout) {
  if (!layout) return refuse(layout.error());
  auto batches = batches_of(job, how);
  if (!batches) return refuse(batches.error());
  return timer{c, job, how, std::move(*layout), std::move(*batches)}.time();
}

/// Times the plan's first pipelines, with the peers that they have among all
/// (repeated_pipelines.hpp).
expected<timed_plan> time_first(const cluster& c, const job_spec& job, const plan& how,
                                const allocation& where, std::uint32_t pipelines) {
  auto some = how;
  some.data_parallel = pipelines;
  const auto nodes = static_cast<std::ptrdiff_t>(some.gpus() / where.front().gpus);
  const allocation first(where.begin(), where.begin() + nodes);
  return time_layout(c, job, how, lay_out_pipelines(c, first, job, some));
}

/// The times of a group's stages; of many equal pipelines only the first ones may have been timed.
std::span<const stage_times> of_group(const pipeline_shape& shape, const measured_times& times,
                                      std::uint32_t first) {
  const auto begin = std::size_t{first} * shape.stages;
  const auto all = std::size_t{shape.pipelines} * shape.stages;
  return std::span{times.stages}.subspan(begin, std::min(all, times.stages.size() - begin));
}

/// Step times by stage, where `choose` picks one of two peers' values.
template <class Choose>
std::vector<step_costs> of_peers(const pipeline_shape& shape, std::span<const stage_times> times,
                                 Choose choose) {
  std::vector<step_costs> all;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto& t = times[i];
    const step_costs mine{t.forward, t.recompute, t.backward};
    if (i < shape.stages) {
      all.push_back(mine);
      continue;
    }
    auto& k = all[i % shape.stages];
    k.forward = choose(k.forward, mine.forward);
    k.recompute = choose(k.recompute, mine.recompute);
    k.backward = choose(k.backward, mine.backward);
  }
  const bool known =
      std::ranges::all_of(all, [](const auto& k) { return k.forward > 0 && k.backward > 0; });
  return known ? all : std::vector<step_costs>{};
}

}  // namespace

std::vector<step_costs> slowest_peers(const pipeline_shape& shape, const measured_times& times,
                                      std::uint32_t first) {
  return of_peers(shape, of_group(shape, times, first),
                  [](double a, double b) { return std::max(a, b); });
}
std::vector<step_costs> fastest_peers(const pipeline_shape& shape, const measured_times& times,
                                      std::uint32_t first) {
  return of_peers(shape, of_group(shape, times, first),
                  [](double a, double b) { return std::min(a, b); });
}
std::vector<double> longest_tails(const pipeline_shape& shape, const measured_times& times,
                                  std::uint32_t first) {
  std::vector<double> all(shape.stages, 0.0);
  const auto group = of_group(shape, times, first);
  for (std::size_t i = 0; i < group.size(); ++i) {
    auto& tail = all[i % shape.stages];
    tail = std::max(tail, group[i].update + group[i].exchange);
  }
  return all;
}

expected<timed_plan> time_plan(const cluster& c, const job_spec& job, const plan& how,
                               const std::vector<lease_part>& parts) {
  return time_layout(c, job, how, lay_out_pipelines(c, parts, job, how));
}
expected<timed_plan> time_plan(const cluster& c, const job_spec& job, const plan& how,
                               const allocation& where) {
  return time_layout(c, job, how, lay_out_pipelines(c, where, job, how));
}

std::string schedule_name(const job_spec& job) {
  return job.train && !job.train->schedule.empty() ? job.train->schedule : "best";
}

job_spec with_device(job_spec job, const std::string& device) {
  if (!job.train) job.train.emplace();
  if (job.slots)
    job.train->device = name_of(device_kind::sim);
  else if (job.train->device.empty())
    job.train->device = device;
  return job;
}

expected<std::vector<pipeline_schedule>> schedules_of(const std::vector<pipeline_shape>& shapes,
                                                      std::string_view name) {
  std::vector<pipeline_schedule> all;
  for (std::size_t g = 0; g < shapes.size(); ++g) {
    auto made = schedule_pipeline(shapes[g], name);
    if (made)
      all.push_back(std::move(*made));
    else if (shapes.size() == 1)
      return refuse(made.error());
    else
      return refuse(made.error().code, "group {}: {}", g, made.error().text);
  }
  return all;
}

expected<iteration_estimate> evaluate(const cluster& c, const job_spec& job,
                                      const timed_plan& timed, fidelity f) {
  iteration_estimate e;
  if (f == fidelity::closed || f == fidelity::lower_bound) {
    const auto parts = std::max(1U, job.pipeline.virtual_stages);
    e.iteration_s = closed_form_s(timed, job, parts, f == fidelity::lower_bound && parts == 1);
  } else {
    if (job.pipeline.virtual_stages > 1)
      return refuse(reason::kind::invalid,
                    "virtual_stages is for estimates: a stage of the built-in trainer has one part "
                    "of the model");
    if (job.pipeline.overlap.value_or(false))
      return refuse(reason::kind::invalid,
                    "overlap is for estimates: no schedule here has sums beside steps");
    const auto made = schedules_of(timed.shapes, schedule_name(job));
    if (!made) return refuse(made.error());
    e.iteration_s = simulated_iteration_s(*made, timed.times);
  }
  for (const auto& shape : timed.shapes)
    for (std::uint32_t s = 0; s < shape.stages; ++s)
      e.compute_s = std::max(e.compute_s, shape.microbatches * step_s(shape.at(s)));
  e.compute_s = std::min(e.compute_s, e.iteration_s);
  e.pipeline_s = e.iteration_s - e.compute_s;
  if (e.iteration_s > 0) e.samples_per_s = job.global_batch / e.iteration_s;
  const auto& places = timed.layout.places;
  const auto all = sum_of(
      timed.shapes, [](const auto& shape) { return std::size_t{shape.pipelines} * shape.stages; });
  for (std::size_t i = 0; i < all; ++i) {
    const auto& p = places[i % places.size()];
    e.cost_per_hour += static_cast<double>(p.devices.size()) * price_per_hour(c, p.node);
  }
  e.traffic = traffic_of(job, timed);
  e.traffic_per_iteration = price_of(c, e.traffic);
  return e;
}

expected<iteration_estimate> evaluate(const cluster& c, const job_spec& job, const plan& how,
                                      const allocation& where, fidelity f) {
  if (how.stages.empty()) return estimate_iteration(c, job, how, where);
  const auto first = f == fidelity::closed ? repeated_pipelines(c, job, how, where) : 0;
  const auto timed =
      first > 0 ? time_first(c, job, how, where, first) : time_plan(c, job, how, where);
  if (!timed) return refuse(timed.error());
  return evaluate(c, job, *timed, f);
}

}  // namespace troupe::planners
