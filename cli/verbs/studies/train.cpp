#include <algorithm>
#include <filesystem>
#include <optional>

#include "actors/training/trainer/timeline.hpp"
#include "cli/cluster/local_cluster.hpp"
#include "cli/connection/controller_connection.hpp"
#include "cli/options/policy_option.hpp"
#include "cli/options/prefill_options.hpp"
#include "cli/options/profile_option.hpp"
#include "cli/output/human.hpp"
#include "cli/output/interrupt.hpp"
#include "cli/output/output_directory.hpp"
#include "cli/output/output_file.hpp"
#include "cli/output/progress.hpp"
#include "cli/programs/described_program.hpp"
#include "cli/reports/follow_training.hpp"
#include "cli/reports/iteration_picture.hpp"
#include "cli/reports/training_figures.hpp"
#include "cli/reports/training_result.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "gpu/model/checkpoint.hpp"
#include "messages/base/absolute_path.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/schedules.hpp"
#include "messages/domain/work_kind.hpp"
#include "runtime/host/realtime.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/host/wait.hpp"
#include "studies/merged_training.hpp"
#include "studies/prefill_run.hpp"
#include "studies/training_simulation.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// Runs one training in one of three worlds (virtual time, processes on this machine, the running
/// cluster), under one schedule or two, and reports it.
class train_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", files_,
                   "Job file with `train:` or `slots:`; several with --merge, in the virtual world")
        ->required();
    app.add_option("--merge", merge_,
                   "Train several jobs as one: adapters: one base, an adapter for each job; none")
        ->check(CLI::IsMember({"adapters", "none"}))
        ->capture_default_str();
    app.add_option("--cluster", cluster_, "Cluster file to simulate; a slots job needs none");
    app.add_option("--world", world_,
                   "virtual: simulated, nothing is computed; local: processes on this machine; "
                   "cluster: the running cluster of --state or --controller (default: virtual "
                   "with --cluster and for a slots job, else local)")
        ->check(CLI::IsMember({"virtual", "local", "cluster"}));
    app.add_option("--schedule", schedule_, "Pipeline schedule (default: the job's)")
        ->check(
            CLI::IsMember(std::vector<std::string>{schedule_names.begin(), schedule_names.end()}));
    app.add_option("--device", device_, "Device (default: the job's, or the world's)")
        ->check(CLI::IsMember(device_names(&device_facts::can_train)));
    app.add_option("--iterations", iterations_, "Iterations, instead of the job's");
    app.add_option("--timeline", timeline_, "Write a timeline of the last iteration, for Perfetto");
    app.add_option("--picture", picture_,
                   "Write an HTML page of the last iteration, one row per GPU");
    app.add_option("--against", against_, "Run under this schedule as well, and show both")
        ->check(
            CLI::IsMember(std::vector<std::string>{schedule_names.begin(), schedule_names.end()}))
        ->needs("--picture");
    app.add_option("--profile", profile_,
                   "Measured times to plan and simulate with: a file of `troupe profile`, or the "
                   "--json output of an earlier run");
    app.add_option("--policy", policy_, "Scheduling policy: " + known_policies())
        ->capture_default_str();
    add_policy_option(app, settings_);
    app.add_option("--seed", seed_, "Random seed of the virtual world")->capture_default_str();
    app.add_option("--faults", faults_, "Fault file, for the virtual world");
    prefill_.options(app);
    remote_.options(app);
  }

  int run(output& out) override {
    auto job = load(out);
    if (!job) return out.bad(job.error());
    if (world_.empty()) world_ = usual_world(*job);
    if (members_.size() > 1 && world_ != "virtual")
      return out.bad("several trainings are merged in the virtual world only");
    if (auto ok = adjust(*job); !ok) return out.bad(ok.error());
    if (prefill_.given()) {
      auto study = prefill_.apply(*job, seed_, world_ == "local");
      if (!study) return out.bad(study.error());
      study_ = std::move(*study);
    }
    const auto policy = find_policy(policy_, {settings_, cluster_, {}, {}});
    if (!policy) return out.bad(policy.error());
    decides_ = *policy;
    // Before hours of training.
    for (const auto& file : {picture_, timeline_})
      if (!file.empty())
        if (auto ok = can_write(file); !ok) return out.bad(ok.error());
    // A simulation has nothing to save, so Ctrl-C may end it as usual.
    if (world_ != "virtual") stop_.emplace();
    announce(*job, out);
    std::vector<training_result> results;
    for (const auto& schedule : schedules(*job)) {
      auto& r = results.emplace_back();
      r.world = world_;
      if (members_.size() > 1) r.members = members_;
      r.job = *job;
      r.job.train->schedule = schedule;
      if (!picture_.empty() && (timeline_.empty() || results.size() > 1))
        // A picture is drawn from a timeline's file, and two runs need two; the user's own name is
        // for the first.
        r.job.train->timeline = own_timelines_.file(fmt::format("run{}.json", results.size()));
      const auto ok = train(r, out);
      if (!ok) return bad_file_ ? out.bad(ok.error()) : out.failure(ok.error());
    }
    // A picture that fails does not hide the training's result, which is printed first.
    const auto drawn = draw(results);
    auto d = document_of(results.front());
    if (results.size() > 1) d["against"] = document_of(results.back());
    if (!picture_.empty()) d["picture"] = drawn ? json(picture_) : json();
    out.document(d);
    for (const auto& r : results) out.text(text_of(r));
    if (world_ != "virtual") point_to_weights(results.back(), out);
    if (!timeline_.empty()) {
      // The training has not failed by it: it is one of its events.
      const auto missing = actors::unwritten_timeline(results.front().job.train->timeline);
      if (std::ranges::find(results.front().report.events, missing) !=
          results.front().report.events.end())
        return out.failure(missing);
      out.line("{}: open it in Perfetto (ui.perfetto.dev)", timeline_);
    }
    if (!drawn) return out.failure(drawn.error());
    if (!picture_.empty()) out.line("{}: open it in a browser", picture_);
    return exit_done;
  }

 private:
  /// The job, or the one that stands for several.
  expected<job_spec> load(const output& out) {
    for (const auto& file : files_) {
      auto job = load_job(out, file);
      if (!job) return job;
      if (!facts_of(*job).has_stages)
        return refuse(reason::kind::invalid, "{}: has neither `train:` nor `slots:`", file);
      members_.push_back(std::move(*job));
    }
    if (members_.size() == 1) return members_.front();
    if (merge_ == "none")
      return refuse(reason::kind::invalid,
                    "found {} job files, expected one; --merge adapters trains several as one",
                    files_.size());
    return studies::merge_adapters(members_);
  }

  /// Where a job is trained that names no world: here, unless it or an option is of a simulation.
  std::string usual_world(const job_spec& job) const {
    const bool simulated = job.slots || !cluster_.empty() || !faults_.empty() ||
                           is_simulated(device_.empty() ? job.train->device : device_);
    return simulated ? "virtual" : "local";
  }

  /// Announces the training, and the cost of an interruption.
  void announce(const job_spec& job, const output& out) const {
    if (world_ == "virtual") {
      out.note("troupe: simulates {}{}; nothing is computed", job.name,
               cluster_.empty() ? "" : " on " + cluster_);
      return;
    }
    out.note(
        "troupe: trains {} {}", job.name,
        world_ == "local" ? "on this machine, in processes of its own" : "on the running cluster");
    if (job.train->checkpoint.empty() && !is_simulated(job.train->device))
      out.note(
          "troupe: the job has no `checkpoint:`: its weights are not saved, and an interrupted "
          "training starts over");
  }

  void point_to_weights(const training_result& r, const output& out) const {
    const auto& saved = r.job.train->checkpoint;
    if (saved.empty() || r.report.saved == 0) return;
    out.line("weights of iteration {} in {}; `troupe export {} FOLDER` makes a model folder",
             grouped(r.report.saved), saved, shell_word(saved));
  }

  /// Options that override the job's file.
  expected<void> adjust(job_spec& job) {
    // A slots job has no `train:` of its own.
    if (!job.train) job.train.emplace();
    auto& t = *job.train;
    if (job.slots && (world_ != "virtual" || (!device_.empty() && !is_simulated(device_))))
      return refuse(
          reason::kind::invalid,
          "a slots job computes nothing: it runs only in the virtual world, on simulated devices");
    if (world_ == "virtual" && !device_.empty() && !is_simulated(device_))
      return refuse(reason::kind::invalid,
                    "the virtual world has only simulated devices; use --world local to compute");
    if (prefill_.given() && world_ == "cluster")
      return refuse(reason::kind::invalid,
                    "--prefill offers a trace in the worlds virtual and local; on a cluster, use "
                    "`pipeline: {bubbles: ...}` in the training's job file, and a job with "
                    "`serve:`");
    if (!schedule_.empty()) t.schedule = schedule_;
    // A job's device is for real machines; the virtual world simulates each of them.
    t.device = world_ == "virtual" ? name_of(device_kind::sim)
               : !device_.empty()  ? device_
                                   : t.device;
    if (iterations_ > 0) job.iterations = iterations_;
    if (!timeline_.empty()) {
      auto whole = absolute_path(timeline_);
      if (!whole) return refuse(whole.error());
      t.timeline = std::move(*whole);
    }
    return profile_.empty() ? expected<void>{} : read_profile(job);
  }

  expected<void> read_profile(job_spec& job) const {
    // A run's own document has costs per stage, which fit this split only; a profile fits any.
    if (is_document(profile_)) {
      auto costs = load_costs(profile_);
      if (!costs) return refuse(costs.error());
      job.train->costs = std::move(*costs);
      return {};
    }
    auto profile = load_profile_for(profile_, job);
    if (!profile) return refuse(profile.error());
    job.train->profile = {std::move(*profile)};
    return {};
  }

  /// Jobs to run one after the other: the given one, and those to compare it with.
  std::vector<std::string> schedules(const job_spec& job) const {
    std::vector<std::string> all{job.train->schedule};
    if (!against_.empty()) all.push_back(against_);
    return all;
  }

  expected<void> train(training_result& r, output& out) {
    return world_ == "virtual" ? in_virtual_time(r, out)
           : world_ == "local" ? on_this_machine(r, out)
                               : on_the_cluster(r, out);
  }

  expected<void> draw(const std::vector<training_result>& results) const {
    if (picture_.empty()) return {};
    std::vector<std::string> files;
    for (const auto& r : results) files.push_back(r.job.train->timeline);
    return draw_iterations(files, picture_);
  }

  template <class T>
  expected<void> refused(const expected<T>& file) {
    bad_file_ = true;
    return refuse(file.error());
  }

  expected<void> in_virtual_time(training_result& r, output&) {
    studies::training_simulation_options o;
    if (!cluster_.empty()) {
      auto c = formats::load_cluster(cluster_);
      if (!c) return refused(c);
      o.cluster = std::make_shared<const troupe::cluster>(std::move(*c));
    } else if (r.job.slots) {
      o.cluster = std::make_shared<const troupe::cluster>(studies::cluster_of_slots(r.job));
    } else {
      bad_file_ = true;
      return refuse(reason::kind::invalid,
                    "a simulated training of a model needs --cluster; `--world local` trains on "
                    "this machine");
    }
    if (!faults_.empty()) {
      auto loaded = formats::load_faults(faults_);
      if (!loaded) return refused(loaded);
      if (auto ok = formats::check_faults(*loaded, *o.cluster, faults_); !ok) return refused(ok);
      o.faults = std::move(*loaded);
    }
    o.job = r.job;
    o.seed = seed_;
    work_progress progress;
    o.progress = [&](double share) {
      progress.show(fmt::format("{}: {:.0f} % simulated", r.job.name, 100 * share), share);
    };
    if (study_) {
      auto alone = o;
      // The same training without guests: the cost of lending is the difference.
      alone.job.pipeline.bubbles.reset();
      alone.job.train->timeline.clear();
      const auto without = studies::simulate_training(std::move(alone), decides_);
      if (!without) return refuse(without.error());
      r.prefills.emplace().iteration_s_without = mean_iteration_s(without->report);
      r.prefills->training_without = studies::shares_of(without->report).training;
      r.prefills->study = *study_;
      o.prefills = study_;
    }
    auto done = studies::simulate_training(std::move(o), decides_);
    progress.clear();
    if (!done) {
      bad_file_ = is_bad_file(done.error());  // a plug-in failed
      return refuse(done.error());
    }
    r.report = std::move(done->report);
    r.fingerprint = done->fingerprint;
    r.wall_s = done->wall_s;
    if (done->prefills) r.prefills->done = std::move(*done->prefills);
    return {};
  }

  expected<void> on_this_machine(training_result& r, output& out) {
    local_cluster_options o;
    const auto* usual = study_ ? "laptop-prefill.yaml" : "laptop.yaml";
    o.cluster_file =
        cluster_.empty() ? (formats::configs_directory() / "clusters" / usual).string() : cluster_;
    // Always the same directory: logs of the last run are easy to find, and old ones do not pile
    // up.
    o.state = "out/train";
    o.policy = policy_;
    o.policy_settings = settings_;
    std::shared_ptr<const troupe::cluster> c;
    studies::study_hosts hosts;
    if (study_) {
      auto loaded = formats::load_cluster(o.cluster_file);
      if (!loaded) return refused(loaded);
      c = std::make_shared<const troupe::cluster>(std::move(*loaded));
      auto divided = studies::hosts_of_study(*c, r.job, *study_);
      if (!divided) return refuse(divided.error());
      hosts = std::move(*divided);
      o.fronts = false;
      // Prompts take what the training leaves of the processors, as they do of devices.
      o.realtime = hosts.training;
    }
    o.emulated = !r.job.train || r.job.train->device != name_of(device_kind::cuda);
    const auto fresh = output_directory::claim(o.state);
    if (!fresh) return refuse(fresh.error());
    auto cluster = local_cluster::start(o);
    if (!cluster) return refused(cluster);
    if (auto ok = (*cluster)->wait_until_ready(60); !ok) return ok;
    remote_.set_controller((*cluster)->controller_address());
    if (!study_) {
      auto trained = on_the_cluster(r, out);
      if (!trained && stop_->arrived()) end_in_order(**cluster, r.job, out);
      return trained;
    }
    auto prefills = start_prefills(**cluster, c, o.state, r.job, hosts.decoders);
    if (!prefills) return refuse(prefills.error());
    if (r.job.limits.required_gpu_type.empty()) r.job.limits.required_gpu_type = hosts.gpu_type;
    if (auto ok = on_the_cluster(r, out, prefills->get()); !ok) {
      if (stop_->arrived()) end_in_order(**cluster, r.job, out);
      return ok;
    }
    constexpr double max_end_s = 10;
    auto played = (*prefills)->end(max_end_s);
    auto& result = r.prefills.emplace();
    result.study = *study_;
    result.done = std::move(played.done);
    result.paired = studies::compare_windows(r.report, played.windows);
    result.realtime = std::ranges::all_of(hosts.training, [&](const std::string& host) {
      return runtime::has_realtime_priority((*cluster)->id(host));
    });
    return {};
  }

  /// A stop leaves the training its grace, in which it saves; a second signal does not.
  static void end_in_order(local_cluster& cluster, const job_spec& job, const output& out) {
    interrupt again;
    cluster.end([&again] { return again.arrived(); },
                [&out](const std::string& sentence) {
                  out.note("troupe: {}; a second signal, or Ctrl-C, does not wait", sentence);
                });
    if (job.train->checkpoint.empty()) return;
    if (const auto saved = gpu::newest_checkpoint(job.train->checkpoint))
      out.note("troupe: iteration {} is saved in {}; the same command goes on there",
               saved->iteration, job.train->checkpoint);
  }

  /// Starts the study on this machine's processes, which run without fronts: those are in this
  /// process. Submits the decoders, and waits until they are ready.
  expected<std::unique_ptr<studies::prefill_run>> start_prefills(
      const local_cluster& cluster, const std::shared_ptr<const troupe::cluster>& c,
      const std::string& state, const job_spec& training, const std::vector<job_spec>& decoders) {
    std::vector<actors::real_host_options> fronts;
    for (const auto& f : c->fronts) {
      auto& o = fronts.emplace_back();
      o.cluster = c;
      o.upstream = cluster.gateway_address(c->datacenters[f.datacenter].name);
      o.state = (fs::path{state} / f.name).string();
    }
    // Before the decoders: a front that does not start leaves no job behind.
    auto run = studies::prefill_run::start(*study_, training, std::move(fronts));
    if (!run) return run;
    for (const auto& job : decoders)
      if (const auto accepted = remote_.submit(job); !accepted) return refuse(accepted.error());
    constexpr double max_startup_s = 60;
    runtime::wait_until([&] { return (*run)->ready() || stop_->arrived(); }, max_startup_s, 0.05);
    if (!(*run)->ready())
      return refuse(reason::kind::unavailable, "the decoders are not ready; logs are in " + state);
    return run;
  }

  expected<void> on_the_cluster(training_result& r, output& out,
                                studies::prefill_run* prefills = nullptr) {
    const runtime::stopwatch watch;
    progress_line line;
    progress_log log;
    job_id job = 0;
    auto report = follow_training(
        remote_, r.job,
        [&](const job_status& now, const training_report& so_far) {
          job = now.job;
          r.predicted_bytes = now.predicted_bytes;
          line.show(progress_text(now));
          // A line that changes on a terminal; a few lines in a log file.
          if (const auto text = progress_text(now); log.is_due(text, watch.s()))
            out.note("{}: {}", now.name, text);
          if (prefills) prefills->look(so_far);
        },
        &*stop_);
    line.clear();
    // Only the wait is interrupted there; in the other worlds the training ends with this process.
    if (!report && stop_->arrived() && world_ == "cluster" && job != 0)
      out.note("troupe: job {0} continues on the cluster; `troupe cancel {0}` stops it", job);
    if (!report) return refuse(report.error());
    r.report = std::move(*report);
    r.wall_s = watch.s();
    return {};
  }

  std::vector<std::string> files_, settings_;
  std::vector<job_spec> members_;  // one for each file
  std::string merge_ = "none", cluster_, world_, schedule_, device_, timeline_, picture_, against_,
              profile_, faults_, policy_ = default_policy;
  std::uint64_t iterations_ = 0, seed_ = 1;
  std::shared_ptr<const planners::policy> decides_;  // what policy_ names
  bool bad_file_ = false;
  std::optional<interrupt> stop_;
  prefill_options prefill_;
  std::optional<studies::prefill_study> study_;  // if --prefill is given
  temporary_directory own_timelines_;            // of timelines that only the picture needs
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_train() {
  return std::make_unique<train_verb>();
}

}  // namespace troupe::cli
