#include "cli/local_cluster.hpp"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "cli/remote.hpp"
#include "configs/load.hpp"
#include "runtime/private_files.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// A name as a part of a path.
std::string flat(std::string name) {
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

/// A Unix socket's path may have no more than 107 bytes: where the state lies deep, sockets lie
/// elsewhere.
fs::path socket_directory(const fs::path& state) {
  constexpr std::size_t longest_state = 70;
  if (state.native().size() <= longest_state) return state / "sockets";
  return fs::temp_directory_path() /
         fmt::format("troupe-{:x}", std::hash<std::string>{}(state.string()));
}

}  // namespace

expected<std::unique_ptr<local_cluster>> local_cluster::start(local_cluster_options options) {
  auto c = configs::load_cluster(options.cluster_file);
  if (!c) return tl::unexpected<reason>(c.error());
  auto result = std::unique_ptr<local_cluster>{new local_cluster};
  options.state = fs::absolute(options.state).lexically_normal().string();
  options.cluster_file = fs::absolute(options.cluster_file).lexically_normal().string();
  runtime::make_files_private();
  for (const auto& directory : {fs::path{options.state}, socket_directory(options.state),
                                fs::path{options.state} / "output"})
    if (auto ok = runtime::prepare_private_directory(directory.string()); !ok)
      return tl::unexpected<reason>(ok.error());
  result->options_ = std::move(options);
  result->describe(*c);
  for (const auto& name : result->names_)
    if (auto ok = result->launch(name); !ok) return tl::unexpected<reason>(ok.error());
  std::ofstream{address_file(result->options_.state)} << result->controller_address() << '\n';
  return result;
}

void local_cluster::describe(const troupe::cluster& c) {
  int port = options_.port;
  auto endpoint = [&](const std::string& name) {
    return options_.port > 0
               ? fmt::format("tcp://127.0.0.1:{}", port++)
               : fmt::format("ipc://{}", (socket_directory(options_.state) / flat(name)).string());
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
    command.insert(command.end(), rest.begin(), rest.end());
  };
  endpoints_["controller"] = endpoint("controller");
  add("controller", "controller",
      {"--local", "--policy", options_.policy, "--listen", endpoints_["controller"]});
  std::vector<std::string> others;  // each gateway greets those before it
  for (const auto& d : c.datacenters) {
    const auto name = d.name + "/gateway";
    endpoints_[name] = endpoint(name);
    std::vector<std::string> rest{"--datacenter",   d.name,         "--listen",
                                  endpoints_[name], "--controller", endpoints_["controller"]};
    rest.insert(rest.end(), others.begin(), others.end());
    add(name, "gateway", rest);
    others.insert(others.end(), {"--gateway", d.name + "=" + endpoints_[name]});
  }
  for (const auto& n : c.nodes)
    add(n.name, "node",
        {"--name", n.name, "--gateway", endpoints_[c.datacenters[n.datacenter].name + "/gateway"]});
}

expected<void> local_cluster::launch(const std::string& name) {
  runtime::process_options o;
  o.command = commands_.at(name);
  o.output = (fs::path{options_.state} / "output" / (flat(name) + ".log")).string();
  auto started = runtime::process::start(o);
  if (!started) return tl::unexpected<reason>(started.error());
  running_[name] = std::move(*started);
  return {};
}

void local_cluster::kill(const std::string& name) {
  auto it = running_.find(name);
  if (it == running_.end()) return;
  ::kill(it->second->id(), SIGKILL);  // the process alone: what it had started must fend for itself
  running_.erase(it);
}

expected<void> local_cluster::restart(const std::string& name) {
  kill(name);
  return launch(name);
}

std::map<std::string, int> local_cluster::ended() {
  std::map<std::string, int> result;
  for (auto it = running_.begin(); it != running_.end();) {
    const auto status = it->second->poll();
    if (status) result[it->first] = *status;
    it = status ? running_.erase(it) : std::next(it);
  }
  return result;
}

}  // namespace troupe::cli
