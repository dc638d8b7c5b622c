#include <filesystem>

#include "actors/simulation.hpp"
#include "cli/table.hpp"
#include "cli/usage_picture.hpp"
#include "cli/verb.hpp"
#include "configs/load.hpp"
#include "configs/trace.hpp"
#include "configs/workload.hpp"
#include "planners/reference_time.hpp"

namespace troupe::cli {

namespace {

using actors::policy_result;

json row_of(const policy_result& r) {
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
          {"decision_us", {{"mean", r.decision_mean_us}, {"p99", r.decision_p99_us}, {"max", r.decision_max_us}}},
          {"fingerprint", fmt::format("{:016x}", r.fingerprint)},
          {"wall_s", r.wall_s}};
}

std::string table_of(const std::vector<policy_result>& results) {
  table t{{"policy", "finished", "failed", "avg JCT s", "p50", "p99", "queued s", "makespan s", "samples/s", "GPU use",
           "restarts", "OOM", "decision us", "fingerprint", "wall s"}};
  for (const auto& r : results)
    t.row({r.policy, fmt::to_string(r.finished), fmt::to_string(r.failed), fmt::format("{:.0f}", r.average_jct_s),
           fmt::format("{:.0f}", r.p50_jct_s), fmt::format("{:.0f}", r.p99_jct_s), fmt::format("{:.0f}", r.average_queue_s),
           fmt::format("{:.0f}", r.makespan_s), fmt::format("{:.1f}", r.average_throughput),
           fmt::format("{:.0f} %", 100 * r.gpu_utilization), fmt::format("{:.2f}", r.restarts_per_job),
           fmt::to_string(r.oom_failures), fmt::format("{:.1f}", r.decision_mean_us), fmt::format("{:016x}", r.fingerprint),
           fmt::format("{:.1f}", r.wall_s)});
  return t.text();
}

std::string jobs_csv(const cluster& c, const policy_result& r) {
  std::string text =
      "job,name,state,submit_s,start_s,end_s,held_s,gpu_seconds,attempts,out_of_memory,data_parallel,"
      "tensor_parallel,nodes\n";
  for (const auto& [id, j] : r.record->jobs()) {
    std::string nodes;
    for (const auto n : j.nodes) nodes += (nodes.empty() ? "" : " ") + c.nodes[n].name;
    text += fmt::format("{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{},{},{},{},{}\n", j.job, j.name,
                        to_string(j.state), j.submitted_s, j.started_s, j.ended_s, j.held_s,
                        j.gpu_seconds, j.attempts, j.out_of_memory, j.how.data_parallel,
                        j.how.tensor_parallel, nodes);
  }
  return text;
}

std::string usage_csv(const policy_result& r) {
  std::string text = "at_s,gpus_held,jobs_waiting\n";
  for (const auto& p : r.record->usage()) text += fmt::format("{:.3f},{},{}\n", p.at_s, p.gpus_held, p.jobs_waiting);
  return text;
}

class simulate_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("--cluster", cluster_, "A cluster's file")->required();
    app.add_option("--trace", trace_, "A trace's CSV (troupe trace import makes one)")->required();
    app.add_option("--policy", policies_, "Who decides, one after another")->delimiter(',')->capture_default_str();
    app.add_option("--workload", workload_, "Rule that gives a trace's jobs their models: frenzy, crius, titan")
        ->capture_default_str();
    app.add_option("--seed", seed_, "Everything random follows from it")->capture_default_str();
    app.add_option("--faults", faults_, "What goes wrong: a fault file");
    app.add_option("--out", out_, "Directory for result.json, jobs and usage as CSV, and usage.html");
  }

  int run(output& out) override {
    for (const auto& p : policies_)
      if (!planners::make_policy(p)) return out.bad(fmt::format("there is no policy '{}'", p));
    const auto c = configs::load_cluster(cluster_);
    if (!c) return out.bad(c.error());
    const auto rows = configs::load_trace(trace_);
    if (!rows) return out.bad(rows.error());
    fault_plan faults;
    if (!faults_.empty()) {
      auto loaded = configs::load_faults(faults_);
      if (!loaded) return out.bad(loaded.error());
      if (auto ok = configs::check_faults(*loaded, *c, faults_); !ok) return out.bad(ok.error());
      faults = std::move(*loaded);
    }
    const auto workload = configs::assign(*rows, workload_, seed_, *c, [&](const job_spec& job, std::uint32_t gpus) {
      return planners::reference_iteration_s(*c, job, gpus);
    });
    if (!workload) return out.bad(workload.error());
    return simulate_all(out, *c, faults, *workload);
  }

 private:
  int simulate_all(output& out, const cluster& c, const fault_plan& faults, const std::vector<arrival>& workload) {
    std::vector<policy_result> results;
    for (const auto& p : policies_) {
      actors::simulation_options o{std::make_shared<const cluster>(c), p, seed_, faults, {}};
      if (on_terminal()) o.progress = [&p](std::size_t ended, std::size_t all, double at_s) { show_progress(p, ended, all, at_s); };
      auto r = actors::simulate(o, workload);
      if (on_terminal()) fmt::print(stderr, "\r\033[K");
      if (!r) return out.no(r.error().text);
      results.push_back(std::move(*r));
    }
    json document{{"cluster", c.name}, {"jobs", workload.size()}, {"workload", workload_}, {"seed", seed_}, {"policies", json::array()}};
    for (const auto& r : results) document["policies"].push_back(row_of(r));
    if (auto ok = save(c, results, document); !ok) return out.bad(ok.error());
    out.document(document);
    out.line("{} jobs on {} in virtual time (a simulation), workload {}, seed {}\n", workload.size(), c.name, workload_, seed_);
    out.text(table_of(results));
    if (!out_.empty()) out.line("\nFiles: {0}/result.json, {0}/usage.html, {0}/jobs-POLICY.csv, {0}/usage-POLICY.csv", out_);
    return exit_done;
  }

  static void show_progress(const std::string& policy, std::size_t ended, std::size_t all, double at_s) {
    fmt::print(stderr, "\r\033[K{}: {} of {} jobs ended, day {:.1f}", policy, ended, all, at_s / 86400);
    std::fflush(stderr);
  }

  expected<void> save(const cluster& c, const std::vector<policy_result>& results, const json& document) const {
    if (out_.empty()) return {};
    const std::filesystem::path dir{out_};
    std::error_code failed;
    std::filesystem::create_directories(dir, failed);
    if (failed) return refuse(reason::kind::invalid, fmt::format("{}: cannot be made: {}", out_, failed.message()));
    auto ok = configs::save_text(dir / "result.json", document.dump(2) + "\n");
    if (ok) ok = configs::save_text(dir / "usage.html", usage_picture(c, results));
    for (const auto& r : results) {
      if (ok) ok = configs::save_text(dir / fmt::format("jobs-{}.csv", r.policy), jobs_csv(c, r));
      if (ok) ok = configs::save_text(dir / fmt::format("usage-{}.csv", r.policy), usage_csv(r));
    }
    return ok;
  }

  std::string cluster_, trace_, workload_ = "frenzy", faults_, out_;
  std::vector<std::string> policies_{"frenzy"};
  std::uint64_t seed_ = 1;
};

}  // namespace

std::unique_ptr<verb> make_simulate() {
  return std::make_unique<simulate_verb>();
}

}  // namespace troupe::cli
