#include <csignal>

#include "cli/common/controller_connection.hpp"
#include "cli/common/local_cluster.hpp"
#include "cli/verbs/verb.hpp"
#include "runtime/host/wait.hpp"

namespace troupe::cli {

namespace {

/// Ends the cluster that `troupe up` runs on a state directory, and waits until it has ended.
/// Journals stay, so that the next `up` continues its jobs.
class down_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("--state", state_, "State directory of `troupe up`")->capture_default_str();
    app.add_option("--patience", patience_s_, "Seconds to wait for it to end")
        ->capture_default_str();
  }

  int run(output& out) override {
    // By the owner of the directory's lock rather than a file with a number: the kernel drops the
    // lock with the process, and numbers are used again.
    const auto process = local_cluster::holder(state_);
    if (!process)
      return out.failure(fmt::format("no cluster is running on the state directory {}", state_));
    if (::kill(*process, SIGTERM) != 0)
      return out.failure(fmt::format(
          "process {} runs the cluster on {} and belongs to another user", *process, state_));
    // The lock is free only when all processes have ended, so a new `troupe up` can follow at once.
    const auto gone = [&] { return local_cluster::holder(state_) != process; };
    if (!runtime::wait_until(gone, patience_s_, 0.02))
      return out.failure(
          fmt::format("process {}, which runs the cluster on {}, did not end within {:.3g} s",
                      *process, state_, patience_s_));
    out.document({{"state", state_}, {"process", *process}});
    out.line("Cluster on {} stopped; its journal is kept.", state_);
    return exit_done;
  }

 private:
  std::string state_ = default_state_directory();
  double patience_s_ = 30;
};

}  // namespace

std::unique_ptr<verb> make_down() {
  return std::make_unique<down_verb>();
}

}  // namespace troupe::cli
