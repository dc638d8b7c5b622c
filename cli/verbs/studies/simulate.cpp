#include "cli/common/output_file.hpp"
#include "cli/common/policy_option.hpp"
#include "cli/reports/comparison.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "planners/crius/crius.hpp"

namespace troupe::cli {

namespace {

class simulate_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("--cluster", cluster_, "Cluster file")->required();
    app.add_option("--trace", trace_, "Trace CSV (troupe trace import creates one)")->required();
    app.add_option("--policy", policies_, "Policies to compare: " + known_policies())
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--workload", workload_,
                   "Rule that assigns models to the trace's jobs: frenzy, crius, crius-deadlines, "
                   "titan")
        ->capture_default_str();
    app.add_option("--parallelism", parallelism_,
                   "Plans of simulated work: the policy's own, or the best on the GPUs that it "
                   "grants (default: adaptive for the workloads of crius, else own)")
        ->check(CLI::IsMember({"own", "adaptive"}));
    app.add_option("--search-depth", search_depth_,
                   "Most running jobs that crius changes in one scheduling choice")
        ->capture_default_str();
    app.add_option("--seed", seed_, "Random seed")->capture_default_str();
    app.add_option("--faults", faults_, "Fault file");
    app.add_option("--out", out_,
                   "Directory for result.json, CSV files of jobs and usage, and usage.html");
  }

  int run(output& out) override {
    auto policies = find_policies(policies_);
    if (!policies) return out.bad(policies.error());
    for (auto& p : *policies) p = as_simulated(p, workload_, parallelism_, search_depth_);
    if (!out_.empty())
      if (auto ok = can_write_into(out_); !ok) return out.bad(ok.error());
    const auto c = formats::load_cluster(cluster_);
    if (!c) return out.bad(c.error());
    fault_plan faults;
    if (!faults_.empty()) {
      auto loaded = formats::load_faults(faults_);
      if (!loaded) return out.bad(loaded.error());
      if (auto ok = formats::check_faults(*loaded, *c, faults_); !ok) return out.bad(ok.error());
      faults = std::move(*loaded);
    }
    auto workload = load_workload(trace_, workload_, seed_, *c);
    if (!workload) return out.bad(workload.error());
    comparison result{*c, std::move(*workload), workload_, seed_, {}};
    if (auto ok = replay(result, *policies, faults); !ok)
      return is_bad_file(ok.error()) ? out.bad(ok.error()) : out.no(ok.error());
    if (!out_.empty())
      if (auto ok = save(result, out_); !ok) return out.bad(ok.error());
    out.document(document_of(result));
    out.line("{} jobs on {}, simulated in virtual time, workload {}, seed {}\n",
             result.workload.size(), c->name, workload_, seed_);
    out.text(table_of(result));
    if (!out_.empty())
      out.line(
          "\nFiles: {0}/result.json, {0}/usage.html, {0}/jobs-POLICY.csv, {0}/usage-POLICY.csv",
          out_);
    return exit_done;
  }

 private:
  std::string parallelism_;
  std::uint32_t search_depth_ = planners::crius_options{}.search_depth;
  std::string cluster_, trace_, workload_ = "frenzy", faults_, out_;
  std::vector<std::string> policies_{default_policy};
  std::uint64_t seed_ = 1;
};

}  // namespace

std::unique_ptr<verb> make_simulate() {
  return std::make_unique<simulate_verb>();
}

}  // namespace troupe::cli
