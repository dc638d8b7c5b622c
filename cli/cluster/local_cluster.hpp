#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/options/policy_option.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "runtime/host/file_lock.hpp"
#include "runtime/process/process.hpp"
#include "runtime/zeromq/port_claim.hpp"

namespace troupe::cli {

struct local_cluster_options {
  std::string cluster_file;
  std::string state;  // a directory with one subdirectory per process
  std::string policy = default_policy;
  std::vector<std::string> policy_settings{};  // of --policy-option
  std::string keys;
  std::string program;             // empty: this one
  int port = 0;                    // first of as many tcp ports as there are listeners; 0: ipc
  bool fronts = true;              // false: its fronts are the caller's
  bool emulated = false;           // its GPUs are: the shell's CUDA_VISIBLE_DEVICES says nothing
  std::set<std::string> realtime;  // gateways and nodes that get --realtime, by host name
};

/// A process of a cluster that has ended by itself.
struct ended_process {
  std::string name;
  int status = 0;        // 128 + n for a signal n
  std::string sentence;  // error with the last lines of its log
};

/// The work that nodes wait for before they end.
struct waiting_nodes {
  double within_s = 0;                 // at most that long
  std::vector<std::string> sentences;  // "e-0 waits at most 5 s for job 3 (resnet)"
};
/// Those with a directory in this state directory.
waiting_nodes nodes_that_wait(const std::string& state);

/// A cluster on this machine: one process for the controller, each gateway, node and front, all
/// running this program. They end with this object.
class local_cluster {
 public:
  /// Locks the state directory and the ports, and starts the processes; fails with the present
  /// owner of a lock.
  static expected<std::unique_ptr<local_cluster>> start(local_cluster_options options);
  /// Without waiting for what runs.
  ~local_cluster();
  local_cluster(const local_cluster&) = delete;

  /// The process that runs a cluster with this state directory; nothing if there is none.
  static std::optional<pid_t> holder(const std::string& state);

  /// Waits until the controller answers, all gateways and nodes are present, and the fronts listen.
  /// Fails with the reason if a process ends, if it takes longer than `patience_s`, or if
  /// `interrupted` returns true.
  expected<void> wait_until_ready(double patience_s, const std::function<bool()>& interrupted = {});

  /// Host names in the order of start: the controller, gateways, nodes, fronts.
  const std::vector<std::string>& names() const { return names_; }
  /// URLs of the fronts that listen, by name.
  std::map<std::string, std::string> fronts() const;
  const std::string& controller_address() const { return endpoints_.at("controller"); }
  const std::string& gateway_address(const std::string& datacenter) const {
    return endpoints_.at(datacenter + "/gateway");
  }
  pid_t id(const std::string& name) const { return running_.at(name).process->id(); }

  /// Ends its processes: the nodes first, with what runs there, which has its grace, and then those
  /// by which they report how it ended. `at_once`: asked repeatedly; once it is true nothing is
  /// waited for. `say`: is told what is waited for.
  void end(const std::function<bool()>& at_once,
           const std::function<void(const std::string&)>& say = {});

  /// SIGKILL, like a power failure; and a restart.
  void kill(const std::string& name);
  expected<void> restart(const std::string& name);

  /// The processes that have ended by themselves since the last call.
  std::vector<ended_process> ended();

 private:
  struct host_process {
    std::unique_ptr<runtime::process> process;
    std::uintmax_t log_from = 0;  // offset in its log where this start begins
  };

  local_cluster() = default;
  expected<void> prepare(const troupe::cluster& c);
  expected<void> launch(const std::string& name);
  void describe(const troupe::cluster& c, const std::string& sockets);
  std::string url_file(const std::string& front) const;
  bool have_ended(const std::vector<std::string>& names);
  void end_hosts(const std::vector<std::string>& hosts, const std::function<bool()>& at_once,
                 const std::function<void(const std::string&)>& say);
  std::string log_of(const std::string& name) const;
  std::string last_lines(const std::string& name, std::uintmax_t from) const;

  local_cluster_options options_;
  std::optional<runtime::file_lock> lock_;
  runtime::port_claim ports_;
  std::vector<std::string> names_, nodes_, fronts_;
  std::map<std::string, std::string> endpoints_;
  std::map<std::string, std::vector<std::string>> commands_;
  std::map<std::string, host_process> running_;
};

}  // namespace troupe::cli
