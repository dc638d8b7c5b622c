#include "cli/common/job_endings.hpp"
#include "cli/verbs/verb.hpp"

namespace troupe::cli {

namespace {

class wait_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", jobs_, "Jobs' numbers")->required();
    remote_.options(app);
    app.footer(
        "Exit status: 0 if all jobs finished, 1 if one did not (or the controller did not answer "
        "within --patience). --json has the programs' exit statuses.");
  }

  int run(output& out) override {
    json document = json::array();
    int status = exit_done;
    const auto ok = wait_for_jobs(remote_, jobs_, [&](const job_status& j) {
      document.push_back(ending_document(j));
      out.line("{}", ending_text(j));
      std::fflush(stdout);
      if (j.state != job_state::finished) status = exit_no;
    });
    if (!ok) return out.no(ok.error());
    out.document({{"jobs", document}});
    return status;
  }

 private:
  std::vector<job_id> jobs_;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_wait() {
  return std::make_unique<wait_verb>();
}

}  // namespace troupe::cli
