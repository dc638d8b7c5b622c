#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/cluster/local_cluster.hpp"
#include "cli/connection/controller_connection.hpp"
#include "cli/output/human.hpp"
#include "cli/output/output_directory.hpp"
#include "cli/output/progress.hpp"
#include "cli/reports/comparison.hpp"
#include "cli/verbs/studies/demo_parts.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "formats/traces/trace.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/stopwatch.hpp"
#include "web/dashboard/job_json.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

constexpr double ready_s = 60;      // timeout of the cluster's start
constexpr double jobs_end_s = 90;   // timeout of all jobs
constexpr double kill_after_s = 2;  // into the victim's run

/// A cluster of processes, six jobs, a node that dies; then a day of a real trace; then a training
/// over three datacenters, and a model that is served beside another one.
class demo_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("--out", out_directory_, "Output directory")->capture_default_str();
  }

  int run(output& out) override {
    const auto configs = formats::configs_directory();
    // An earlier demo's journal would bring its jobs back.
    const auto fresh = output_directory::claim(out_directory_);
    if (!fresh) return out.failure(fresh.error());
    if (auto ok = run_jobs(out, configs); !ok) return out.failure(ok.error());
    // The next parts measure times: the first cluster must not use cores any more.
    cluster_.reset();
    if (auto ok = replay_day(out, configs); !ok) return out.failure(ok.error());
    const auto training = demo_training(out, configs, out_directory_);
    if (!training) return out.failure(training.error());
    const auto serving = demo_serving(out, configs, out_directory_);
    if (!serving) return out.failure(serving.error());
    out.line(
        "\nFiles: {0}/training.html (one iteration of each schedule), {0}/philly-day/usage.html, "
        "{0}/philly-day/result.json,\n{0}/training-atlas.json (for Perfetto), {0}/logs/, "
        "{0}/cluster/output/",
        out_directory_);
    out.document({{"jobs", jobs_},
                  {"killed", victim_},
                  {"simulation", simulation_},
                  {"training", *training},
                  {"serving", *serving},
                  {"out", out_directory_}});
    return exit_done;
  }

 private:
  // -- a cluster of real processes
  // ---------------------------------------------------------------------

  expected<void> run_jobs(output& out, const fs::path& configs) {
    local_cluster_options o;
    o.emulated = true;
    o.cluster_file = (configs / "clusters" / "demo.yaml").string();
    o.state = (fs::path{out_directory_} / "cluster").string();
    auto cluster = local_cluster::start(o);
    if (!cluster) return refuse(cluster.error());
    cluster_ = std::move(*cluster);
    if (auto ok = cluster_->wait_until_ready(ready_s); !ok) return ok;
    out.line(
        "A cluster of three datacenters and five nodes: {} processes over ZeroMQ on this "
        "machine.\nIts GPUs are placeholders; the commands that run on them are real processes.\n",
        cluster_->names().size());
    client_.set_controller(cluster_->controller_address());
    for (const auto* name :
         {"count", "seven-billion", "hello", "out-of-memory", "reports-peak", "fails"})
      if (auto ok = submit(out, configs / "jobs" / (std::string{name} + ".yaml")); !ok) return ok;
    if (auto ok = watch(out); !ok) return ok;
    explain(out);
    return save_logs();
  }

  expected<void> submit(output& out, const fs::path& file) {
    auto job = formats::load_job(file);
    if (!job) return refuse(job.error());
    const auto number = client_.submit(*job);
    if (!number) return refuse(number.error());
    names_[*number] = job->name;
    print(out, *number,
          fmt::format("submitted: {}, batch {} (no GPU requested)", job->model.name,
                      job->global_batch));
    return {};
  }

  void print(output& out, job_id id, const std::string& what) const {
    out.line("{:5.1f} s  job {} {:<14} {}", since_.s(), id, names_.at(id), what);
    (void)flush_output();
  }

  /// Prints every state change of every job, and kills the node of the first one.
  expected<void> watch(output& out) {
    std::map<job_id, std::pair<job_state, std::uint32_t>> seen;
    const runtime::stopwatch waited;
    while (waited.s() < jobs_end_s) {
      const auto reply = client_.ask<query_reply>(query_jobs{0, 0});
      if (!reply) return refuse(reply.error());
      std::size_t ended = 0;
      for (const auto& j : reply->jobs) {
        ended += is_final(j.state) ? 1 : 0;
        // It lasts as long as the program's grace, and the next state shows more.
        if (j.state == job_state::stopping) continue;  // only a transition
        if (seen[j.job] != std::pair{j.state, j.progress.attempts} &&
            (j.progress.attempts > 0 || is_final(j.state)))
          print(out, j.job, event_of(j, reply->nodes));
        seen[j.job] = {j.state, j.progress.attempts};
      }
      // After two seconds, when the program has written something that its second attempt can
      // continue.
      kill_a_node(out, *reply);
      if (ended == names_.size()) {
        for (const auto& j : reply->jobs) jobs_.push_back(web::job_document(*reply, j));
        return check(*reply);
      }
      runtime::pause(0.1);
    }
    return refuse(reason::kind::unavailable, "the jobs did not end in time; see " + out_directory_);
  }

  /// Did each job end as expected?
  // The demo is a test as well: it fails if a job has not ended as its description promises.
  expected<void> check(const query_reply& reply) const {
    for (const auto& j : reply.jobs) {
      const auto due = j.name == "fails" ? job_state::failed : job_state::finished;
      if (j.state != due || (j.name == "count" && j.progress.attempts < 2))
        return refuse(reason::kind::invalid,
                      fmt::format("job {} ({}) has {} after {} attempts", j.job, j.name,
                                  to_string(j.state), j.progress.attempts));
    }
    return {};
  }

  static std::string event_of(const job_status& j, const std::vector<node_status>& nodes) {
    if (j.state == job_state::running)
      return fmt::format(
          "running on {} (data {} x tensor {}, predicted {} per GPU){}", where_text(j, nodes),
          j.how.data_parallel, j.how.tensor_parallel, size_text(j.predicted_bytes),
          j.progress.attempts > 1 ? fmt::format(", attempt {}", j.progress.attempts) : "");
    return fmt::format("{}{}{}", to_string(j.state), j.detail.empty() ? "" : ": ", j.detail);
  }

  void kill_a_node(output& out, const query_reply& reply) {
    const auto& j = reply.jobs.front();
    if (!victim_.empty() || j.state != job_state::running ||
        reply.now_s - j.started_s < kill_after_s)
      return;
    victim_ = reply.nodes[j.where.front().node].name;
    out.line("{:5.1f} s  SIGKILL to node {} (process {})", since_.s(), victim_,
             cluster_->id(victim_));
    cluster_->kill(victim_);
  }

  void explain(output& out) {
    out.line("\nWhy each job ran where it did, from `troupe explain JOB`:");
    for (const auto& [id, name] : names_) {
      const auto e = client_.ask<explanation>(explain_job{0, id});
      if (!e) continue;
      out.line("  job {} {}: {}", id, name, e->summary);
      const auto chosen = std::ranges::find(e->plans, true, &considered_plan::chosen);
      if (chosen != e->plans.end()) {
        const auto better = chosen - e->plans.begin();
        out.line(
            "    {}, {} ranked above it: {}", plan_text(chosen->what),
            better == 0 ? std::string{"none"} : counted(static_cast<std::uint64_t>(better), "plan"),
            chosen->verdict);
        if (better > 0) out.line("    {}: {}", plan_text(e->plans[0].what), e->plans[0].verdict);
        // The best plan was chosen: the second shows what it was preferred to.
        if (better == 0 && e->plans.size() > 1)
          out.line("    {}: {}", plan_text(e->plans[1].what), e->plans[1].verdict);
      }
      for (const auto& sentence : e->placement) out.line("    {}", sentence);
      for (const auto& m : e->memory) out.line("    {}", memory_text(m));
    }
  }

  static std::string plan_text(const plan& p) {
    return fmt::format("data {} x tensor {} ({}, {:.3g} samples/s per GPU)", p.data_parallel,
                       p.tensor_parallel, counted(p.gpus(), "GPU"), p.samples_per_s / p.gpus());
  }

  expected<void> save_logs() {
    const auto directory = fs::path{out_directory_} / "logs";
    fs::create_directories(directory);
    for (const auto& [id, name] : names_) {
      const auto chunk = client_.ask<log_chunk>(read_log{0, id, 0, 0, 0});
      if (!chunk) return refuse(chunk.error());
      const auto bytes = client_.raw().bytes();
      const std::string text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
      const auto file = directory / fmt::format("{}-{}.log", id, name);
      if (auto ok = formats::save_text(file, text.empty() ? chunk->why.text + "\n" : text); !ok)
        return ok;
    }
    return {};
  }

  // -- a day of a real trace in virtual time
  // -----------------------------------------------------------

  expected<void> replay_day(output& out, const fs::path& configs) {
    const auto c = formats::load_cluster(configs / "clusters" / "frenzy-testbed.yaml");
    if (!c) return refuse(c.error());
    auto workload =
        load_workload((configs / "traces" / "philly-day.csv").string(), "frenzy", 1, *c);
    if (!workload) return refuse(workload.error());
    comparison day{*c, std::move(*workload), "frenzy", 1, {}};
    out.line(
        "\nOne day of Microsoft's Philly trace ({} jobs) on the Frenzy paper's testbed, simulated "
        "in virtual time:\n",
        day.workload.size());
    const auto policies = find_policies({"troupe", "frenzy", "opportunistic", "fcfs", "sia"});
    if (!policies) return refuse(policies.error());
    if (auto ok = replay(day, *policies, {}); !ok) return ok;
    // The table that compares decisions alone: all policies with the same plans.
    if (auto ok = replay_with_pipelines(day, *policies, {}); !ok) return ok;
    out.text(table_of(day));
    simulation_ = document_of(day);
    return save(day, (fs::path{out_directory_} / "philly-day").string());
  }

  std::string out_directory_ = "out/demo", victim_;
  runtime::stopwatch since_;
  std::unique_ptr<local_cluster> cluster_;
  remote client_;
  std::map<job_id, std::string> names_;
  json jobs_ = json::array(), simulation_;
};

}  // namespace

std::unique_ptr<verb> make_demo() {
  return std::make_unique<demo_verb>();
}

}  // namespace troupe::cli
