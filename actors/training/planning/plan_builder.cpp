#include "actors/training/planning/plan_builder.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "runtime/host/transport.hpp"

namespace troupe::actors {

namespace {

/// Micro-batches of an iteration whose tasks stages report even if no timeline is written.
constexpr std::uint32_t max_traced = 512;

/// Makes a training plan without orders from a timed plan.
class plan_builder {
 public:
  plan_builder(const cluster& c, lease_id lease, job_spec job, planners::timed_plan timed)
      : c_{c}, lease_{lease}, job_{std::move(job)}, timed_{std::move(timed)} {
    if (job_.slots)
      for (auto& k : timed_.costs) k.activation_bytes = slot_bytes;
  }

  expected<training_plan> build() {
    if (auto ok = tensors_fit(); !ok) return refuse(ok.error());
    if (auto ok = sums_may_cross(); !ok) return refuse(ok.error());
    training_plan plan;
    plan.shapes = timed_.shapes;
    plan.schedules.resize(plan.shapes.size());
    plan.times = timed_.times;
    plan.layout = timed_.layout;
    plan.schedule_name = planners::schedule_name(job_);
    add_hops(plan);
    for (std::uint32_t s = 0; s < layout().stages; ++s) add_sums(plan, s);
    std::uint64_t first = 0;
    for (std::uint32_t p = 0; p < layout().pipelines; ++p) {
      for (std::uint32_t s = 0; s < layout().stages; ++s)
        plan.stages.push_back(set_up(plan.shape_of(p), p, s, first));
      first += plan.shape_of(p).microbatches;
    }
    TROUPE_INVARIANT(first == all_microbatches(), "the pipelines have all micro-batches");
    return plan;
  }

 private:
  const planners::pipeline_layout& layout() const { return timed_.layout; }
  node_index node_of(std::uint32_t pipeline, std::uint32_t stage) const {
    return layout().at(pipeline, stage).node;
  }
  /// Those of all pipelines in an iteration.
  std::uint64_t all_microbatches() const {
    std::uint64_t all = 0;
    for (const auto& s : timed_.shapes) all += std::uint64_t{s.pipelines} * s.microbatches;
    return all;
  }

  // Hops are the same in all pipelines of a group: their stages share datacenters. Both directions
  // of a hop count for the WAN's utilization.
  void add_hops(training_plan& plan) const {
    for (std::size_t g = 0; g < plan.shapes.size(); ++g) {
      const auto& shape = plan.shapes[g];
      const auto p = plan.first_of(g);
      for (std::uint32_t s = 0; s < layout().stages; ++s) {
        plan.hops.push_back(shape.is_wan(s) ? hop(p, s) : link{});
        if (!shape.is_wan(s)) continue;
        plan.wan_gbps += 2 * hop(p, s).gbps * shape.pipelines;
        add_bare(plan.bare_wan, layout().datacenter_of(p, s), layout().datacenter_of(p, s + 1));
      }
    }
  }
  /// Every pipeline of a run sends its part of the sums over its own node pair.
  void add_sums(training_plan& plan, std::uint32_t stage) const {
    auto runs = layout().runs_of(stage);
    for (std::size_t i = 1; i < runs.size(); ++i) {
      const auto end = i + 1 < runs.size() ? runs[i + 1] : layout().pipelines;
      const auto a = layout().datacenter_of(runs[i - 1], stage),
                 b = layout().datacenter_of(runs[i], stage);
      plan.wan_gbps +=
          planners::link_between(c_, a, b, job_.pipeline.connections).gbps * (end - runs[i - 1]);
      add_bare(plan.bare_wan, a, b);
    }
  }
  const stage_costs& costs(std::uint32_t pipeline, std::uint32_t stage) const {
    return timed_.costs[std::size_t{pipeline} * layout().stages + stage];
  }

  /// Checks the limit for tensors. Gradients of GPUs are not checked: only the stages find out
  /// whether their devices all-reduce directly, and fail themselves if a tensor is too large.
  expected<void> tensors_fit() const {
    if (is_simulated(job_.train->device)) return {};
    for (std::uint32_t s = 0; s < layout().stages; ++s) {
      const auto& k = costs(0, s);
      if (s + 1 < layout().stages)
        if (auto ok = fits("a micro-batch's activations", s, k.activation_bytes, "fewer sequences");
            !ok)
          return ok;
      if (const auto peers = fewest_peers(s);
          peers > 1 && !sums_on_devices(*job_.train, job_.train->device))
        if (auto ok = fits("a pipeline's chunk of the gradients", s, k.gradient_bytes / peers,
                           "more pipelines or more stages");
            !ok)
          return ok;
      if (layout().stages > 1)
        if (auto ok = fits("the tied embedding's gradients", s, k.tied_bytes, "one stage"); !ok)
          return ok;
    }
    return {};
  }
  /// Pipelines that sum their gradients of a stage inside a datacenter, where there are several; of
  /// one that is alone there only pieces that fit are sent.
  std::uint32_t fewest_peers(std::uint32_t stage) const {
    auto runs = layout().runs_of(stage);
    runs.push_back(layout().pipelines);
    std::uint32_t fewest = 0;
    for (std::size_t i = 1; i < runs.size(); ++i)
      if (const auto n = runs[i] - runs[i - 1]; n > 1 && (fewest == 0 || n < fewest)) fewest = n;
    return fewest;
  }
  /// A program that sums by its own collectives has no gateways between its peers.
  expected<void> sums_may_cross() const {
    if (!job_.train->program || !sums_on_devices(*job_.train, job_.train->device)) return {};
    for (std::uint32_t s = 0; s < layout().stages; ++s)
      if (layout().runs_of(s).size() > 1)
        return refuse(
            reason::kind::infeasible,
            "the pipelines of stage {} are in several datacenters, and `gradients: torch` "
            "cannot sum across datacenters: give the program `gradients: host`",
            s);
    return {};
  }
  expected<void> fits(const char* what, std::uint32_t stage, std::uint64_t bytes,
                      const char* remedy) const {
    if (bytes <= runtime::largest_tensor_bytes) return {};
    return refuse(reason::kind::infeasible,
                  "{} of stage {} have {} bytes, but a tensor may have at most {}: give the job {}",
                  what, stage, bytes, runtime::largest_tensor_bytes, remedy);
  }

  /// Names the two datacenters unless their link is emulated.
  void add_bare(std::string& names, std::uint32_t a, std::uint32_t b) const {
    if (const auto* w = wan_between(c_, a, b); w && w->emulate) return;
    const auto both = fmt::format("{} and {}", c_.datacenters[a].name, c_.datacenters[b].name);
    if (names.find(both) == std::string::npos) names += (names.empty() ? "" : ", ") + both;
  }

  link hop(std::uint32_t pipeline, std::uint32_t stage) const {
    return planners::link_between(c_, layout().datacenter_of(pipeline, stage),
                                  layout().datacenter_of(pipeline, stage + 1),
                                  job_.pipeline.connections);
  }
  /// WAN transfer time of a micro-batch's tensor to the next stage; 0: inside a datacenter.
  double transfer_s(std::uint32_t p, std::uint32_t stage) const {
    if (!layout().crosses(p, stage, stage + 1)) return 0;
    const auto l = hop(p, stage);
    const auto bytes = static_cast<double>(costs(p, stage).activation_bytes);
    return bytes / l.bytes_s(bytes, layout().flows(p, stage, stage + 1)) + l.latency_us * 1e-6;
  }
  /// Until a running sum is back from the other datacenters.
  double sums_s(std::uint32_t p, std::uint32_t stage) const {
    const auto& routes = timed_.times.routes;
    return routes.empty() ? 0 : routes[std::size_t{p} * layout().stages + stage].between_s;
  }
  wan_path inside() const {
    wan_path w;
    w.pairs = 0;
    return w;
  }
  /// Over the pipeline's own node pair; adopt() replaces this if the schedule shares the link.
  wan_path across(std::uint32_t pipeline, std::uint32_t from, std::uint32_t to) const {
    return between(pipeline, layout().datacenter_of(pipeline, from),
                   layout().datacenter_of(pipeline, to));
  }
  wan_path between(std::uint32_t pipeline, std::uint32_t from, std::uint32_t to) const {
    wan_path w;
    w.first_pair = pipeline;
    w.connections = planners::connections_between(c_, from, to, job_.pipeline.connections);
    return w;
  }

  /// Where a stage's peers are, if that is several datacenters.
  std::optional<peer_sites> sites_of(std::uint32_t p, std::uint32_t s) const {
    const auto runs = layout().runs_of(s);
    if (runs.size() == 1) return {};
    peer_sites sites;
    for (std::uint32_t peer = 0; peer < layout().pipelines; ++peer)
      sites.datacenters.push_back(layout().datacenter_of(peer, s));
    const auto run = std::ranges::upper_bound(runs, p) - runs.begin() - 1;
    const auto here = layout().datacenter_of(p, s);
    const auto to = [&](std::ptrdiff_t other) {
      if (other < 0 || other == std::ssize(runs)) return inside();
      return between(p, here, layout().datacenter_of(runs[static_cast<std::size_t>(other)], s));
    };
    sites.forward = to(run + 1);
    sites.backward = to(run - 1);
    return sites;
  }

  /// The setup without an order, which adopt() adds. It carries all that the stage's node needs,
  /// since nodes do not have the plan: addresses of neighbours and peers, costs, paths and model.
  /// `first`: of the pipeline's micro-batches.
  stage_setup set_up(const planners::pipeline_shape& shape, std::uint32_t p, std::uint32_t s,
                     std::uint64_t first) const {
    const auto last = layout().stages - 1;
    stage_setup x;
    x.name = {lease_, p, s};
    x.devices = layout().at(p, s).devices;
    x.backend = job_.train->device;
    x.model = job_.model;
    x.how = *job_.train;
    x.how.costs.clear();  // the stage's own are in x.costs
    x.first_sublayer = layout().parts_of(p)[s].first;
    x.sublayers = layout().parts_of(p)[s].count;
    x.stages = layout().stages;
    x.pipelines = layout().pipelines;
    x.microbatches = shape.microbatches;
    x.rows = timed_.batches.front().rows;
    if (std::ranges::any_of(timed_.shapes, [&](const auto& other) {
          return other.microbatches != shape.microbatches;
        }))
      x.share = {first, all_microbatches()};
    x.sites = sites_of(p, s);
    for (std::uint32_t other = 0; other <= last; ++other)
      x.neighbours.push_back(node_address(node_of(p, other)));
    for (std::uint32_t peer = 0; peer < layout().pipelines; ++peer)
      x.peers.push_back(node_address(node_of(peer, s)));
    x.forward = shape.is_wan(s) ? across(p, s, s + 1) : inside();
    x.backward = s > 0 && shape.is_wan(s - 1) ? across(p, s, s - 1) : inside();
    x.tied = layout().crosses(p, 0, last) ? across(p, 0, last) : inside();
    x.costs = costs(p, s);
    x.costs.wan_s = std::max({x.costs.wan_s, s > 0 ? transfer_s(p, s - 1) : 0,
                              s < last ? transfer_s(p, s) : 0, sums_s(p, s)});
    const bool lends = job_.pipeline.bubbles.has_value();
    x.trace = !x.how.timeline.empty() ||
              ((lends || !is_simulated(x.backend)) && x.microbatches <= max_traced);
    x.emulate_speed = c_.nodes[node_of(p, s)].emulate_speed;
    x.recompute_layers = job_.pipeline.recompute_layers;
    return x;
  }

  const cluster& c_;
  lease_id lease_;
  job_spec job_;  // with its device kind
  planners::timed_plan timed_;
};

}  // namespace

expected<training_plan> plan_without_orders(const cluster& c, lease_id lease, job_spec job,
                                            planners::timed_plan timed) {
  return plan_builder{c, lease, std::move(job), std::move(timed)}.build();
}

}  // namespace troupe::actors
