#include "cli/common/controller_connection.hpp"
#include "cli/verbs/jobs/suspension.hpp"
#include "cli/verbs/verb.hpp"

namespace troupe::cli {

namespace {

class resume_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", job_, "Job number")->required();
    remote_.options(app);
  }

  int run(output& out) override {
    const auto reply = remote_.ask<suspend_reply>(suspend_job{0, job_, false});
    if (!reply) return out.no(reply.error());
    if (!reply->done) return refuse_suspension(out, job_, reply->why);
    const auto now = status_of(remote_, job_);
    if (!now) return out.no(now.error());
    out.document(suspension(job_, now->iterations_done, 0, 0));
    out.line("job {} is queued again and continues after iteration {}", job_, now->iterations_done);
    return exit_done;
  }

 private:
  job_id job_ = 0;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_resume() {
  return std::make_unique<resume_verb>();
}

}  // namespace troupe::cli
