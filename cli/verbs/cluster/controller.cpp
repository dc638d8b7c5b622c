#include "cli/options/host_options.hpp"
#include "cli/options/policy_option.hpp"
#include "cli/verbs/verb.hpp"

namespace troupe::cli {

namespace {

/// The controller's process: it accepts jobs, decides, and journals both in its state directory.
/// Runs until a signal.
class controller_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    host_.options(app);
    app.add_option("--listen", host_.listen,
                   "Address to listen on (default: from the cluster file)");
    app.add_option("--policy", policy_, "Scheduling policy: " + known_policies())
        ->capture_default_str();
    add_policy_option(app, settings_);
    app.add_flag("--accept-older-journal", accept_older_,
                 "Accept a journal that has lost its latest entries (once)");
    app.add_flag("--local", local_, "All nodes are this machine: programs rendezvous at 127.0.0.1");
  }

  int run(output& out) override {
    if (auto ok = host_.load(); !ok) return out.bad(ok.error());
    // A plug-in is loaded into this process, before the journal is opened.
    auto policy = find_policy(policy_, {settings_, host_.cluster_file, {}, {}});
    if (!policy) return out.bad(policy.error());
    if (host_.listen.empty()) host_.listen = host_.cluster->controller;
    if (host_.listen.empty())
      return out.bad(
          "the controller needs an address: --listen, or `controller:` in the cluster file");
    auto options = host_.real();
    options.accept_older_journal = accept_older_;
    return run_host(out, "controller",
                    actors::real_host::controller(std::move(options), std::move(*policy), local_));
  }

 private:
  host_options host_;
  std::string policy_ = default_policy;
  std::vector<std::string> settings_;
  bool local_ = false, accept_older_ = false;
};

}  // namespace

std::unique_ptr<verb> make_controller() {
  return std::make_unique<controller_verb>();
}

}  // namespace troupe::cli
