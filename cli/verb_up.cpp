#include <csignal>
#include <filesystem>

#include "cli/local_cluster.hpp"
#include "cli/remote.hpp"
#include "cli/verb.hpp"
#include "planners/policy.hpp"

namespace troupe::cli {

namespace {

class up_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    o_.state = default_state_directory();
    app.add_option("CLUSTER", o_.cluster_file, "A cluster's file")->required();
    app.add_option("--policy", o_.policy, "Who decides")->capture_default_str();
    app.add_option("--state", o_.state, "Directory for the journal, logs and sockets")
        ->capture_default_str();
    app.add_option("--port", o_.port, "Use tcp on 127.0.0.1 from this port on, not Unix sockets");
    app.add_option("--keys", o_.keys, "Directory of keys (troupe keys make), with --port");
  }

  int run(output& out) override {
    if (!planners::make_policy(o_.policy))
      return out.bad(fmt::format("there is no policy '{}'", o_.policy));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    auto cluster = local_cluster::start(o_);
    if (!cluster) return out.bad(cluster.error());
    out.document({{"controller", (*cluster)->controller_address()},
                  {"processes", (*cluster)->names()},
                  {"state", o_.state}});
    for (const auto& name : (*cluster)->names())
      out.line("{:<20} process {}", name, (*cluster)->id(name));
    out.line(
        "\nUp. Try: troupe submit configs/jobs/hello.yaml --state {0}\nCtrl-C ends it; {0} keeps "
        "the journal.",
        o_.state);
    std::fflush(stdout);
    const timespec look_every{0, 200'000'000};
    while (sigtimedwait(&set, nullptr, &look_every) < 0)
      for (const auto& [name, status] : (*cluster)->ended())
        out.note("troupe: {} has ended with status {}; see {}/output", name, status, o_.state);
    return exit_done;
  }

 private:
  local_cluster_options o_;
};

}  // namespace

std::unique_ptr<verb> make_up() {
  return std::make_unique<up_verb>();
}

}  // namespace troupe::cli
