#include <algorithm>
#include <csignal>

#include "cli/connection/controller_connection.hpp"
#include "cli/connection/job_endings.hpp"
#include "cli/output/human.hpp"
#include "cli/output/progress.hpp"
#include "cli/output/table.hpp"
#include "cli/verbs/verb.hpp"
#include "web/dashboard/job_json.hpp"

namespace troupe::cli {

namespace {

/// Why a job waits, runs where it does, or has failed: the policy's ranking, the memory of its
/// attempts, and the last output of a failed one.
class explain_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", job_, "Job number")->required();
    remote_.options(app);
  }

  int run(output& out) override {
    const auto reply = remote_.ask<explanation>(explain_job{0, job_});
    if (!reply) return out.failure(reply.error());
    if (reply->job.job == 0) return out.failure(reason{reason::kind::unknown, reply->summary});
    // A failed program's reason is usually in its output, not in what the controller knows.
    const auto last = last_lines(reply->job);
    out.document(document(*reply, last));
    out.line("job {} ({}): {}", job_, reply->job.name, reply->summary);
    if (did_not_obey(reply->job)) out.line("Its last attempt: {}", reply->job.detail);
    if (const auto how = progress_text(reply->job); !how.empty()) out.line("{}", how);
    if (const auto& e = reply->job.held_out)
      out.line("Held-out loss {:.4f} after iteration {}; the lowest {:.4f} after iteration {}.",
               e->loss, e->iteration, e->best_loss, e->best_iteration);
    if (const auto ends = ends_text(reply->job); !ends.empty())
      out.line("Attempts ended by: {}", ends);
    if (web::is_placed(reply->job))
      for (const auto& group : reply->job.groups.value_or(std::vector<std::string>{}))
        out.line("  {}.", group);
    for (const auto& sentence : reply->placement) out.line("  {}", sentence);
    for (const auto& sentence : reply->guesses.value_or(std::vector<std::string>{}))
      out.line("  {}", sentence);
    if (reply->follows)
      out.line("Its GPUs are those of lease {}, which it follows.", *reply->follows);
    if (reply->merge) out.line("{}", merge_text(reply->job, *reply->merge));
    if (!reply->plans.empty())
      out.text(fmt::format("\nPlans, best first, by {}{}:\n\n", reply->metric,
                           is_assumed(reply->job)
                               ? " (of the model that it is planned as, since it names none)"
                               : "") +
               plans_text(*reply));
    if (!reply->memory.empty()) out.line("\nMemory:");
    for (const auto& m : reply->memory) out.line("  {}", memory_text(m));
    if (!last.empty()) {
      out.line("\nLast output{} (troupe logs {}{} shows all of it):",
               part_ > 0 ? " of node " + reply->job.failed_node.value_or("?") : "", job_,
               part_ > 0 ? fmt::format(" --rank {}", part_) : "");
      for (const auto& l : last) out.line("  {}", l);
    }
    return exit_done;
  }

 private:
  static bool is_assumed(const job_status& j) { return has_processes(j) && j.model.empty(); }

  static std::string merge_text(const job_status& j, const merge_view& m) {
    if (m.with.empty())
      return fmt::format("Not merged: {}.", m.why_not.empty() ? "the others have left" : m.why_not);
    const auto with = fmt::format("{} ({})", fmt::join(m.with, ", "), m.kind);
    if (!m.why_not.empty()) return fmt::format("Not merged with job {}: {}.", with, m.why_not);
    const auto ratio =
        m.duration_ratio ? fmt::format(", ratio of durations {:.1f}", *m.duration_ratio) : "";
    return fmt::format("{} with {}: similarity of dataset cards {:.2f}{}.",
                       j.merged_with ? "Merged" : "May be merged", with, m.similarity.value_or(0),
                       ratio);
  }

  /// "exit 1, exit 1, lost_node": the latest, unless they are only that of a job that has finished.
  static std::string ends_text(const job_status& j) {
    std::string all;
    if (!j.ends || j.state == job_state::finished) return all;
    for (const auto& e : *j.ends) {
      all += fmt::format("{}{}", all.empty() ? "" : ", ", to_string(e.why));
      if (e.why == end_word::exit && e.exit_code) all += fmt::format(" {}", *e.exit_code);
      if (e.why == end_word::signal && e.exit_code) all += fmt::format(" {}", *e.exit_code - 128);
    }
    return all;
  }

  static std::string plans_text(const explanation& e) {
    table plans{{"", "data", "tensor", "pipeline", "GPUs", "GPU types", "memory/GPU", "samples/s",
                 "cost/h", "ranked by", "verdict"}};
    for (const auto& p : e.plans)
      plans.row({p.chosen ? ">" : "", fmt::to_string(p.what.data_parallel),
                 fmt::to_string(p.what.tensor_parallel), fmt::to_string(p.what.pipeline_parallel),
                 fmt::to_string(p.what.gpus()), fmt::format("{}", fmt::join(p.gpu_types, ", ")),
                 p.what.bytes_per_gpu > 0 ? size_text(p.what.bytes_per_gpu) : "-",
                 fmt::format("{:.3g}", p.what.samples_per_s),
                 fmt::format("{:.2f}", p.what.cost_per_hour), fmt::format("{:.4g}", p.metric),
                 p.verdict});
    return plans.text(terminal_columns());
  }

  /// It was stopped, and has ended otherwise than by that or with 0.
  static bool did_not_obey(const job_status& j) {
    const auto status = j.exit_code.value_or(0);
    return (j.state == job_state::waiting || j.state == job_state::cancelled) && status != 0 &&
           status != 128 + SIGTERM;
  }

  /// The last output of a failed job; nothing if its log is not available.
  std::vector<std::string> last_lines(const job_status& j) {
    // Without an attempt there is no log; output of jobs that run or have finished is for `troupe
    // logs`.
    if (j.progress.attempts == 0 || !(j.state == job_state::failed || did_not_obey(j))) return {};
    constexpr std::size_t max_lines = 5;
    auto last = last_output_of(remote_, j, max_lines);
    part_ = last.part;
    return std::move(last.lines);
  }

  static json document(const explanation& e, const std::vector<std::string>& last) {
    auto d = web::explanation_document(e);
    d["last_output"] = last;
    return d;
  }

  job_id job_ = 0;
  std::uint32_t part_ = 0;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_explain() {
  return std::make_unique<explain_verb>();
}

}  // namespace troupe::cli
