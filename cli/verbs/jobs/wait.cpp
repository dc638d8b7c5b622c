#include "cli/connection/job_endings.hpp"
#include "cli/connection/job_selection.hpp"
#include "cli/verbs/verb.hpp"

namespace troupe::cli {

namespace {

/// Waits until jobs have ended, and reports each as it ends.
class wait_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    numbers_.options(app, "Job numbers, or ranges of them");
    remote_.options(app);
    app.footer(
        "Exit status: 0 if all jobs finished, 1 if one did not (or the controller did not answer "
        "within --patience). --json has the programs' exit statuses.");
  }

  int run(output& out) override {
    const auto jobs = numbers_.ids();
    if (!jobs) return out.bad(jobs.error());
    if (jobs->empty()) return out.bad("expected job numbers");
    json document = json::array();
    int status = exit_done;
    const auto each = [&](const query_reply& r) {
      const auto& j = r.jobs.front();
      document.push_back(ending_document(r));
      out.line("{}", ending_text(j));
      (void)flush_output();
      // 0 or 1 only, unlike `submit --wait`: several programs' codes could not be distinguished.
      if (j.state != job_state::finished) status = exit_no;
      note_output(out, remote_, j);
    };
    const auto ok = wait_for_jobs(remote_, *jobs, each,
                                  [&](const job_status& j) { note_waiting(out, remote_, j); });
    json ended{{"jobs", document}};
    if (!ok) ended["error"] = ok.error().text, ended["code"] = code_of(ok.error());
    out.document(ended);
    if (!ok) return out.failure(ok.error());
    return status;
  }

 private:
  job_numbers numbers_;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_wait() {
  return std::make_unique<wait_verb>();
}

}  // namespace troupe::cli
