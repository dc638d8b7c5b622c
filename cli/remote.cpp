#include "cli/remote.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace troupe::cli {

std::string default_state_directory() {
  const char* chosen = std::getenv("TROUPE_STATE");
  return chosen && *chosen ? chosen : "troupe-state";
}

std::string address_file(const std::string& state) {
  return (std::filesystem::path{state} / "controller.address").string();
}

void remote::options(CLI::App& app) {
  app.add_option(
      "--controller", controller_,
      "Its address, tcp://host:port or ipc://path; else what STATE/controller.address says");
  app.add_option("--state", state_, "The directory that `troupe up` uses")->capture_default_str();
  app.add_option("--keys", keys_, "Directory with the client's key, where the cluster has keys");
  app.add_option("--as", key_,
                 "Whose key of that directory; else `client`, or the only one of a person there");
  app.add_option("--patience", patience_s_, "Seconds to wait for an answer")->capture_default_str();
}

expected<void> remote::connect() {
  if (host_) return {};
  if (controller_.empty()) {
    std::ifstream in{address_file(state_)};
    if (!std::getline(in, controller_))
      return refuse(
          reason::kind::unavailable,
          fmt::format("no controller is known: {} is not there (start one with `troupe up "
                      "CLUSTER`, or name one with --controller)",
                      address_file(state_)));
  }
  actors::real_host_options o;
  o.upstream = controller_;
  o.keys = keys_;
  o.client_key = key_;
  auto host = actors::real_host::client(std::move(o), patience_s_);
  if (!host)
    return refuse(host.error().code, fmt::format("the controller at {} cannot be reached: {}",
                                                 controller_, host.error().text));
  host_ = std::move(*host);
  return {};
}

expected<std::pair<message, payload>> remote::ask_any(message request) {
  if (auto ok = connect(); !ok) return tl::unexpected<reason>(ok.error());
  return host_->ask(std::move(request), patience_s_).reply;
}

json plan_document(const plan& p) {
  return {{"data_parallel", p.data_parallel},         {"tensor_parallel", p.tensor_parallel},
          {"pipeline_parallel", p.pipeline_parallel}, {"gpus", p.gpus()},
          {"bytes_per_gpu", p.bytes_per_gpu},         {"samples_per_s", p.samples_per_s}};
}

std::string where_text(const job_status& j, const std::vector<node_status>& nodes) {
  std::string text;
  for (const auto& share : j.where)
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", share.gpus,
                        share.node < nodes.size() ? nodes[share.node].name : "?");
  return text;
}

json job_document(const job_status& j, const std::vector<node_status>& nodes) {
  json where = json::array();
  for (const auto& share : j.where)
    if (share.node < nodes.size())
      where.push_back({{"node", nodes[share.node].name},
                       {"gpu", nodes[share.node].gpu_type},
                       {"gpus", share.gpus}});
  return {{"job", j.job},
          {"name", j.name},
          {"state", to_string(j.state)},
          {"submitted_s", j.submitted_s},
          {"started_s", j.started_s},
          {"ended_s", j.ended_s},
          {"attempts", j.attempts},
          {"plan", j.where.empty() ? json() : plan_document(j.how)},
          {"allocation", where},
          {"iterations_done", j.iterations_done},
          {"predicted_bytes", j.predicted_bytes},
          {"peak_bytes", j.peak_bytes},
          {"detail", j.detail},
          {"owner", j.owner}};
}

}  // namespace troupe::cli
