// bench_policies: every policy on (trace, cluster) pairs, in virtual time as `troupe simulate` runs
// them, and where `troupe` stands among them. Without arguments: the traces that ship.

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/options/policy_option.hpp"
#include "cli/output/human.hpp"
#include "cli/reports/comparison.hpp"
#include "formats/load/load.hpp"
#include "planners/policy/wrapped_policy.hpp"
#include "planners/titan/titan.hpp"
#include "policies/hints.hpp"
#include "policies/loads.hpp"
#include "policies/report.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::bench {
namespace {

struct options {
  std::uint64_t seeds = 3;
  double limit_s = 10;  // of one policy's decisions on one seed
  double hours = 12;
  double hint_sigma = 0, elastic = 0;
  std::uint64_t hint_iterations = 0;
  std::string only, traces;
  std::vector<std::string> policies;
};

/// Gives up every job once its decisions have taken too long together: the run ends soon, and does
/// not count.
class limited final : public planners::wrapped_policy {
 public:
  limited(std::shared_ptr<const planners::policy> inner, double limit_s)
      : wrapped_policy{std::move(inner)}, limit_s_{limit_s} {}

  double decide_again_s(const planners::snapshot& s) const override {
    return is_late() ? 0 : inner().decide_again_s(s);
  }
  std::vector<planners::decision> decide(const planners::snapshot& s,
                                         random_source& random) const override {
    if (!is_late()) {
      const runtime::stopwatch watch;
      auto decisions = inner().decide(s, random);
      decided_s_ += watch.s();
      return decisions;
    }
    std::vector<planners::decision> out;
    for (const auto& [id, j] : s.waiting)
      out.push_back(
          {planners::decision::kind::give_up, id, {}, {}, {reason::kind::infeasible, "late"}});
    return out;
  }

  bool is_late() const { return decided_s_ > limit_s_; }

 private:
  double limit_s_;
  mutable double decided_s_ = 0;
};

/// Whether the load is of a kind that the policy can take.
bool can_take(const std::string& policy, const load& l) {
  // It chooses the batches of simulated jobs, which it takes for fine-tuning: less work for it than
  // for others where jobs are not meant so.
  if (planners::titan_variant(policy) && l.workload != "titan") return false;
  const bool deadlines = l.workload == "crius-deadlines";
  // Without deadlines these are their plain forms; espresso without limits is frenzy.
  return policy != "espresso" && (deadlines || (policy != "crius-ddl" && policy != "elasticflow"));
}

/// With plans of its own, or of any parallelism. Nothing: it was left out.
expected<std::optional<contestant>> run_policy(const options& o, const load& l, const cluster& c,
                                               const std::string& name,
                                               const std::string& parallelism, contest& result) {
  contestant x{name, {}};
  for (std::uint64_t seed = 1; seed <= o.seeds; ++seed) {
    const auto found = cli::find_policy(name);
    if (!found) return refuse(found.error());
    auto workload = cli::workload_of(l.rows, l.workload, seed, c);
    if (!workload) return refuse(workload.error());
    result.jobs = workload->size();
    make_elastic(*workload, o.elastic, seed);
    cli::comparison run{c, std::move(*workload), l.workload, seed, {}};
    const auto policy =
        std::make_shared<limited>(with_hints(cli::as_simulated(*found, l.workload, parallelism),
                                             {o.hint_sigma, o.hint_iterations, seed}),
                                  o.limit_s);
    const auto ok = cli::replay(run, {policy}, {});
    if (policy->is_late() || !ok) {
      const auto plans = parallelism.empty() ? "" : " with pipelines";
      result.left_out.push_back(
          ok ? fmt::format("{}{}: left out, seed {}: its decisions take more than {:g} s", name,
                           plans, seed, o.limit_s)
             : fmt::format("{}{}: left out, seed {}: {}", name, plans, seed, ok.error().text));
      return std::optional<contestant>{};
    }
    x.by_seed.push_back(std::move(run.results.front()));
  }
  return std::optional{std::move(x)};
}

/// Twice, if its own plans have no pipelines.
expected<void> run_both(const options& o, const load& l, const cluster& c, const std::string& name,
                        contest& result) {
  auto own = run_policy(o, l, c, name, {}, result);
  if (!own) return refuse(own.error());
  const auto policy = cli::find_policy(name);
  if (!policy) return refuse(policy.error());
  auto equal = cli::plans_pipelines(**policy, l.workload, {})
                   ? own
                   : run_policy(o, l, c, name, "adaptive", result);
  if (!equal) return refuse(equal.error());
  if (*own) result.contestants.push_back(std::move(**own));
  if (*equal) result.with_pipelines.push_back(std::move(**equal));
  return {};
}

expected<void> run(const options& o) {
  auto loads = shipped_loads();
  if (loads && !o.traces.empty()) {
    auto more = loads_below(o.traces, o.hours);
    if (!more) return refuse(more.error());
    std::ranges::move(*more, std::back_inserter(*loads));
  }
  if (!loads) return refuse(loads.error());
  std::vector<contest> all;
  for (const auto& l : *loads) {
    if (l.name().find(o.only) == std::string::npos) continue;
    const auto c =
        formats::load_cluster(formats::configs_directory() / "clusters" / (l.cluster + ".yaml"));
    if (!c) return refuse(c.error());
    const runtime::stopwatch watch;
    contest result{l.name(), 0, {}, {}, {}};
    for (const auto& name : o.policies)
      if (can_take(name, l))
        if (const auto ok = run_both(o, l, *c, name, result); !ok) return ok;
    fmt::print(stderr, "{}: {}\n", l.name(), cli::duration_text(watch.s()));
    all.push_back(std::move(result));
  }
  fmt::print("{}", text_of(std::move(all)));
  return {};
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  using namespace troupe;
  bench::options o;
  for (const auto name : planners::policy_names()) o.policies.emplace_back(name);
  CLI::App app{"Every policy on (trace, cluster) pairs, in virtual time"};
  app.add_option("--seeds", o.seeds, "Seeds of each pair")->capture_default_str();
  app.add_option("--limit", o.limit_s,
                 "A policy whose decisions take longer on a seed is left out, s")
      ->capture_default_str();
  app.add_option("--only", o.only, "Pairs whose name contains this");
  app.add_option("--policies", o.policies, "Policies to compare, separated by commas")
      ->delimiter(',');
  app.add_option(
      "--hint-sigma", o.hint_sigma,
      "Multiply the number of iterations that policies see by exp(N(0, SIGMA)), per job");
  app.add_option("--hint-iterations", o.hint_iterations,
                 "Number of iterations that policies see for every job");
  app.add_option("--elastic", o.elastic, "This fraction of the jobs are elastic programs")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--traces", o.traces, "Directory of more traces: Troupe's, Philly, ITP");
  app.add_option("--hours", o.hours, "Length of their densest window that is used")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (const auto ok = bench::run(o); !ok) {
    fmt::print(stderr, "{}\n", ok.error().text);
    return 1;
  }
}
