#include "cli/common/local_prefills.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "formats/load/load.hpp"
#include "messages/base/statistics.hpp"
#include "runtime/host/wait.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

constexpr double max_startup_s = 60, max_end_s = 10;  // of decoders; of the last requests
// Stages have told their times after 20 iterations (training::replan_every), and prefills begin
// with the next ones.
constexpr std::size_t iterations_before = 40;
constexpr double window_iterations = 20, shortest_window_s = 0.2;

expected<void> submit_all(remote& controller, std::vector<job_spec> jobs) {
  for (auto& job : jobs) {
    const auto accepted = controller.ask<submit_reply>(submit_job{0, std::move(job)});
    if (!accepted) return refuse(accepted.error());
    if (accepted->job == 0) return refuse(accepted->why);
  }
  return {};
}

}  // namespace

expected<std::unique_ptr<local_prefills>> local_prefills::start(
    const local_cluster& processes, const std::string& cluster_file, const std::string& state,
    remote& controller, const job_spec& job, const studies::prefill_study& study, interrupt& stop) {
  auto loaded = formats::load_cluster(cluster_file);
  if (!loaded) return refuse(loaded.error());
  const auto c = std::make_shared<const troupe::cluster>(std::move(*loaded));
  auto decoders = studies::real_decoder_jobs(*c, job, study);
  if (!decoders) return refuse(decoders.error());
  auto made = std::unique_ptr<local_prefills>{new local_prefills};
  made->gpu_type_ = studies::gpu_type_without(*c, *decoders);
  std::vector<actors::real_host_options> fronts;
  for (const auto& f : c->fronts) {
    auto& o = fronts.emplace_back();
    o.cluster = c;
    o.upstream = processes.gateway_address(c->datacenters[f.datacenter].name);
    o.state = (fs::path{state} / f.name).string();
  }
  auto run = studies::prefill_run::start(c, study, job, std::move(fronts));
  if (!run) return refuse(run.error());
  if (auto ok = submit_all(controller, std::move(*decoders)); !ok) return refuse(ok.error());
  runtime::wait_until([&] { return (*run)->ready() || stop.arrived(); }, max_startup_s, 0.05);
  if (!(*run)->ready())
    return refuse(reason::kind::unavailable, "the decoders are not ready; logs are in " + state);
  made->run_ = std::move(*run);
  return made;
}

std::set<std::string> local_prefills::hosts_of_training(const std::string& cluster_file,
                                                        const job_spec& job,
                                                        const studies::prefill_study& study) {
  const auto c = formats::load_cluster(cluster_file);
  const auto decoders = c ? studies::real_decoder_jobs(*c, job, study) : refuse(c.error());
  std::set<std::string> hosts;
  if (!decoders) return hosts;
  for (const auto& d : c->datacenters) hosts.insert(d.name + "/gateway");
  for (const auto& n : c->nodes)
    if (std::ranges::count(*decoders, c->gpus[n.gpu].name, &job_spec::required_gpu_type) == 0)
      hosts.insert(n.name);
  return hosts;
}

void local_prefills::look(const training_report& so_far) {
  const auto& all = so_far.iterations;
  if (run_->begun() || all.size() < iterations_before) return;
  std::vector<double> lengths;
  for (auto i = all.size() - iterations_before / 2; i < all.size(); ++i)
    lengths.push_back(all[i].end_s - all[i].begin_s);
  run_->begin(std::max(shortest_window_s, window_iterations * statistics::mean(lengths)));
}

studies::real_prefills local_prefills::end() {
  return run_->end(max_end_s);
}

}  // namespace troupe::cli
