#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "cli/cluster/local_cluster.hpp"
#include "cli/connection/controller_connection.hpp"
#include "cli/options/policy_option.hpp"
#include "cli/output/human.hpp"
#include "cli/verbs/verb.hpp"

namespace troupe::cli {

namespace {

/// Waits that long for SIGINT or SIGTERM, which this thread has blocked; true: one is pending.
bool stop_requested(long wait_ms) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const timespec wait{0, wait_ms * 1'000'000};
  return sigtimedwait(&set, nullptr, &wait) > 0;
}

/// A cluster of processes on this machine, in this process's hands or, with --detach, in a child's.
/// It ends with that process.
class up_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    o_.state = default_state_directory();
    app.add_option("CLUSTER", o_.cluster_file, "Cluster file")->required();
    app.add_option("--policy", o_.policy, "Scheduling policy: " + known_policies())
        ->capture_default_str();
    add_policy_option(app, o_.policy_settings);
    app.add_option("--state", o_.state, "Directory for journal, logs and sockets")
        ->capture_default_str();
    app.add_option("--port", o_.port,
                   "Use TCP on 127.0.0.1, starting at this port, instead of Unix sockets")
        ->check(CLI::Range(1, 65535));
    app.add_option("--keys", o_.keys, "Key directory (troupe keys make), with --port");
    app.add_flag("--detach", detach_, "Return when the cluster is ready; `troupe down` stops it");
    app.add_option("--patience", patience_s_, "Seconds to wait until all hosts are up")
        ->capture_default_str();
  }

  int run(output& out) override {
    if (auto policy = find_policy(o_.policy, {o_.policy_settings, o_.cluster_file, {}, {}});
        !policy)
      return out.bad(policy.error());
    return detach_ ? run_detached(out) : run_here(out);
  }

 private:
  int run_here(output& out) {
    (void)stop_requested(0);  // from here on they are only polled
    auto started = local_cluster::start(o_);
    if (!started)
      return is_bad_file(started.error()) ? out.bad(started.error()) : out.failure(started.error());
    const auto cluster = std::move(*started);
    const auto ready = cluster->wait_until_ready(patience_s_, [] { return stop_requested(0); });
    if (!ready) return out.failure(ready.error());
    print_ready(out, *cluster);
    // Only now: until then errors go to the user's terminal.
    if (detach_) let_go();
    // A node that has ended stays away, as a machine without power would: leases of its jobs
    // expire, and they run elsewhere.
    while (!stop_requested(200))
      for (const auto& gone : cluster->ended()) {
        out.note("troupe: {}", gone.sentence);
        if (gone.name == "controller") return end(out, *cluster, exit_no);  // useless without it
      }
    return end(out, *cluster, exit_done);
  }

  /// Running work has its grace, unless another signal comes.
  static int end(output& out, local_cluster& cluster, int status) {
    cluster.end([] { return stop_requested(0); },
                [&out](const std::string& sentence) {
                  out.note("troupe: {}; a second signal, or Ctrl-C, does not wait", sentence);
                });
    return status;
  }

  void print_ready(const output& out, const local_cluster& cluster) const {
    const auto fronts = cluster.fronts();
    out.document({{"controller", cluster.controller_address()},
                  {"processes", cluster.names()},
                  {"fronts", fronts},
                  {"state", o_.state},
                  {"process", ::getpid()}});
    for (const auto& name : cluster.names()) {
      const auto at = fronts.find(name);
      out.line("{:<20} process {}{}", name, cluster.id(name),
               at == fronts.end() ? "" : "  " + at->second);
    }
    const auto where =
        o_.state == default_state_directory() ? std::string{} : " --state " + shell_word(o_.state);
    out.line(
        "\nReady. Try: troupe submit configs/jobs/hello.yaml{0}\n{1} stops it; the journal is in "
        "{2}.",
        where, detach_ ? "troupe down" + where : "Ctrl-C", o_.state);
    (void)flush_output();
  }

  /// A child process runs the cluster; this one waits until it reports that the cluster is ready.
  /// Call before starting threads, which a fork does not copy.
  int run_detached(output& out) {
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0) return out.failure("cannot create a pipe");
    (void)flush_output();
    const auto child = ::fork();
    if (child < 0) return out.failure("cannot start a process in the background");
    if (child == 0) {
      ::close(ready[0]);
      ready_ = ready[1];
      // Its own session: Ctrl-C in the terminal and its hangup do not reach the cluster.
      ::setsid();
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // until it is ready, it ends with its parent
      return run_here(out);
    }
    ::close(ready[1]);
    char byte = 0;
    while (::read(ready[0], &byte, 1) < 0 && errno == EINTR) {
    }
    // Without a byte the pipe's other end closed with the child: its exit status is the outcome.
    if (byte != 0) return exit_done;
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : exit_no;
  }

  /// The cluster is ready: detach from the terminal and the parent.
  void let_go() const {
    ::prctl(PR_SET_PDEATHSIG, 0);
    // The terminal's descriptors must go: a pipe that captures this command's output would stay
    // open.
    const auto log = (std::filesystem::path{o_.state} / "output" / "up.log").string();
    const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int to = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ::dup2(in, STDIN_FILENO);
    ::dup2(to >= 0 ? to : in, STDOUT_FILENO);
    ::dup2(to >= 0 ? to : in, STDERR_FILENO);
    [[maybe_unused]] const auto written = ::write(ready_, "r", 1);
    ::close(ready_);
  }

  local_cluster_options o_;
  bool detach_ = false;
  double patience_s_ = 60;
  int ready_ = -1;  // background: descriptor for reporting readiness
};

}  // namespace

std::unique_ptr<verb> make_up() {
  return std::make_unique<up_verb>();
}

}  // namespace troupe::cli
