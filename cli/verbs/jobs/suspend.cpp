#include "cli/common/controller_connection.hpp"
#include "cli/verbs/jobs/suspension.hpp"
#include "cli/verbs/verb.hpp"

namespace troupe::cli {

namespace {

/// Waits until the job holds no GPUs, and reports the cost.
class suspend_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", job_, "Job number")->required();
    remote_.options(app);
  }

  int run(output& out) override {
    const runtime::stopwatch asked;
    const auto before = status_of(remote_, job_);
    if (!before) return out.no(before.error());
    const auto reply = remote_.ask<suspend_reply>(suspend_job{0, job_, true});
    if (!reply) return out.no(reply.error());
    if (!reply->done) return refuse_suspension(out, job_, reply->why);
    const auto now = wait_for_stop(remote_, *before);
    if (!now) return out.no(now.error());
    if (now->attempts != before->attempts)
      return refuse_suspension(
          out, job_,
          {reason::kind::stale, fmt::format("job {} was resumed in the meantime", job_)});
    if (is_final(now->state)) return refuse_suspension(out, job_, ended_meanwhile(*now));
    const auto lost = lost_iterations(*before, *now);
    out.document(suspension(job_, now->iterations_done, asked.s(), lost));
    out.line("job {} suspended after iteration {}{}", job_, now->iterations_done,
             lost > 0 ? fmt::format("; {} iterations lost", lost) : "");
    return exit_done;
  }

 private:
  job_id job_ = 0;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_suspend() {
  return std::make_unique<suspend_verb>();
}

}  // namespace troupe::cli
