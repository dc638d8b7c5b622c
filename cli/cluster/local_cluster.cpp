#include "cli/cluster/local_cluster.hpp"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "actors/node/awaited_work.hpp"
#include "actors/worlds/real_host.hpp"
#include "cli/cluster/socket_directory.hpp"
#include "cli/connection/controller_connection.hpp"
#include "formats/load/load.hpp"
#include "messages/base/absolute_path.hpp"
#include "messages/base/whole_file.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/private_files.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/visible_gpus.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// A name as a path component.
std::string flat(std::string name) {
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

constexpr const char* lock_name = "up.lock";
constexpr double ending_s = 3;        // between SIGTERM and SIGKILL
constexpr double beyond_grace_s = 8;  // that a node may take to kill, and to report what ended

fs::path waits_file(const fs::path& state, const std::string& node) {
  return state / flat(node) / actors::waiting_file_name;
}

/// "n1, n2 are absent"; empty: all are present.
std::string absentees(const query_reply& r) {
  std::vector<std::string> names;
  for (const auto& d : r.gateways_absent) names.push_back("the gateway of " + d);
  for (const auto& n : r.nodes)
    if (!n.present && !n.removed.value_or(false)) names.push_back(n.name);
  if (names.empty()) return {};
  return fmt::format("{} {} absent", fmt::join(names, ", "), names.size() == 1 ? "is" : "are");
}

std::size_t longest_socket_name(const troupe::cluster& c) {
  std::size_t longest = std::string{"controller"}.size();
  for (const auto& d : c.datacenters) longest = std::max(longest, (d.name + "-gateway").size());
  for (const auto& n : c.nodes) longest = std::max(longest, n.name.size());
  return longest;
}

}  // namespace

waiting_nodes nodes_that_wait(const std::string& state) {
  waiting_nodes all;
  std::error_code failed;
  for (fs::directory_iterator it{state, failed}, end; !failed && it != end; it.increment(failed)) {
    const auto name = it->path().filename().string();
    std::ifstream in{waits_file(state, name)};
    double within_s = 0;
    std::string sentence;
    if (!(in >> within_s) || !std::getline(in >> std::ws, sentence)) continue;
    all.within_s = std::max(all.within_s, within_s);
    all.sentences.push_back(name + " " + sentence);
  }
  std::ranges::sort(all.sentences);
  return all;
}

expected<std::unique_ptr<local_cluster>> local_cluster::start(local_cluster_options options) {
  auto c = formats::load_cluster(options.cluster_file);
  if (!c) return refuse(c.error());
  // Where GPUs are emulated, the user's shell has not chosen the device that computes.
  if (options.emulated) ::unsetenv("CUDA_VISIBLE_DEVICES");
  for (const auto& n : c->nodes)
    if (auto ok = runtime::check_visible_gpus(n.name, n.gpus); !ok) return refuse(ok.error());
  auto result = std::unique_ptr<local_cluster>{new local_cluster};
  // Processes get absolute paths, since they may have another working directory.
  std::vector<std::string*> paths{&options.state, &options.cluster_file};
  if (is_plugin(options.policy)) paths.push_back(&options.policy);
  if (!options.keys.empty()) paths.push_back(&options.keys);
  for (auto* path : paths) {
    const auto whole = absolute_path(*path);
    if (!whole) return refuse(whole.error());
    *path = fs::path{*whole}.lexically_normal().string();
  }
  // The processes inherit the umask: journals and logs have users' commands in them.
  runtime::make_files_private();
  result->options_ = std::move(options);
  if (auto ok = result->prepare(*c); !ok) return refuse(ok.error());
  for (const auto& name : result->names_)
    if (auto ok = result->launch(name); !ok) return refuse(ok.error());
  return result;
}

expected<void> local_cluster::prepare(const troupe::cluster& c) {
  const fs::path state{options_.state};
  for (const auto& directory : {state, state / "output"})
    if (auto ok = runtime::prepare_private_directory(directory.string()); !ok) return ok;
  auto lock = runtime::file_lock::take((state / lock_name).string(),
                                       fmt::format("the state directory {}", options_.state));
  if (!lock) return refuse(lock.error());
  lock_ = std::move(*lock);
  std::error_code ignored;
  fs::remove(address_file(options_.state), ignored);  // clients wait for the new one
  std::string sockets;
  if (options_.port > 0) {
    auto ports =
        runtime::port_claim::take(options_.port, 1 + static_cast<int>(c.datacenters.size()));
    if (!ports) return refuse(ports.error());
    ports_ = std::move(*ports);
  } else {
    auto directory = socket_directory(state, longest_socket_name(c));
    if (!directory) return refuse(directory.error());
    sockets = directory->string();
  }
  describe(c, sockets);
  // Before the controller listens: clients try again until it does, and need no second wait for a
  // file.
  return write_whole_file(address_file(options_.state), controller_address() + '\n');
}

local_cluster::~local_cluster() {
  end([] { return true; });
}

bool local_cluster::have_ended(const std::vector<std::string>& names) {
  return std::ranges::all_of(names, [this](const auto& name) {
    const auto it = running_.find(name);
    return it == running_.end() || it->second.process->poll().has_value();
  });
}

// A second signal is another one: equal ones that are pending at a time are one.
void local_cluster::end_hosts(const std::vector<std::string>& hosts,
                              const std::function<bool()>& at_once,
                              const std::function<void(const std::string&)>& say) {
  const auto signal_all = [&](int signal) {
    for (const auto& name : hosts)
      if (const auto it = running_.find(name); it != running_.end())
        ::kill(it->second.process->id(), signal);
  };
  signal_all(SIGTERM);
  const runtime::stopwatch waited;
  double limit_s = ending_s;
  bool hurried = false;
  std::set<std::string> said;
  while (!have_ended(hosts) && waited.s() < limit_s) {
    if (!hurried && at_once()) {
      hurried = true;
      limit_s = waited.s() + ending_s;
      signal_all(SIGINT);
    }
    if (!hurried) {
      const auto waiting = nodes_that_wait(options_.state);
      if (!waiting.sentences.empty())
        limit_s = std::max(limit_s, waiting.within_s + beyond_grace_s + ending_s);
      for (const auto& sentence : waiting.sentences)
        if (say && said.insert(sentence).second) say(sentence);
    }
    runtime::pause(0.02);
  }
}

void local_cluster::end(const std::function<bool()>& at_once,
                        const std::function<void(const std::string&)>& say) {
  if (!lock_) return;  // it is another process's, or has ended
  // Fronts first: the answers that they have begun need the nodes' decoders.
  end_hosts(fronts_, at_once, say);
  end_hosts(nodes_, at_once, say);
  std::error_code ignored;
  fs::remove(address_file(options_.state), ignored);
  // All at once, then one wait for all: an orderly end of one does not need the others.
  for (auto& [name, p] : running_) p.process->terminate();
  runtime::wait_until([this] { return have_ended(names_); }, ending_s);
  // SIGKILL for those that are left.
  running_.clear();
  for (const auto& name : names_) fs::remove(waits_file(options_.state, name), ignored);
  remove_socket_directory(options_.state);
  lock_.reset();
}

std::optional<pid_t> local_cluster::holder(const std::string& state) {
  return runtime::file_lock::holder((fs::path{state} / lock_name).string());
}

void local_cluster::describe(const troupe::cluster& c, const std::string& sockets) {
  // Ports are claimed as one range, so hosts can be numbered in the order of the file. Without a
  // port, sockets are files that only this user may open, and need no keys.
  int port = options_.port;
  auto endpoint = [&](const std::string& name) {
    return options_.port > 0 ? fmt::format("tcp://127.0.0.1:{}", port++)
                             : fmt::format("ipc://{}", (fs::path{sockets} / flat(name)).string());
  };
  const auto self =
      options_.program.empty() ? fs::read_symlink("/proc/self/exe").string() : options_.program;
  auto add = [&](const std::string& name, const std::string& verb, std::vector<std::string> rest) {
    names_.push_back(name);
    auto& command = commands_[name];
    command = {self,        verb,
               "--cluster", options_.cluster_file,
               "--state",   (fs::path{options_.state} / flat(name)).string()};
    if (!options_.keys.empty()) command.insert(command.end(), {"--keys", options_.keys});
    if (options_.realtime.contains(name)) command.push_back("--realtime");
    command.insert(command.end(), rest.begin(), rest.end());
  };
  endpoints_["controller"] = endpoint("controller");
  std::vector<std::string> decides{"--local", "--policy", options_.policy, "--listen",
                                   endpoints_["controller"]};
  for (const auto& word : options_.policy_settings)
    decides.insert(decides.end(), {"--policy-option", word});
  add("controller", "controller", std::move(decides));
  for (const auto& d : c.datacenters)
    endpoints_[d.name + "/gateway"] = endpoint(d.name + "/gateway");
  for (const auto& d : c.datacenters) {
    const auto name = d.name + "/gateway";
    std::vector<std::string> rest{"--datacenter",   d.name,         "--listen",
                                  endpoints_[name], "--controller", endpoints_["controller"]};
    // One of two gateways connects to the other. The journal's order decides which, not the file's.
    for (const auto& other : c.datacenters)
      if (other.name != d.name)
        rest.insert(rest.end(),
                    {"--gateway", other.name + "=" + endpoints_[other.name + "/gateway"]});
    add(name, "gateway", rest);
  }
  for (const auto& n : c.nodes) {
    std::vector<std::string> rest{"--name", n.name, "--gateway",
                                  endpoints_[c.datacenters[n.datacenter].name + "/gateway"]};
    // Nodes that listen exchange tensors directly; the claimed range has ports for the controller
    // and gateways only.
    if (options_.port == 0) rest.insert(rest.end(), {"--listen", endpoint(n.name)});
    add(n.name, "node", rest);
    nodes_.push_back(n.name);
  }
  for (const auto& f : c.fronts) {
    if (!options_.fronts) break;
    add(f.name, "serve",
        {"--name", f.name, "--gateway", endpoints_[c.datacenters[f.datacenter].name + "/gateway"]});
    fronts_.push_back(f.name);
  }
}

std::string local_cluster::url_file(const std::string& front) const {
  return (fs::path{options_.state} / flat(front) / "url").string();
}

std::map<std::string, std::string> local_cluster::fronts() const {
  std::map<std::string, std::string> urls;
  for (const auto& name : fronts_) {
    std::ifstream in{url_file(name)};
    std::string url;
    if (std::getline(in, url)) urls[name] = url;
  }
  return urls;
}

std::string local_cluster::log_of(const std::string& name) const {
  return (fs::path{options_.state} / "output" / (flat(name) + ".log")).string();
}

std::string local_cluster::last_lines(const std::string& name, std::uintmax_t from) const {
  // The reason of a crash is in the last lines, and a log may be large.
  constexpr std::uintmax_t max_bytes = 4096;
  constexpr std::size_t max_lines = 5;
  std::ifstream in{log_of(name), std::ios::binary | std::ios::ate};
  if (!in) return {};
  const auto size = static_cast<std::uintmax_t>(in.tellg());
  in.seekg(static_cast<std::streamoff>(std::max(from, size > max_bytes ? size - max_bytes : 0)));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) lines.push_back(line);
  std::string text;
  for (std::size_t i = lines.size() - std::min(lines.size(), max_lines); i < lines.size(); ++i)
    text += "\n  " + lines[i];
  return text;
}

expected<void> local_cluster::launch(const std::string& name) {
  std::error_code ignored;
  fs::remove(url_file(name), ignored);  // a front's, of an earlier start
  fs::remove(waits_file(options_.state, name), ignored);
  runtime::process_options o;
  o.command = commands_.at(name);
  o.output = log_of(name);
  std::error_code none_yet;
  // Logs are appended to: last_lines() must not quote an earlier start.
  const auto size = fs::file_size(o.output, none_yet);
  auto started = runtime::process::start(o);
  if (!started) return refuse(started.error());
  running_[name] = {std::move(*started), none_yet ? 0 : size};
  return {};
}

void local_cluster::kill(const std::string& name) {
  auto it = running_.find(name);
  if (it == running_.end()) return;
  // Kills the process only: its children must end by themselves.
  ::kill(it->second.process->id(), SIGKILL);
  running_.erase(it);
}

expected<void> local_cluster::restart(const std::string& name) {
  kill(name);
  return launch(name);
}

std::vector<ended_process> local_cluster::ended() {
  std::vector<ended_process> result;
  for (auto it = running_.begin(); it != running_.end();) {
    auto& [name, p] = *it;
    const auto status = p.process->poll();
    if (status) {
      const auto lines = last_lines(name, p.log_from);
      result.push_back(
          {name, *status,
           fmt::format("{} (process {}) exited with status {}; {}{}", name, p.process->id(),
                       *status, lines.empty() ? "it wrote nothing to " : "last lines of ",
                       log_of(name) + (lines.empty() ? "" : ":" + lines))});
    }
    it = status ? running_.erase(it) : std::next(it);
  }
  return result;
}

expected<void> local_cluster::wait_until_ready(double patience_s,
                                               const std::function<bool()>& interrupted) {
  const runtime::stopwatch waited;
  actors::real_host_options o;
  o.upstream = controller_address();
  o.keys = options_.keys;
  std::unique_ptr<actors::real_host> client;
  std::string missing;
  while (waited.s() < patience_s) {
    // A process that cannot start (a port in use, a bad file) would otherwise be reported only as
    // absent, after the whole patience.
    if (const auto gone = ended(); !gone.empty())
      return refuse(reason::kind::unavailable, gone.front().sentence);
    if (interrupted && interrupted())
      return refuse(reason::kind::unavailable, "interrupted before the cluster was ready");
    if (!client) {
      // In short attempts, to notice in between that a process has ended.
      auto connected = actors::real_host::client(o, 0.5);
      if (connected)
        client = std::move(*connected);
      else
        missing = fmt::format("the controller does not answer: {}", connected.error().text);
      continue;
    }
    constexpr job_id none = ~job_id{0};  // only the nodes are needed
    auto reply = client->ask(query_jobs{0, none}, 1).reply;
    if (const auto* r = reply ? std::get_if<query_reply>(&reply->first) : nullptr) {
      missing = absentees(*r);
      if (missing.empty() && fronts().size() < fronts_.size()) missing = "front not listening yet";
      if (missing.empty()) return {};
    }
    runtime::pause(0.05);
  }
  return refuse(reason::kind::unavailable,
                fmt::format("the cluster is not ready after {:.3g} s: {}; logs are in {}",
                            patience_s, missing, (fs::path{options_.state} / "output").string()));
}

}  // namespace troupe::cli
