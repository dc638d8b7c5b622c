#include <algorithm>
#include <csignal>
#include <set>

#include <fmt/ranges.h>

#include "cli/cluster/local_cluster.hpp"
#include "cli/connection/controller_connection.hpp"
#include "cli/verbs/verb.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::cli {

namespace {

/// Ends the cluster that `troupe up` runs on a state directory, and waits until it has ended. What
/// runs has its grace, as with every stop. Journals stay, so that the next `up` continues its jobs.
class down_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("--state", state_, "State directory of `troupe up`")->capture_default_str();
    app.add_option("--patience", patience_s_,
                   "Seconds to wait for it to end, beside what running jobs have to save")
        ->capture_default_str();
    app.add_flag("--now", now_, "Running jobs get no time to save");
  }

  int run(output& out) override {
    // By the owner of the directory's lock rather than a file with a number: the kernel drops the
    // lock with the process, and numbers are used again.
    const auto process = local_cluster::holder(state_);
    if (!process) return out.failure(nobody_there());
    if (::kill(*process, SIGTERM) != 0)
      return out.failure(fmt::format(
          "process {} runs the cluster on {} and belongs to another user", *process, state_));
    // Another signal is the second one, which does not wait.
    if (now_) ::kill(*process, SIGINT);
    if (!wait_for_the_end(out, *process))
      return out.failure(
          fmt::format("process {}, which runs the cluster on {}, did not end within {:.3g} s",
                      *process, state_, patience_s_));
    out.document({{"state", state_}, {"process", *process}});
    out.line("Cluster on {} stopped; its journal is kept.", state_);
    return exit_done;
  }

 private:
  std::string nobody_there() const {
    auto text = fmt::format("no cluster is running on the state directory {}", state_);
    if (const auto others = states_in_use(state_); !others.empty())
      return text + fmt::format("; one is up on {} (--state)", fmt::join(others, ", "));
    return text +
           "; SIGTERM ends a host that was started by hand (controller, gateway, node, serve)";
  }

  /// The lock is free only when all processes have ended, so a new `troupe up` can follow at once.
  bool wait_for_the_end(output& out, pid_t process) const {
    const runtime::stopwatch waited;
    double grace_s = 0;
    std::set<std::string> said;
    while (local_cluster::holder(state_) == process) {
      const auto waiting = now_ ? waiting_nodes{} : nodes_that_wait(state_);
      grace_s = std::max(grace_s, waiting.within_s);
      for (const auto& sentence : waiting.sentences)
        if (said.insert(sentence).second)
          out.note("{}; `troupe down --now` does not wait", sentence);
      if (waited.s() > grace_s + patience_s_) return false;
      runtime::pause(0.02);
    }
    return true;
  }

  bool now_ = false;
  std::string state_ = default_state_directory();
  double patience_s_ = 30;
};

}  // namespace

std::unique_ptr<verb> make_down() {
  return std::make_unique<down_verb>();
}

}  // namespace troupe::cli
