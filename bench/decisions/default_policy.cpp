#include "default_policy.hpp"

#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/common/policy_option.hpp"
#include "cli/reports/comparison.hpp"
#include "formats/load/load.hpp"
#include "harness/runs.hpp"
#include "planners/core/policy.hpp"
#include "planners/crius/crius.hpp"
#include "snapshots.hpp"

namespace troupe::bench {

namespace {

using namespace planners;

double cpu_s() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// The median; `once` is given a policy's name.
template <class Once>
expected<double> median_of(int runs, const std::string& policy, const Once& once) {
  std::vector<double> each;
  for (int i = 0; i < runs; ++i) {
    const double begin_s = cpu_s();
    if (const expected<void> ok = once(policy); !ok) return refuse(ok.error());
    each.push_back(cpu_s() - begin_s);
  }
  return median(std::move(each));
}

template <class Once>
expected<beside_frenzy> both(int runs, const Once& once) {
  const auto frenzy = median_of(runs, "frenzy", once);
  if (!frenzy) return refuse(frenzy.error());
  const auto troupe = median_of(runs, "troupe", once);
  if (!troupe) return refuse(troupe.error());
  return beside_frenzy{*frenzy, *troupe};
}

}  // namespace

expected<beside_frenzy> planning_s() {
  const auto c = make_cluster(100'000);
  if (!c) return refuse(c.error());
  const auto m = formats::load_model(formats::configs_directory() / "models" / "gpt2-7b.yaml");
  if (!m) return refuse(m.error());
  job_spec job;
  job.name = "one";
  job.model = *m;
  job.global_batch = 1024;
  job.iterations = 100;
  const idle_index idle{*c};
  return both(3, [&](const std::string& name) -> expected<void> {
    const auto p = make_policy(name);
    planning_budget budget;
    auto plans = p->plans_of(*c, job, budget);
    if (!plans) return refuse(plans.error());
    job_view v;
    v.id = 1;
    v.spec = std::make_shared<const job_spec>(job);
    v.plans = std::make_shared<const std::vector<plan>>(std::move(*plans));
    job_views alone;
    alone.emplace(v.id, std::move(v));
    random_source random{1};
    const auto decisions = p->decide({0, *c, idle, alone, no_jobs}, random);
    if (decisions.size() == 1 && decisions[0].what == decision::kind::start) return {};
    return refuse(reason::kind::infeasible, name + " places it nowhere");
  });
}

expected<beside_frenzy> replay_s(const std::filesystem::path& philly, int runs) {
  const auto rows = formats::import_philly(philly);
  if (!rows) return refuse(rows.error());
  const auto c = formats::load_cluster(formats::configs_directory() / "clusters" / "philly.yaml");
  if (!c) return refuse(c.error());
  return both(runs, [&](const std::string& name) -> expected<void> {
    auto run = cli::comparison_of(*rows, "frenzy", nullptr, 1, *c);
    if (!run) return refuse(run.error());
    const auto found = cli::find_policy(name);
    if (!found) return refuse(found.error());
    return cli::replay(*run,
                       {cli::as_simulated(*found, "frenzy", {}, crius_options{}.search_depth)}, {});
  });
}

}  // namespace troupe::bench
