#include <filesystem>

#include "cli/remote.hpp"
#include "cli/verb.hpp"
#include "configs/load.hpp"

namespace troupe::cli {

namespace {

class submit_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", files_, "Jobs' files")->required();
    remote_.options(app);
  }

  int run(output& out) override {
    std::vector<job_spec> jobs;
    for (const auto& file : files_) {
      auto job = configs::load_job(file);
      if (!job) return out.bad(job.error());
      // A relative directory is the user's, and the node runs elsewhere.
      if (!job->command.empty())
        job->working_directory =
            (std::filesystem::current_path() / job->working_directory).lexically_normal();
      jobs.push_back(std::move(*job));
    }
    json document = json::array();
    for (auto& job : jobs) {
      const auto reply = remote_.ask<submit_reply>(submit_job{0, job});
      if (!reply) return out.no(reply.error());
      if (reply->job == 0) return out.no(reply->why);
      document.push_back({{"job", reply->job}, {"name", job.name}});
      out.line("job {}: {} is accepted", reply->job, job.name);
    }
    out.document({{"jobs", document}});
    return exit_done;
  }

 private:
  std::vector<std::string> files_;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_submit() {
  return std::make_unique<submit_verb>();
}

}  // namespace troupe::cli
