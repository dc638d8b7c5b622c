#include "cli/common/job_selection.hpp"
#include "cli/verbs/verb.hpp"

namespace troupe::cli {

namespace {

/// Cancels jobs by number or by filter. Returns when the controller has accepted it; programs then
/// have their grace.
class cancel_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    chosen_.options(app);
    remote_.options(app);
  }

  int run(output& out) override {
    return for_each_job(out, remote_, chosen_, [this](job_id id) { return cancel(id); });
  }

 private:
  job_result cancel(job_id id) {
    const auto reply = remote_.ask<cancel_reply>(cancel_job{0, id});
    if (!reply) return {{}, "", reply.error()};
    // Cancelling twice is no error: the wish is fulfilled.
    job_result r{{{"job", id}, {"cancelled", reply->done}, {"reason", reply->why.text}}, ""};
    if (!reply->done)
      r.why = reply->why;
    else
      r.line = fmt::format("job {} {}", id,
                           reply->why.text.empty() ? "cancelled" : "was cancelled already");
    return r;
  }

  chosen_jobs chosen_;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_cancel() {
  return std::make_unique<cancel_verb>();
}

}  // namespace troupe::cli
