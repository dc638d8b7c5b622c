#include "studies/training_simulation.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "actors/control/ledger/training_history.hpp"
#include "actors/training/planning/training_plan.hpp"
#include "actors/worlds/virtual_cluster.hpp"
#include "actors/worlds/watched_policy.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::studies {

// A slot is a second. Over the WAN the job's number of slots gives the link's rate, so that one
// tensor (slot_bytes) occupies the link that long; in a datacenter it gives a latency, so that
// transfers do not wait for each other.
troupe::cluster cluster_of_slots(const job_spec& job) {
  constexpr double tensor_gbit = actors::slot_bytes * 8e-9, at_once_gbps = 1e15;
  const auto stages = std::max(1U, job.pipeline.stages);
  const auto pipelines = std::max(1U, job.pipeline.data_parallel);
  const auto each =
      job.pipeline.stages_per_datacenter > 0 ? job.pipeline.stages_per_datacenter : stages;
  const auto rate = [&](double slots) { return slots > 0 ? tensor_gbit / slots : at_once_gbps; };
  troupe::cluster c;
  c.name = "slots";
  c.gpus.resize(1);
  c.gpus[0].name = "slot";
  c.gpus[0].memory_gb = 1e6;
  c.settings.restart_s = 0;
  // A slot is long: heartbeats once per second would dominate the simulation.
  c.settings.heartbeat_s = 10;
  for (std::uint32_t s = 0; s < stages; ++s) {
    const auto d = s / each;
    if (d == c.datacenters.size()) {
      c.datacenters.push_back({fmt::format("dc{}", d + 1), {}});
      for (std::uint32_t before = 0; before < d; ++before)
        c.wan.push_back({before, d, 0, rate(job.slots->wan), 0});
    }
    for (std::uint32_t p = 0; p < pipelines; ++p) {
      troupe::node n;
      n.name = fmt::format("p{}-s{}", p, s);
      n.datacenter = d;
      n.gpus = 1;
      n.intra = n.inter = {"slots", at_once_gbps, job.slots->lan * 1e6};
      c.nodes.push_back(std::move(n));
    }
  }
  return c;
}

namespace {

// Virtual time for the decoders to start, and for requests to end after the training.
constexpr double max_startup_s = 3600, max_end_s = 3600;

/// Why a job that has not ended within its time did not: what the controller explains of it.
tl::unexpected<reason> has_not_ended(actors::virtual_cluster& v,
                                     const training_simulation_options& options) {
  const auto id = v.accepted().empty() ? 1 : v.accepted().front();
  const auto answered = v.ask(explain_job{0, id});
  const auto* e = answered.reply ? std::get_if<explanation>(&answered.reply->first) : nullptr;
  return refuse(reason::kind::infeasible,
                fmt::format("{} did not end within {:g} s{}{}", options.job.name, options.limit_s,
                            e ? ": " : "", e ? e->summary : ""));
}

/// Starts the decoders and waits for them; they come first, since a policy could give their nodes
/// to the training.
expected<void> start_decoders(actors::virtual_cluster& v, const cluster& on,
                              const training_simulation_options& options, prefill_player& player,
                              const std::function<bool()>& stopped) {
  player.join(v, on);
  std::vector<arrival> decoders;
  for (auto& job : decoder_jobs(on, options.job, *options.prefills))
    decoders.push_back({0, std::move(job)});
  v.submit(std::move(decoders));
  v.world().run_until([&] { return stopped() || player.ready(); }, max_startup_s);
  if (stopped() || player.ready()) return {};
  return refuse(reason::kind::infeasible,
                fmt::format("the decoders were not ready within {:g} s", max_startup_s));
}

/// Waits for the last prefills. `all`: the training's report.
expected<simulated_prefills> end_prefills(actors::virtual_cluster& v, const cluster& on,
                                          const training_report& all, prefill_player& player) {
  if (!player.lent())
    return refuse(reason::kind::infeasible,
                  all.events.empty() ? "the training lent no bubble" : all.events.front());
  player.end_offers();
  v.world().run_until([&] { return player.idle(); }, v.world().now_s() + max_end_s);
  // Fronts know of free pages with the decoders' next statements, a few heartbeats later. Pages
  // that are reserved after that are leaked.
  v.world().run_until(v.world().now_s() + 5 * on.settings.heartbeat_s);
  return player.result();
}

/// The controller's report, with `all` iterations and events, of which it keeps only some.
expected<training_report> report_of(actors::virtual_cluster& v, job_id job, training_report all) {
  const auto reply = v.ask(query_training{0, job});
  if (!reply.reply) return refuse(reply.reply.error());
  const auto* r = std::get_if<training_reply>(&reply.reply->first);
  if (!r) return training_report{};
  if (!r->why.text.empty()) return refuse(r->why);
  auto report = r->report;
  report.iterations = std::move(all.iterations);
  report.events = std::move(all.events);
  return report;
}

/// Bytes that the gateways have counted, once they have reported it.
std::vector<gateway_traffic> traffic_of(actors::virtual_cluster& v, const cluster& on) {
  std::vector<gateway_traffic> all;
  v.world().run_until(v.world().now_s() + 3 * on.settings.heartbeat_s);
  const auto answered = v.ask(query_jobs{});
  if (const auto* r = answered.reply ? std::get_if<query_reply>(&answered.reply->first) : nullptr)
    for (const auto& g : r->gateways) all.push_back(g.traffic);
  return all;
}

actors::virtual_cluster_options cluster_options_of(const training_simulation_options& options,
                                                   std::shared_ptr<const planners::policy> policy) {
  actors::virtual_cluster_options o;
  o.cluster = options.cluster;
  o.policy = std::move(policy);
  o.seed = options.seed;
  o.faults = options.faults;
  o.loses = options.loses;
  return o;
}

}  // namespace

expected<simulated_training> simulate_training(training_simulation_options options) {
  std::shared_ptr<const planners::policy> policy = planners::make_policy(options.policy);
  if (!policy) return refuse(reason::kind::unknown, fmt::format("no policy '{}'", options.policy));
  return simulate_training(std::move(options), std::move(policy));
}

expected<simulated_training> simulate_training(training_simulation_options options,
                                               std::shared_ptr<const planners::policy> policy) {
  const auto watched = actors::watched_policy::watch(std::move(policy));
  if (!watched) return refuse(watched.error());
  const auto& failure = (*watched)->failure();
  auto o = cluster_options_of(options, *watched);
  std::optional<job_ended> over;
  double begun_s = 0, planned_s = 0;
  std::uint64_t events = 0;
  // Collected from the journal: the controller's own history thins iterations.
  training_report all;
  o.on_entry = [&](const journal_entry& e) {
    if (const auto* ended = std::get_if<job_ended>(&e)) over = *ended;
    if (const auto* progress = std::get_if<training_progress>(&e))
      actors::append(all, progress->report);
    if (const auto* granted = std::get_if<lease_granted>(&e)) {
      // For people alone: a later attempt, which does less, only ends sooner than it says.
      begun_s = granted->at_s;
      planned_s = granted->iteration_s * static_cast<double>(options.job.iterations);
    }
  };
  std::optional<prefill_player> player;
  if (options.prefills) {
    o.cluster = std::make_shared<const troupe::cluster>(
        with_decoders(*options.cluster, options.job, *options.prefills));
    player.emplace(*options.prefills, options.job);
    // Every frame is offered to `loses` when it is sent: there the player observes the network.
    o.loses = [&, loses = options.loses](address from, address to, const frame& f) {
      player->watch(from, f);
      return loses && loses(from, to, f);
    };
  }
  const runtime::stopwatch watch;
  actors::virtual_cluster v{o};
  // The policy failed, or the controller rejected a job: neither ends by itself.
  const auto stopped = [&] { return over || failure || v.refusal(); };
  if (player)
    if (auto ok = start_decoders(v, *o.cluster, options, *player, stopped); !ok)
      return refuse(ok.error());
  v.submit({{v.world().now_s(), options.job}});
  const auto stopped_or_shown = [&] {
    constexpr std::uint64_t events_between = 1 << 16;  // a fraction of a second
    if (options.progress && ++events % events_between == 0 && planned_s > 0)
      options.progress(std::clamp((v.world().now_s() - begun_s) / planned_s, 0.0, 1.0));
    return stopped();
  };
  v.world().run_until(stopped_or_shown, options.limit_s);
  if (failure) return refuse(*failure);
  if (v.refusal()) return refuse(*v.refusal());
  if (!over) return has_not_ended(v, options);
  simulated_training result;
  if (player) {
    auto prefills = end_prefills(v, *o.cluster, all, *player);
    if (!prefills) return refuse(prefills.error());
    result.prefills = std::move(*prefills);
  }
  result.fingerprint = v.world().fingerprint();
  result.frames = v.world().count().delivered;
  result.wall_s = watch.s();
  if (over->final_state != job_state::finished)
    return refuse(reason::kind::infeasible, over->detail);
  auto report = report_of(v, over->job, std::move(all));
  if (!report) return refuse(report.error());
  result.report = std::move(*report);
  if (prices_traffic(*o.cluster)) result.traffic = traffic_of(v, *o.cluster);
  return result;
}

}  // namespace troupe::studies
