#include "cli/options/host_options.hpp"

#include "formats/load/load.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/realtime.hpp"

namespace troupe::cli {

void host_options::options(CLI::App& app) {
  app.add_option("--cluster", cluster_file,
                 "Cluster file; of all hosts but the controller only their own entry counts")
      ->required();
  app.add_option("--state", state, "State directory of this host")->required();
  app.add_option("--keys", keys, "Key directory (troupe keys make); TCP is then encrypted");
}

void host_options::realtime_option(CLI::App& app) {
  app.add_flag("--realtime", realtime,
               "Run at real-time priority (SCHED_RR) if permitted: for training hosts that share "
               "CPUs with decoders");
}

expected<void> host_options::load() {
  auto c = formats::load_cluster(cluster_file);
  if (!c) return refuse(c.error());
  cluster = std::make_shared<const troupe::cluster>(std::move(*c));
  if (!realtime) return {};
  // Permission is often missing (RLIMIT_RTPRIO); a host without priority still works.
  if (const auto ok = runtime::take_realtime_priority(); !ok)
    runtime::log(runtime::log_level::warn, "host", "running at normal priority",
                 {{"why", ok.error().text}});
  return {};
}

// Until a signal: SIGTERM and SIGINT end the host in order, a node after its programs.
int run_host(output& out, const std::string& name,
             expected<std::unique_ptr<actors::real_host>> host) {
  if (!host) return out.failure(fmt::format("{}: {}", name, host.error().text));
  runtime::log(runtime::log_level::info, name, "listening", {{"endpoint", (*host)->endpoint()}});
  if (auto ok = (*host)->run(); !ok)
    return out.failure(fmt::format("{}: {}", name, ok.error().text));
  runtime::log(runtime::log_level::info, name, "stopping on signal");
  return exit_done;
}

}  // namespace troupe::cli
