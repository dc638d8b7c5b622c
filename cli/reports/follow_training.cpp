#include "cli/reports/follow_training.hpp"

#include <fmt/format.h>

#include "actors/control/ledger/training_history.hpp"
#include "cli/output/progress.hpp"
#include "runtime/host/pause.hpp"

namespace troupe::cli {

namespace {

/// The error of an interrupted wait.
reason interrupted(const job_status& j) {
  const auto reached = progress_text(j);
  return {reason::kind::unavailable,
          "interrupted by a signal: " +
              (reached.empty() ? "no iteration completed" : "reached " + reached)};
}

}  // namespace

expected<training_report> follow_training(
    remote& cluster, const job_spec& job,
    const std::function<void(const job_status&, const training_report&)>& progress,
    interrupt* stop) {
  const auto accepted = cluster.submit(job);
  if (!accepted) return refuse(accepted.error());
  training_report known;  // all iterations seen so far: the controller thins its history
  std::uint64_t position = 0;
  for (;;) {
    const auto jobs = cluster.ask<query_reply>(query_jobs{0, *accepted});
    if (!jobs) return refuse(jobs.error());
    // The controller forgets ended jobs after a while.
    if (jobs->jobs.empty())
      return refuse(reason::kind::unknown,
                    fmt::format("the controller no longer knows job {}", *accepted));
    const auto& j = jobs->jobs.front();
    if (progress) progress(j, known);
    // Queried after the state: if the job has ended, this has everything.
    // Only iterations after `position` are sent, so a long training's history crosses the network
    // once.
    const auto how = cluster.ask<training_reply>(query_training{0, j.job, position});
    if (!how) return refuse(how.error());
    if (how->why.text.empty() && how->report.sequence > 0) {
      actors::append(known, how->report);
      position = how->position;
    }
    if (j.state == job_state::finished) return known;
    if (is_final(j.state))
      return refuse(reason::kind::invalid,
                    fmt::format("job {} {}: {}", j.job, to_string(j.state), j.detail));
    if (stop && stop->arrived()) return refuse(interrupted(j));
    // Short enough for a demo's iterations, and five questions a second are no load for a
    // controller.
    runtime::pause(0.2);
  }
}

}  // namespace troupe::cli
