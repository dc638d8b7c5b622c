#include "cli/common/local_prefills.hpp"

#include <filesystem>
#include <utility>

#include "runtime/host/wait.hpp"

namespace troupe::cli {

expected<std::unique_ptr<studies::prefill_run>> start_local_prefills(
    const local_cluster& processes, std::shared_ptr<const cluster> c, const std::string& state,
    remote& controller, const job_spec& training, const studies::prefill_study& study,
    const std::vector<job_spec>& decoders, interrupt& stop) {
  std::vector<actors::real_host_options> fronts;
  for (const auto& f : c->fronts) {
    auto& o = fronts.emplace_back();
    o.cluster = c;
    o.upstream = processes.gateway_address(c->datacenters[f.datacenter].name);
    o.state = (std::filesystem::path{state} / f.name).string();
  }
  // Before the decoders: a front that does not start leaves no job behind.
  auto run = studies::prefill_run::start(study, training, std::move(fronts));
  if (!run) return run;
  for (const auto& job : decoders)
    if (const auto accepted = controller.submit(job); !accepted) return refuse(accepted.error());
  constexpr double max_startup_s = 60;
  runtime::wait_until([&] { return (*run)->ready() || stop.arrived(); }, max_startup_s, 0.05);
  if (!(*run)->ready())
    return refuse(reason::kind::unavailable, "the decoders are not ready; logs are in " + state);
  return run;
}

}  // namespace troupe::cli
