#include "cli/common/job_selection.hpp"
#include "cli/verbs/jobs/suspension.hpp"
#include "cli/verbs/verb.hpp"

namespace troupe::cli {

namespace {

/// Queues suspended jobs again; each continues after its newest checkpoint when it gets GPUs.
class resume_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    chosen_.options(app);
    remote_.options(app);
  }

  int run(output& out) override {
    return for_each_job(out, remote_, chosen_, [this](job_id id) { return resume(id); });
  }

 private:
  job_result resume(job_id id) {
    // The same message with `false`: being suspended is a state of the job, not an event.
    const auto reply = remote_.ask<suspend_reply>(suspend_job{0, id, false});
    if (!reply) return {{}, "", reply.error()};
    if (!reply->done) return not_done(id, reply->why);
    const auto now = status_of(remote_, id);
    if (!now) return {{}, "", now.error()};
    return {suspension(id, now->iterations_done, 0, 0),
            fmt::format("job {} is queued again and continues after iteration {}", id,
                        now->iterations_done)};
  }

  chosen_jobs chosen_;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_resume() {
  return std::make_unique<resume_verb>();
}

}  // namespace troupe::cli
