#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/reason.hpp"
#include "runtime/process.hpp"

namespace troupe::cli {

struct local_cluster_options {
  std::string cluster_file;
  std::string state;  // a directory; each process has one of its own in it
  std::string policy = "frenzy";
  std::string keys;
  std::string program;  // empty: this one
  int port = 0;         // first of as many tcp ports as there are listeners; 0: ipc
};

/// A cluster on this machine: a process for the controller, each gateway and each node, every one
/// the same program with another verb. They end with this object.
class local_cluster {
 public:
  static expected<std::unique_ptr<local_cluster>> start(local_cluster_options options);

  /// Host names in the order of start: the controller, gateways, nodes.
  const std::vector<std::string>& names() const { return names_; }
  const std::string& controller_address() const { return endpoints_.at("controller"); }
  pid_t id(const std::string& name) const { return running_.at(name)->id(); }

  /// SIGKILL, as a machine that loses power; and its start again.
  void kill(const std::string& name);
  expected<void> restart(const std::string& name);

  /// Names of processes that have ended of themselves since the last call, with their exit status.
  std::map<std::string, int> ended();

 private:
  expected<void> launch(const std::string& name);
  void describe(const troupe::cluster& c);

  local_cluster_options options_;
  std::vector<std::string> names_;
  std::map<std::string, std::string> endpoints_;
  std::map<std::string, std::vector<std::string>> commands_;
  std::map<std::string, std::unique_ptr<runtime::process>> running_;
};

}  // namespace troupe::cli
