#include <algorithm>

#include "cli/options/host_options.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/parse/reader.hpp"
#include "runtime/process/visible_gpus.hpp"

namespace troupe::cli {

namespace {

/// The agent on a machine with GPUs: starts the programs that the controller has ordered, and
/// reports them. Its end is theirs: SIGTERM to it stops them, each with its grace, and their
/// keepers kill them if it is killed.
class node_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    host_.options(app);
    host_.realtime_option(app);
    app.add_option("--name", name_, "Name of this node in the cluster file")->required();
    app.add_option("--gateway", host_.upstream, "Gateway address (default: from the cluster file)");
    app.add_option("--listen", host_.listen,
                   "Where nodes of the datacenter send tensors to this one (default: any port, if "
                   "there are keys or the gateway is on this machine; else tensors go through the "
                   "gateway)");
  }

  int run(output& out) override {
    if (auto ok = host_.load(); !ok) return out.bad(ok.error());
    const auto& nodes = host_.cluster->nodes;
    const auto it = std::ranges::find(nodes, name_, &troupe::node::name);
    if (it == nodes.end())
      return out.bad(fmt::format("{}: no node '{}'{}", host_.cluster_file, name_,
                                 formats::hint(name_, formats::names_of(nodes))));
    if (host_.upstream.empty()) host_.upstream = host_.cluster->datacenters[it->datacenter].gateway;
    if (host_.upstream.empty())
      return out.bad("a node needs --gateway, or its gateway's address in the cluster file");
    if (auto ok = runtime::check_visible_gpus(name_, it->gpus); !ok) return out.bad(ok.error());
    return run_host(
        out, name_,
        actors::real_host::node(host_.real(), static_cast<node_index>(it - nodes.begin())));
  }

 private:
  host_options host_;
  std::string name_;
};

}  // namespace

std::unique_ptr<verb> make_node() {
  return std::make_unique<node_verb>();
}

}  // namespace troupe::cli
