#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "cli/options/lookup_option.hpp"
#include "cli/options/policy_option.hpp"
#include "cli/output/output_file.hpp"
#include "cli/reports/seed_study.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::cli {

namespace {

/// Replays a trace in virtual time, with all actors and messages of a cluster, once per policy and
/// seed. Equal arguments give equal results.
class simulate_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("--cluster", cluster_, "Cluster file")->required();
    auto* work = app.add_option_group("work");
    work->add_option("--trace", trace_, "Trace CSV (troupe trace import creates one)");
    work->add_option("--job", jobs_,
                     "In place of a trace: a job file, submitted at once, or with FILE@SECONDS "
                     "later; may be given several times. Programs are simulated: elastic ones at "
                     "the speeds and costs of their files (status JOB --job-file), others at the "
                     "cost model's");
    work->require_option(1);
    app.add_option("--policy", policies_, "Policies to compare: " + known_policies())
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--workload", workload_,
                   "Rule that assigns models to the trace's jobs: frenzy, crius, crius-deadlines, "
                   "titan; or as-is: each takes its duration on its own number and type of GPUs "
                   "(default: as-is for a trace of durations without models, unless "
                   "--parallelism asks for plans; else frenzy)");
    app.add_option("--throughputs", throughputs_,
                   "Measured speeds of the trace's models, instead of a workload: CSV "
                   "(model,gpu_type,gpus,samples_per_s), or Gavel's JSON")
        ->excludes("--workload");
    app.add_option("--parallelism", parallelism_,
                   "Plans of simulated work: the policy's own, or the best on the GPUs that it "
                   "grants (default: adaptive for the workloads of crius, else own, and a "
                   "second table with adaptive plans for all policies)")
        ->check(CLI::IsMember({"own", "adaptive"}));
    app.add_option("--search-depth", search_depth_,
                   "The parameter search_depth of the policies that have it");
    add_policy_option(app, settings_);
    app.add_option("--lut", lut_,
                   "Lookup table (JSON) of fine-tuning iterations, for the policies that plan by "
                   "one, instead of the cost model");
    app.add_option("--against", against_,
                   "One of the policies: how many jobs end 10 % sooner, and 10 % later, than "
                   "under it");
    app.add_option("--seed", seed_, "Random seed")->capture_default_str();
    app.add_option("--seeds", seeds_,
                   "Several seeds (1-5, or 1,3,7): prints the mean and the standard deviation")
        ->excludes("--seed");
    app.add_option("--faults", faults_, "Fault file");
    app.add_option("--out", out_,
                   "Directory for result.json, CSV files of jobs and usage, and usage.html");
  }

  int run(output& out) override {
    const auto policies = chosen_policies();
    if (!policies) return out.bad(policies.error());
    if (!out_.empty())
      // Before the simulation, which may take an hour.
      if (auto ok = can_write_into(out_); !ok) return out.bad(ok.error());
    const auto c = formats::load_cluster(cluster_);
    if (!c) return out.bad(c.error());
    fault_plan faults;
    if (!faults_.empty()) {
      auto loaded = formats::load_faults(faults_);
      if (!loaded) return out.bad(loaded.error());
      // A fault of a host that does not exist would never happen, and no report would show that.
      if (auto ok = formats::check_faults(*loaded, *c, faults_); !ok) return out.bad(ok.error());
      faults = std::move(*loaded);
    }
    auto runs = prepare(*c);
    if (!runs) return out.bad(runs.error());
    for (auto& run : *runs) {
      auto ok = replay(run, *policies, faults);
      // With a given --parallelism all policies have one plan space already.
      if (ok && run.parallelism.empty()) ok = replay_with_pipelines(run, *policies, faults);
      // A policy's plug-in that fails is a bad file, named in the sentence.
      if (!ok) return is_bad_file(ok.error()) ? out.bad(ok.error()) : out.failure(ok.error());
    }
    if (!out_.empty())
      if (auto ok = save(*runs, out_); !ok) return out.failure(ok.error());
    out.document(document_of(*runs));
    out.line("{}\n", title_of(*runs));
    out.text(table_of(*runs));
    if (!out_.empty())
      out.line(
          "\nFiles: {0}/result.json, {0}{1}/usage.html, {0}{1}/jobs-POLICY.csv, "
          "{0}{1}/usage-POLICY.csv",
          out_, runs->size() > 1 ? "/seed-N" : "");
    return exit_done;
  }

 private:
  expected<policy_list> chosen_policies() const {
    const auto measured = measured_rows();
    if (!measured) return refuse(measured.error());
    policy_setup setup{settings_, cluster_, {}, {*measured, studies::noted_in(log_)}};
    if (search_depth_)
      setup.usual.push_back({fmt::format("--search-depth {}: ", *search_depth_), "", "search_depth",
                             static_cast<double>(*search_depth_)});
    auto policies = find_policies(policies_, setup);
    if (!policies) return policies;
    std::vector<std::string> names;
    for (const auto& p : *policies) names.emplace_back(p->name());
    const auto uses_rows = [](const auto& p) { return p->traits().uses_measured_rows; };
    if (!lut_.empty() && std::ranges::none_of(*policies, uses_rows)) {
      const auto all = policies_with_rows();
      return refuse(reason::kind::invalid, "--lut: found the policies {}, expected one of {}",
                    fmt::join(names, ", "), fmt::join(all, ", "));
    }
    if (!against_.empty() && std::ranges::find(names, against_) == names.end())
      return refuse(reason::kind::invalid,
                    "--against: found '{}', expected one of the policies: {}", against_,
                    fmt::join(names, ", "));
    // The wrappers keep the name, so results are still called by it.
    for (auto& p : *policies) p = as_simulated(std::move(p), workload_, parallelism_);
    return policies;
  }

  static std::vector<std::string_view> policies_with_rows() {
    auto names = planners::policy_names();
    std::erase_if(
        names, [](auto name) { return !planners::make_policy(name)->traits().uses_measured_rows; });
    return names;
  }

  expected<std::shared_ptr<const planners::lookup_table>> measured_rows() const {
    if (lut_.empty()) return nullptr;
    const auto catalogue = formats::load_catalogue(formats::catalogue_for(cluster_));
    if (!catalogue) return refuse(catalogue.error());
    return load_lookup_option(lut_, *catalogue);
  }

  /// One comparison a seed, and nothing simulated yet.
  expected<std::vector<comparison>> prepare(const cluster& c) const {
    std::vector<std::uint64_t> seeds{seed_};
    if (!seeds_.empty()) {
      auto several = parse_seeds(seeds_);
      if (!several) return refuse(several.error());
      seeds = std::move(*several);
    }
    std::vector<comparison> runs;
    if (!jobs_.empty()) {
      const auto jobs = load_arrivals(jobs_);
      if (!jobs) return refuse(jobs.error());
      for (const auto seed : seeds) runs.push_back(of_job_files(*jobs, seed, c));
    } else if (auto ok = add_of_trace(runs, seeds, c); !ok) {
      return refuse(ok.error());
    }
    for (auto& run : runs) {
      run.log = log_;
      run.against = against_;
    }
    return runs;
  }

  expected<void> add_of_trace(std::vector<comparison>& runs,
                              const std::vector<std::uint64_t>& seeds, const cluster& c) const {
    const auto rows = formats::load_trace(trace_);
    if (!rows) return refuse(rows.error());
    std::optional<formats::throughputs> speeds;
    if (!throughputs_.empty()) {
      auto loaded = formats::load_throughputs(throughputs_);
      if (!loaded) return refuse(loaded.error());
      speeds = std::move(*loaded);
    }
    // Whoever asks for plans wants jobs of models.
    const auto rule = !workload_.empty()     ? workload_
                      : parallelism_.empty() ? usual_workload(*rows)
                                             : std::string{"frenzy"};
    // The trace is read once; a seed changes which models its rows get.
    for (const auto seed : seeds) {
      auto run = comparison_of(*rows, rule, speeds ? &*speeds : nullptr, seed, c);
      if (!run) return refuse(run.error());
      run->parallelism = parallelism_;
      runs.push_back(std::move(*run));
    }
    return {};
  }

  std::string cluster_, trace_, workload_, throughputs_, parallelism_, seeds_;
  std::string faults_, out_, lut_, against_;
  // Replays run one after another.
  std::shared_ptr<studies::solve_log> log_ = std::make_shared<studies::solve_log>();
  std::optional<std::uint32_t> search_depth_;
  std::vector<std::string> policies_{default_policy}, settings_, jobs_;
  std::uint64_t seed_ = 1;
};

}  // namespace

std::unique_ptr<verb> make_simulate() {
  return std::make_unique<simulate_verb>();
}

}  // namespace troupe::cli
