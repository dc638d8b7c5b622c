#include <algorithm>

#include "cli/options/host_options.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/parse/reader.hpp"

namespace troupe::cli {

namespace {

/// The process through which a datacenter exchanges frames with the controller and other
/// datacenters. Keeps no state of jobs, so it may be restarted at any time.
class gateway_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    host_.options(app);
    host_.realtime_option(app);
    app.add_option("--datacenter,--name", datacenter_, "Datacenter of this gateway")->required();
    app.add_option("--listen", host_.listen,
                   "Address to listen on (default: from the cluster file)");
    app.add_option("--controller", host_.upstream,
                   "Controller address (default: from the cluster file)");
    app.add_option(
        "--gateway", gateways_,
        "Address of another gateway, DATACENTER=ADDRESS (default: from the cluster file)");
    app.add_option(
           "--connections", connections_,
           "Connections for tensors to each other gateway (default: as many as fill the link)")
        ->check(CLI::Range(1, 63));
  }

  int run(output& out) override {
    if (auto ok = host_.load(); !ok) return out.bad(ok.error());
    const auto& sites = host_.cluster->datacenters;
    const auto it = std::ranges::find(sites, datacenter_, &datacenter::name);
    if (it == sites.end())
      return out.bad(fmt::format("{}: no datacenter '{}'{}", host_.cluster_file, datacenter_,
                                 formats::hint(datacenter_, formats::names_of(sites))));
    // Options win over the file: behind NAT a gateway listens on another address than others reach
    // it at.
    if (host_.listen.empty()) host_.listen = it->gateway;
    if (host_.upstream.empty()) host_.upstream = host_.cluster->controller;
    if (host_.listen.empty() || host_.upstream.empty())
      return out.bad("a gateway needs --listen and --controller, or both in the cluster file");
    auto options = host_.real();
    options.connections = connections_;
    if (auto ok = read_gateways(options); !ok) return out.bad(ok.error());
    return run_host(out, datacenter_ + "/gateway",
                    actors::real_host::gateway(std::move(options),
                                               static_cast<std::uint32_t>(it - sites.begin())));
  }

 private:
  expected<void> read_gateways(actors::real_host_options& options) const {
    const auto& sites = host_.cluster->datacenters;
    for (const auto& given : gateways_) {
      const auto sign = given.find('=');
      const auto it = std::ranges::find(sites, given.substr(0, sign), &datacenter::name);
      if (sign == std::string::npos || it == sites.end())
        return refuse(reason::kind::invalid,
                      fmt::format("--gateway {}: expected DATACENTER=ADDRESS", given));
      // Messages name datacenters by their index in the file.
      options.gateways[static_cast<std::uint32_t>(it - sites.begin())] = given.substr(sign + 1);
    }
    return {};
  }

  host_options host_;
  std::string datacenter_;
  std::vector<std::string> gateways_;
  std::uint32_t connections_ = 0;
};

}  // namespace

std::unique_ptr<verb> make_gateway() {
  return std::make_unique<gateway_verb>();
}

}  // namespace troupe::cli
