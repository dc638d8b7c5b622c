#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "actors/worlds/real_host.hpp"
#include "cli/output/output.hpp"

namespace troupe::cli {

/// Shared by the verbs that run one process of a cluster.
struct host_options {
  std::string cluster_file, state, keys, listen, upstream;
  bool realtime = false;
  std::shared_ptr<const troupe::cluster> cluster;

  void options(CLI::App& app);
  /// --realtime, for hosts through which a training's messages go.
  void realtime_option(CLI::App& app);
  /// Loads the cluster, and takes real-time priority if it is wanted.
  expected<void> load();
  actors::real_host_options real() const {
    actors::real_host_options o;
    o.cluster = cluster;
    o.listen = listen;
    o.upstream = upstream;
    o.keys = keys;
    o.state = state;
    return o;
  }
};

/// Announces the host, runs it until it is stopped, and reports why if it failed.
int run_host(output& out, const std::string& name,
             expected<std::unique_ptr<actors::real_host>> host);

}  // namespace troupe::cli
