#include "cli/reports/comparison.hpp"

#include <filesystem>

#include "cli/common/human.hpp"
#include "cli/common/table.hpp"
#include "cli/reports/usage_picture.hpp"
#include "formats/traces/trace.hpp"
#include "formats/traces/workload.hpp"
#include "messages/time.hpp"
#include "planners/baselines/adaptive_plan.hpp"
#include "planners/core/trace_duration.hpp"
#include "planners/crius/crius.hpp"

namespace troupe::cli {

namespace {

using actors::policy_result;

/// Work that was finished, in seconds of what the trace's users asked for, a second: how many jobs
/// ran at their own speed at a time.
double normalized_throughput(const comparison& c, const policy_result& r) {
  double work_s = 0;
  auto at = c.workload.begin();
  for (const auto& [id, j] : r.record->jobs()) {
    // Jobs are numbered in the order of their arrival.
    if (at == c.workload.end()) break;
    const auto& spec = (at++)->spec;
    if (j.state != job_state::finished) continue;
    const double each_s = planners::reference_iteration_s(c.on, spec, spec.gpus);
    if (each_s < never) work_s += each_s * static_cast<double>(spec.iterations);
  }
  return r.makespan_s > 0 ? work_s / r.makespan_s : 0;
}

json row_of(const comparison& c, const policy_result& r) {
  return {{"policy", r.policy},
          {"finished", r.finished},
          {"failed", r.failed},
          {"average_jct_s", r.average_jct_s},
          {"p50_jct_s", r.p50_jct_s},
          {"p99_jct_s", r.p99_jct_s},
          {"average_queue_s", r.average_queue_s},
          {"makespan_s", r.makespan_s},
          {"average_throughput", r.average_throughput},
          {"gpu_utilization", r.gpu_utilization},
          {"restarts_per_job", r.restarts_per_job},
          {"oom_failures", r.oom_failures},
          {"cluster_throughput_avg", r.cluster_throughput_avg},
          {"cluster_throughput_peak", r.cluster_throughput_peak},
          {"normalized_throughput_avg", normalized_throughput(c, r)},
          {"deadline_ratio", r.with_deadline > 0 ? json(static_cast<double>(r.met_deadline) /
                                                        static_cast<double>(r.with_deadline))
                                                 : json()},
          {"dropped", r.dropped},
          {"moves", r.moves},
          {"scale_ups", r.scale_ups},
          {"scale_downs", r.scale_downs},
          {"suspended", r.suspended},
          {"lost_iterations", r.lost_iterations},
          {"decision_us",
           {{"mean", r.decision_mean_us}, {"p99", r.decision_p99_us}, {"max", r.decision_max_us}}},
          {"fingerprint", fmt::format("{:016x}", r.fingerprint)},
          {"wall_s", r.wall_s}};
}

std::string jobs_csv(const cluster& c, const policy_result& r) {
  std::string text =
      "job,name,state,submit_s,start_s,end_s,held_s,gpu_seconds,attempts,out_of_memory,data_"
      "parallel,"
      "tensor_parallel,nodes\n";
  for (const auto& [id, j] : r.record->jobs()) {
    std::string nodes;
    for (const auto n : j.nodes) nodes += (nodes.empty() ? "" : " ") + c.nodes[n].name;
    text += fmt::format("{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{},{},{},{},{}\n", j.job,
                        j.name, to_string(j.state), j.submitted_s, j.started_s, j.ended_s, j.held_s,
                        j.gpu_seconds, j.attempts, j.out_of_memory, j.how.data_parallel,
                        j.how.tensor_parallel, nodes);
  }
  return text;
}

std::string usage_csv(const policy_result& r) {
  std::string text = "at_s,gpus_held,jobs_waiting\n";
  for (const auto& p : r.record->usage())
    text += fmt::format("{:.3f},{},{}\n", p.at_s, p.gpus_held, p.jobs_waiting);
  return text;
}

void show_progress(std::string_view policy, std::size_t ended, std::size_t all, double at_s) {
  fmt::print(stderr, "\r\033[K{}: {} of {} jobs ended, day {:.1f}", policy, ended, all,
             at_s / 86400);
  std::fflush(stderr);
}

}  // namespace

expected<void> replay(comparison& c, const policy_list& policies, const fault_plan& faults) {
  for (const auto& p : policies) {
    actors::simulation_options o{std::make_shared<const cluster>(c.on), {}, c.seed, faults, {}};
    if (on_terminal())
      o.progress = [&p](std::size_t ended, std::size_t all, double at_s) {
        show_progress(p->name(), ended, all, at_s);
      };
    auto r = actors::simulate(o, c.workload, p);
    if (on_terminal()) fmt::print(stderr, "\r\033[K");
    if (!r) return refuse(r.error());
    c.results.push_back(std::move(*r));
  }
  return {};
}

json document_of(const comparison& c) {
  json document{{"cluster", c.on.name},
                {"jobs", c.workload.size()},
                {"workload", c.workload_name},
                {"seed", c.seed},
                {"policies", json::array()}};
  for (const auto& r : c.results) document["policies"].push_back(row_of(c, r));
  return document;
}

std::string table_of(const comparison& c) {
  table t{{"policy", "finished", "failed", "avg JCT", "p50", "p99", "queued", "makespan",
           "samples/s", "GPU use", "restarts", "OOM", "decision us", "fingerprint", "wall"}};
  for (const auto& r : c.results)
    t.row({r.policy, fmt::to_string(r.finished), fmt::to_string(r.failed),
           duration_text(r.average_jct_s), duration_text(r.p50_jct_s), duration_text(r.p99_jct_s),
           duration_text(r.average_queue_s), duration_text(r.makespan_s),
           fmt::format("{:.1f}", r.average_throughput),
           fmt::format("{:.0f} %", 100 * r.gpu_utilization),
           fmt::format("{:.2f}", r.restarts_per_job), fmt::to_string(r.oom_failures),
           fmt::format("{:.1f}", r.decision_mean_us), fmt::format("{:016x}", r.fingerprint),
           duration_text(r.wall_s)});
  return t.text(terminal_columns());
}

expected<void> save(const comparison& c, const std::string& directory) {
  const std::filesystem::path dir{directory};
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  if (failed)
    return refuse(reason::kind::invalid,
                  fmt::format("{}: cannot be created: {}", directory, failed.message()));
  auto ok =
      formats::save_text(dir / "result.json",
                         document_of(c).dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  if (ok) ok = formats::save_text(dir / "usage.html", usage_picture(c.on, c.results));
  for (const auto& r : c.results) {
    if (ok) ok = formats::save_text(dir / fmt::format("jobs-{}.csv", r.policy), jobs_csv(c.on, r));
    if (ok) ok = formats::save_text(dir / fmt::format("usage-{}.csv", r.policy), usage_csv(r));
  }
  return ok;
}

std::shared_ptr<const planners::policy> as_simulated(std::shared_ptr<const planners::policy> p,
                                                     std::string_view workload,
                                                     std::string_view parallelism,
                                                     std::uint32_t search_depth) {
  if (auto crius = planners::crius_variant(p->name())) {
    crius->search_depth = search_depth;
    return planners::make_crius(*crius);
  }
  if (p->name() == "troupe") return p;
  const bool adaptive =
      parallelism.empty() ? workload.starts_with("crius") : parallelism == "adaptive";
  return adaptive ? planners::with_adaptive_parallelism(std::move(p)) : p;
}

expected<std::vector<arrival>> workload_of(std::span<const formats::trace_row> rows,
                                           std::string_view workload, std::uint64_t seed,
                                           const cluster& c) {
  return formats::assign(rows, workload, seed, c, [&](const job_spec& job, std::uint32_t gpus) {
    return planners::reference_iteration_s(c, job, gpus);
  });
}

expected<std::vector<arrival>> load_workload(const std::string& trace, const std::string& workload,
                                             std::uint64_t seed, const cluster& c) {
  const auto rows = formats::load_trace(trace);
  if (!rows) return refuse(rows.error());
  return workload_of(*rows, workload, seed, c);
}

}  // namespace troupe::cli
