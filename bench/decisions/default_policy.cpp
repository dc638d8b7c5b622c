#include "default_policy.hpp"

#include <sys/resource.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/options/policy_option.hpp"
#include "cli/reports/comparison.hpp"
#include "formats/load/load.hpp"
#include "harness/runs.hpp"

namespace troupe::bench {

namespace {

using namespace planners;

/// The processor time of this program and of the commands that it has run.
double cpu_s() {
  double s = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    ::getrusage(who, &used);
    for (const auto& t : {used.ru_utime, used.ru_stime})
      s += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  return s;
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
  const scratch files;
  files.write(
      "cluster.yaml",
      "name: large\ndatacenters:\n  - name: dc\n    nodes:\n"
      "      - {name: a, gpu: A100-40GB, gpus: 8, count: 6250, intra: nvlink, inter: ib100}\n"
      "      - {name: v, gpu: V100-32GB, gpus: 8, count: 6250, intra: nvlink, inter: ib100}\n");
  files.write("job.yaml", "name: one\nmodel: gpt2-7b\nglobal_batch: 1024\niterations: 100\n");
  return both(3, [&](const std::string& name) -> expected<void> {
    if (try_troupe(files, "plan job.yaml --cluster cluster.yaml --policy " + name)) return {};
    return refuse(reason::kind::infeasible, name + " places it nowhere");
  });
}

expected<beside_frenzy> replay_s(const std::filesystem::path& philly, int runs) {
  const auto trace = formats::import_jobs("philly", philly);
  if (!trace) return refuse(trace.error());
  const auto c = formats::load_cluster(formats::configs_directory() / "clusters" / "philly.yaml");
  if (!c) return refuse(c.error());
  return both(runs, [&](const std::string& name) -> expected<void> {
    auto run = cli::comparison_of(trace->rows, "frenzy", nullptr, 1, *c);
    if (!run) return refuse(run.error());
    const auto found = cli::find_policy(name);
    if (!found) return refuse(found.error());
    return cli::replay(*run, {cli::as_simulated(*found, "frenzy", {})}, {});
  });
}

}  // namespace troupe::bench
