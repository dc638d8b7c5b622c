#include "cli/common/controller_connection.hpp"
#include "cli/verbs/verb.hpp"

namespace troupe::cli {

namespace {

class cancel_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", job_, "Job number")->required();
    remote_.options(app);
  }

  int run(output& out) override {
    const auto reply = remote_.ask<cancel_reply>(cancel_job{0, job_});
    if (!reply) return out.no(reply.error());
    out.document({{"job", job_}, {"cancelled", reply->done}, {"reason", reply->why.text}});
    if (!reply->done) return out.no(reply->why);
    out.line("job {} {}", job_, reply->why.text.empty() ? "cancelled" : "was cancelled already");
    return exit_done;
  }

 private:
  job_id job_ = 0;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_cancel() {
  return std::make_unique<cancel_verb>();
}

}  // namespace troupe::cli
