#include "cli/reports/training_figures.hpp"
#include "cli/verbs/studies/demo_parts.hpp"

#include <algorithm>
#include <vector>

#include "cli/cluster/busy_machine.hpp"
#include "cli/cluster/local_cluster.hpp"
#include "cli/reports/follow_training.hpp"
#include "cli/reports/iteration_picture.hpp"
#include "cli/reports/training_result.hpp"
#include "formats/load/load.hpp"
#include "messages/base/absolute_path.hpp"
#include "messages/base/statistics.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

double median_s(const training_report& r) {
  std::vector<double> all;
  for (const auto& i : r.iterations) all.push_back(i.end_s - i.begin_s);
  return statistics::median(std::move(all));
}

// Equal bits, not close values: a schedule may change when tasks run, never what they compute.
bool learn_alike(const training_report& a, const training_report& b) {
  return std::ranges::equal(a.iterations, b.iterations, [](const auto& x, const auto& y) {
    return x.loss == y.loss && x.gradient_norm == y.gradient_norm;
  });
}

void print(const output& out, const training_report& varuna, const training_report& atlas,
           const std::optional<runtime::cpu_time>& had) {
  const auto seconds = [](const iteration_record& i) { return i.end_s - i.begin_s; };
  out.line("  iteration    loss    varuna s   atlas s");
  const auto n = varuna.iterations.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (i % 5 != 0 && i + 1 != n) continue;
    const auto &v = varuna.iterations[i], &a = atlas.iterations[i];
    out.line("  {:9} {:7.4f} {:11.3f} {:9.3f}", v.iteration, v.loss, seconds(v), seconds(a));
  }
  out.line(
      "  {} Stages compute {:.0f} % and {:.0f} % of the\n  time and otherwise wait for the WAN. "
      "Losses and gradients are bitwise identical.",
      schedules_text(median_s(varuna), median_s(atlas), had), 100 * utilization(varuna),
      100 * utilization(atlas));
}

}  // namespace

expected<json> demo_training(const output& out, const fs::path& configs,
                             const fs::path& directory) {
  auto job = formats::load_job(configs / "jobs" / "demo-training.yaml");
  if (!job) return refuse(job.error());
  local_cluster_options o;
  o.emulated = true;
  o.cluster_file = (configs / "clusters" / "demo-training.yaml").string();
  o.state = (directory / "training").string();
  auto cluster = local_cluster::start(o);
  if (!cluster) return refuse(cluster.error());
  if (auto ok = (*cluster)->wait_until_ready(60); !ok) return refuse(ok.error());
  out.line(
      "\nA small GPT trained on real text on the CPU: two pipelines of three stages, one stage in "
      "each of three\ndatacenters, {} processes, an emulated WAN with 40 ms round trips, under two "
      "schedules:\n",
      (*cluster)->names().size());
  (void)flush_output();
  remote client;
  client.set_controller((*cluster)->controller_address());
  json measured;
  std::vector<training_report> reports;
  std::vector<std::string> timelines;
  // Two looks at the processes' core time: their difference shows whether other programs had the
  // cores.
  const auto before = cpu_time_of(**cluster);
  // One after the other on the same cluster, so that both have the same machine.
  for (const auto* schedule : {"varuna", "atlas"}) {
    job->train->schedule = schedule;
    auto timeline = absolute_path(directory / fmt::format("training-{}.json", schedule));
    if (!timeline) return refuse(timeline.error());
    job->train->timeline = std::move(*timeline);
    timelines.push_back(job->train->timeline);
    auto report = follow_training(client, *job);
    if (!report) return refuse(report.error());
    measured[schedule] = document_of({"local", *job, *report, 0, 0});
    reports.push_back(std::move(*report));
  }
  if (!learn_alike(reports[0], reports[1]))
    return refuse(reason::kind::invalid, "the two schedules computed different losses");
  auto had = cpu_time_of(**cluster);
  if (had && before) *had = *had - *before;
  print(out, reports[0], reports[1], had);
  if (auto ok = draw_iterations(timelines, (directory / "training.html").string()); !ok)
    return refuse(ok.error());
  return measured;
}

}  // namespace troupe::cli
