#include "planners/cost/plan_time.hpp"

#include <algorithm>

#include "messages/base/refuse.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/end_of_sums.hpp"
#include "planners/cost/repeated_pipelines.hpp"
#include "planners/cost/tensor_routes.hpp"
#include "planners/model/engine_memory.hpp"
#include "planners/model/job_memory.hpp"
#include "planners/schedule/named_schedule.hpp"
#include "planners/schedule/trips.hpp"

namespace troupe::planners {

namespace {

/// The batch split of the plan, or of the job if the plan has none.
expected<batch_split> batch_of(const job_spec& job, const plan& how) {
  const auto split = how.microbatches > 0
                         ? batch_split{how.microbatches, how.rows}
                         : split_batch(job, how.pipeline_parallel, how.data_parallel);
  const auto samples = std::uint64_t{how.data_parallel} * split.microbatches * split.rows /
                       context_parallel_of(job.pipeline);
  if (split.microbatches > 0 && (job.slots || samples == job.global_batch)) return split;
  return refuse(reason::kind::invalid,
                "global batch {} is not divisible by {} pipelines x micro-batches",
                job.global_batch, how.data_parallel);
}

/// Times every stage of a layout, then its links, then what schedules and simulation need of both.
class timer {
 public:
  timer(const cluster& c, const job_spec& job, pipeline_layout layout, batch_split batch,
        std::uint32_t pipelines)
      : c_{c}, job_{job}, pipelines_{pipelines} {
    out_.layout = std::move(layout);
    out_.batch = batch;
  }

  timed_plan time() {
    for (std::uint32_t p = 0; p < at().pipelines; ++p)
      for (std::uint32_t s = 0; s < at().stages; ++s) out_.costs.push_back(costs_at(p, s));
    set_ways();
    set_shape();
    set_times();
    out_.shape.by_stage = slowest_peers(out_.shape, out_.times);
    out_.shape.tail = longest_tails(out_.shape, out_.times);
    return std::move(out_);
  }

 private:
  const pipeline_layout& at() const { return out_.layout; }
  const stage_costs& costs(std::uint32_t pipeline, std::uint32_t stage) const {
    return out_.costs[std::size_t{pipeline} * at().stages + stage];
  }
  /// Peers usually have equal nodes, so the costs of the pipeline before are copied if they do.
  stage_costs costs_at(std::uint32_t p, std::uint32_t s) const {
    const auto node = at().at(p, s).node;
    if (p > 0) {
      const auto& n = c_.nodes[node];
      const auto& other = c_.nodes[at().at(p - 1, s).node];
      if (n.gpu == other.gpu && n.intra == other.intra && n.inter == other.inter &&
          n.gpus == other.gpus && n.emulate_speed == other.emulate_speed)
        return costs(p - 1, s);
    }
    return costs_on_node(c_, node, job_, at().parts, s, out_.batch.rows, pipelines_);
  }

  /// The slowest stage and the slowest hop of each kind, for schedules with one cost per kind of
  /// step.
  pipeline_costs slowest_costs() const {
    if (job_.slots) return costs_in_slots(job_);
    pipeline_costs out{0, 0, 0, 0, 0, 0};
    for (std::uint32_t s = 0; s < at().stages; ++s)
      for (std::uint32_t p = 0; p < at().pipelines; ++p) {
        const auto& x = costs(p, s);
        out.forward = std::max(out.forward, x.forward_s);
        out.recompute = std::max(out.recompute, x.recompute_s);
        out.backward = std::max(out.backward, x.backward_s);
        if (s + 1 == at().stages) continue;
        const auto from = at().datacenter_of(s), to = at().datacenter_of(s + 1);
        const double bytes = static_cast<double>(x.activation_bytes);
        if (from != to) {
          const auto wan = link_between(c_, from, to, job_.pipeline.connections);
          out.wan = std::max(out.wan, bytes / wan.bytes_s(bytes, at().flows(s, s + 1)));
          out.wan_latency = std::max(out.wan_latency, wan.latency_us * 1e-6 + x.handling_s);
        }
      }
    for (const auto hop : out_.times.lan) out.lan = std::max(out.lan, hop);
    return out;
  }

  void set_shape() {
    auto& shape = out_.shape;
    shape.stages = at().stages;
    shape.pipelines = pipelines_;
    shape.microbatches = out_.batch.microbatches;
    shape.stages_of_datacenter = at().stages_of_datacenter;
    shape.recompute = recomputation_of(job_) == recomputation::stages;
    shape.costs = slowest_costs();
    shape.cell = cell_of(shape.costs, shape.pipelines);
    shape.max_in_flight = flight_limit(job_, shape.stages);
    shape.holds_one_at_end = facts_of(job_).on_engine;
  }

  void set_ways() {
    auto& t = out_.times;
    t.lan.assign(at().stages, job_.slots ? job_.slots->lan : 0);
    if (job_.slots) return;
    tensor_routes routes{c_, job_, at(), pipelines_, out_.costs};
    for (std::uint32_t p = 0; p < at().pipelines; ++p)
      for (std::uint32_t s = 0; s < at().stages; ++s) t.routes.push_back(routes.of(p, s));
    for (std::uint32_t s = 0; s < at().stages; ++s) t.lan[s] = routes.hop_s(s);
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
        if (is_wan(s)) continue;
        const auto i = std::size_t{p} * at().stages + s, next = i + 1;
        auto &here = out_.costs[i], &there = out_.costs[next];
        const auto launch = [&](std::uint32_t stage) {
          return launch_s(job_, c_.gpu_of(at().at(p, stage).node));
        };
        put(t.routes[i].forward, here.forward_s, there.forward_s, launch(s));
        put(t.routes[next].backward, there.backward_s, here.backward_s, launch(s + 1));
      }
    t.lan.assign(at().stages, 0);
  }
  bool is_wan(std::uint32_t stage) const {
    return at().datacenter_of(stage) != at().datacenter_of(stage + 1);
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
        // A single stage exchanges no norms.
        const double norms = k.norms_s.value_or(0), alone = at().stages == 1 ? norms : 0;
        t.stages.push_back({k.forward_s, k.recompute_s, k.backward_s,
                            k.update_s + gradients + alone, exchange[s], gradients, norms - alone});
      }
    for (std::uint32_t s = 0; s < at().stages; ++s) t.wan.push_back(wan_s(s));
    t.wan_latency = out_.shape.costs.wan_latency;
    t.norm_ways = norm_ways();
  }
  /// By hop, for updates that need the norm of all gradients.
  std::vector<double> norm_ways() const {
    std::vector<double> ways;
    if (costs(0, 0).norms_s)
      for (std::uint32_t s = 0; s + 1 < at().stages; ++s) {
        const auto& routes = out_.times.routes;
        double way_s = routes.empty() ? 0 : routes[s].forward.latency_s;
        if (is_wan(s)) {
          const auto wan = link_between(c_, at().datacenter_of(s), at().datacenter_of(s + 1),
                                        job_.pipeline.connections);
          way_s = wan.latency_us * 1e-6 + costs(0, s).handling_s;
        }
        ways.push_back(way_s);
      }
    return ways;
  }
  double wan_s(std::uint32_t stage) const {
    if (!out_.shape.is_wan(stage)) return 0;
    if (job_.slots) return job_.slots->wan;
    const auto wan = link_between(c_, at().datacenter_of(stage), at().datacenter_of(stage + 1),
                                  job_.pipeline.connections);
    const auto bytes = static_cast<double>(costs(0, stage).activation_bytes);
    return bytes / wan.bytes_s(bytes, at().flows(stage, stage + 1));
  }

  /// By stage: the time to all-reduce gradients with its peers, and a tied embedding's with the
  /// other stage that has it, on otherwise idle links: from the last backward to the begin of the
  /// update, without copying gradients to the host.
  std::vector<double> exchanges() const {
    std::vector<double> out(at().stages, 0.0);
    const auto& routes = out_.times.routes;
    for (std::size_t i = 0; i < routes.size(); ++i)
      out[i % at().stages] = std::max(out[i % at().stages], peers_s(routes[i]));
    const auto last = at().stages - 1;
    if (routes.empty() || !routes[0].tied) return out;
    // The last stage's gradient goes to the first, and the sum back.
    const double there_s = routes[last].tied_route.total_s(),
                 back_s = routes[0].tied_route.total_s();
    const double whole_s = there_s + out[0] + back_s;
    out[0] += there_s + std::max(0.0, costs(0, last).update_s - costs(0, 0).update_s);
    out[last] = std::max(out[last], whole_s);
    return out;
  }

  const cluster& c_;
  const job_spec& job_;
  const std::uint32_t pipelines_;  // of the plan
  timed_plan out_;
};

/// `layout`: all pipelines of the plan, or the first ones, which stand for all.
expected<timed_plan> time_layout(const cluster& c, const job_spec& job, const plan& how,
                                 expected<pipeline_layout> layout) {
  if (!layout) return refuse(layout.error());
  const auto batch = batch_of(job, how);
  if (!batch) return refuse(batch.error());
  return timer{c, job, std::move(*layout), *batch, how.data_parallel}.time();
}

/// z: the time of one micro-batch in a stage.
double step_s(const step_costs& k) {
  return k.forward + k.recompute + k.backward;
}

/// The largest use of a link by activations and their gradients in an iteration, s, or the time of
/// the slowest flow, which need not fill its link.
double busiest_link_s(const timed_plan& t) {
  std::vector<double> used(t.times.links, 0.0);
  const double m = t.shape.microbatches;
  double longest = 0;
  for (const auto& w : t.times.routes) {
    used[w.forward.link] += m * w.forward.link_s();
    used[w.backward.link] += m * w.backward.link_s();
    longest = std::max({longest, m * w.forward.alone_s, m * w.backward.alone_s});
  }
  return used.empty() ? 0 : std::max(longest, *std::ranges::max_element(used));
}

/// Term (4), cards, less S, by stage (docs/planners/plan_search.md): (m - w) a + (m - 1) g on
/// cards, or links inside a node, that only one stage of one pipeline uses; the largest of all
/// pipelines. When a stage has done its first backward, at most w of its activations have been
/// sent; the others and all further gradients still have to pass its card, and the last of them
/// then returns to the first stage.
std::vector<double> beyond_cards_s(const timed_plan& t) {
  const auto stages = t.shape.stages, m = t.shape.microbatches;
  std::vector<double> out(stages, 0.0);
  if (t.times.routes.empty()) return out;
  const auto sends = [&](std::size_t i, bool forward) {
    const auto s = static_cast<std::uint32_t>(i % stages);
    return forward ? s + 1 < stages && !t.shape.is_wan(s) : s > 0 && !t.shape.is_wan(s - 1);
  };
  std::vector<std::uint32_t> users(t.times.links, 0);
  for (std::size_t i = 0; i < t.times.routes.size(); ++i) {
    const auto& w = t.times.routes[i];
    if (sends(i, true)) ++users[w.forward.link];
    if (sends(i, false) && !(sends(i, true) && w.backward.link == w.forward.link))
      ++users[w.backward.link];
  }
  for (std::size_t i = 0; i < t.times.routes.size(); ++i) {
    const auto s = static_cast<std::uint32_t>(i % stages);
    const auto& w = t.times.routes[i];
    const bool forward = sends(i, true) && users[w.forward.link] == 1;
    const bool backward = sends(i, false) && users[w.backward.link] == 1;
    double both_s = 0;
    if (backward) both_s = (m - 1.0) * w.backward.link_s();
    if (backward && forward && w.backward.link == w.forward.link)
      both_s += (m - std::min(m, stages - s)) * w.forward.link_s();
    if (forward) both_s = std::max(both_s, (m - 1.0) * w.forward.link_s());
    out[s] = std::max(out[s], both_s);
  }
  return out;
}

/// Term (5), first micro-batch, by stage: how much later than alone it comes back, as its gradients
/// share cards with the activations that the stages behind send at the same time. Certain only if
/// no stage in front takes longer for a micro-batch than Y / w of each stage behind it, so that
/// those activations are there; otherwise all are 0.
std::vector<double> delays_s(const timed_plan& t) {
  const auto& shape = t.shape;
  const auto stages = shape.stages;
  std::vector<double> out(stages, 0.0);
  if (t.times.routes.empty() || std::ranges::any_of(t.times.wan, [](double s) { return s > 0; }))
    return out;
  double through = 0, max_load = never;
  for (auto s = stages - 1; s > 0; --s) {
    const auto k = shape.at(s);
    through += k.forward + k.backward + (s + 1 < stages ? 2 * t.times.lan[s] : 0);
    out[s - 1] = out[s];
    const bool waits = s + 1 < stages && stages - s < shape.microbatches;
    double delay = never, load = shape.at(s - 1).forward;
    for (auto i = std::size_t{s}; i < t.times.routes.size(); i += stages) {
      const auto& w = t.times.routes[i];
      const bool shared = waits && w.forward.link == w.backward.link && w.forward.share == 1 &&
                          w.backward.share == 1;
      delay = std::min(
          delay, shared ? delay_on_card_s(w.backward.alone_s, w.forward.alone_s, k.forward) : 0);
      load = std::max(load, t.times.routes[i - 1].forward.alone_s);
    }
    if (waits) max_load = std::min(max_load, through / (stages - s));
    if (load > max_load) return std::vector<double>(stages, 0.0);
    out[s - 1] += delay;
  }
  return out;
}

// The iteration of 1F1B without a schedule (docs/planners/plan_search.md, "Lower bounds for known
// stages"). Simulating a schedule costs O(tasks * log(tasks)), too much for the thousands of plans
// that a search evaluates; this is O(pipelines * stages). The usual formula, one pass plus (m - 1)
// times the slowest stage, ignores that a stage holds only w micro-batches and so waits for round
// trips. Here every stage gives chains of events that happen one after the other in any 1F1B order:
// (1) its first forward arrives, it does all of its work and waits for the first gradient
// meanwhile, and the last gradient returns to stage 0; (2) a stage begins a micro-batch only when
// the one w before it has returned, so the rounds follow each other; with `lower_bound` (3) to (5),
// too. The longest chain counts, and no less than the busiest shared link; then the sums and
// updates that backwards do not hide. With `v` parts of the model per stage, filling and draining
// take 1/v as long, and tensors are sent v times as often (Narayanan et al., section 2.2); there
// the rounds are not bounded.
double closed_form_s(const timed_plan& t, const job_spec& job, double v, bool lower_bound) {
  const auto& shape = t.shape;
  const double m = shape.microbatches;
  const auto send_s = [&](std::uint32_t s) {
    return shape.is_wan(s) ? t.times.wan[s] + t.times.wan_latency : t.times.lan[s];
  };
  const auto way_s = [&](std::uint32_t s) {
    return (shape.at(s).forward + shape.at(s).backward) / v;
  };
  double behind = 0;  // a micro-batch's path to the last stage and back
  for (std::uint32_t s = 1; s < shape.stages; ++s) behind += way_s(s) + 2 * send_s(s - 1);
  double before = 0, longest = v * busiest_link_s(t), backwards = 0;
  const auto delays = lower_bound ? delays_s(t) : std::vector<double>(shape.stages, 0.0);
  if (lower_bound)
    longest = std::max(longest, way_s(0) + behind + std::ranges::max(beyond_cards_s(t)));
  for (std::uint32_t s = 0; s < shape.stages; ++s) {
    const auto k = shape.at(s);
    // Before the first gradient arrives, 1F1B does one forward for each stage from this one on.
    const double warm_up = std::min<double>(m, shape.stages - s) * k.forward / v;
    const double idle = std::max(0.0, k.forward / v + behind + delays[s] - warm_up);
    const double hop = shape.is_wan(s) ? v * t.times.wan[s] : 0;
    longest = std::max(
        longest, before + std::max(m * step_s(k), m * hop) + std::max(0.0, idle - k.recompute / v));
    const auto rounds = rounds_of(shape.microbatches, shape.stages - s);
    if (v == 1)
      longest =
          std::max(longest, before + rounds.full * (way_s(s) + behind) + rounds.rest * k.forward);
    if (lower_bound) {
      const double next = s + 1 < shape.stages ? behind - 2 * send_s(s) : 0,
                   trip = way_s(s) + behind;
      const double trips = trips_s(shape.microbatches, shape.stages - s, trip, next, step_s(k));
      if (trips > 0) longest = std::max(longest, before + trip + delays[s] + trips);
    }
    if (s + 1 == shape.stages) break;
    before += way_s(s) + 2 * send_s(s);
    behind -= way_s(s + 1) + 2 * send_s(s);
  }
  // A stage's last backward ends before those of earlier stages begin.
  std::vector<double> last_backward_s;
  for (std::uint32_t s = 0; s < shape.stages; ++s) {
    last_backward_s.push_back(longest - backwards);
    backwards += shape.at(s).backward / v + (s + 1 < shape.stages ? send_s(s) : 0);
  }
  return end_of_sums_s(t, job, last_backward_s, lower_bound);
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

/// Step times by stage, where `choose` picks one of two peers' values.
template <class Choose>
std::vector<step_costs> of_peers(const pipeline_shape& shape, const measured_times& times,
                                 Choose choose) {
  std::vector<step_costs> all;
  for (std::size_t i = 0; i < times.stages.size(); ++i) {
    const auto& t = times.stages[i];
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

std::vector<step_costs> slowest_peers(const pipeline_shape& shape, const measured_times& times) {
  return of_peers(shape, times, [](double a, double b) { return std::max(a, b); });
}
std::vector<step_costs> fastest_peers(const pipeline_shape& shape, const measured_times& times) {
  return of_peers(shape, times, [](double a, double b) { return std::min(a, b); });
}
std::vector<double> longest_tails(const pipeline_shape& shape, const measured_times& times) {
  std::vector<double> all(shape.stages, 0.0);
  for (std::size_t i = 0; i < times.stages.size(); ++i) {
    const auto& t = times.stages[i];
    auto& tail = all[i % shape.stages];
    tail = std::max(tail, t.update + t.exchange);
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

expected<iteration_estimate> evaluate(const cluster& c, const job_spec& job,
                                      const timed_plan& timed, fidelity f) {
  iteration_estimate e;
  const auto& shape = timed.shape;
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
    const auto made = schedule_pipeline(shape, schedule_name(job));
    if (!made) return refuse(made.error());
    e.iteration_s = simulated_iteration_s(*made, timed.times);
  }
  for (std::uint32_t s = 0; s < shape.stages; ++s)
    e.compute_s = std::max(e.compute_s, shape.microbatches * step_s(shape.at(s)));
  e.compute_s = std::min(e.compute_s, e.iteration_s);
  e.pipeline_s = e.iteration_s - e.compute_s;
  if (e.iteration_s > 0) e.samples_per_s = job.global_batch / e.iteration_s;
  const auto& places = timed.layout.places;
  for (std::size_t i = 0; i < std::size_t{shape.pipelines} * shape.stages; ++i) {
    const auto& p = places[i % places.size()];
    e.cost_per_hour += static_cast<double>(p.devices.size()) * price_per_hour(c, p.node);
  }
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
