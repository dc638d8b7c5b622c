#include "cli/common/job_selection.hpp"
#include "cli/verbs/jobs/suspension.hpp"
#include "cli/verbs/verb.hpp"

namespace troupe::cli {

namespace {

/// Waits until the job holds no GPUs, or others, and reports the cost.
class requeue_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    chosen_.options(app);
    remote_.options(app);
  }

  int run(output& out) override {
    return for_each_job(out, remote_, chosen_, [this](job_id id) { return requeue(id); });
  }

 private:
  job_result requeue(job_id id) {
    const runtime::stopwatch asked;
    const auto before = status_of(remote_, id);
    if (!before) return {{}, "", before.error()};
    const auto reply = remote_.ask<requeue_reply>(requeue_job{0, id});
    if (!reply) return {{}, "", reply.error()};
    if (!reply->done) return not_done(id, reply->why);
    // The controller accepts at once; the program then has its grace to save. The verb returns when
    // its cost is known.
    const auto now = wait_for_stop(remote_, *before);
    if (!now) return {{}, "", now.error()};
    if (is_final(now->state)) return not_done(id, ended_meanwhile(*now));
    const auto lost = lost_iterations(*before, *now);
    return {suspension(id, now->iterations_done, asked.s(), lost),
            fmt::format("job {} stopped and queued again after iteration {}{}", id,
                        now->iterations_done,
                        lost > 0 ? fmt::format("; {} iterations lost", lost) : "")};
  }

  chosen_jobs chosen_;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_requeue() {
  return std::make_unique<requeue_verb>();
}

}  // namespace troupe::cli
