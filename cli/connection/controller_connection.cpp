#include "cli/connection/controller_connection.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/ranges.h>

#include "cli/output/human.hpp"
#include "runtime/host/file_lock.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/host/transport.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/zeromq/keys.hpp"

namespace troupe::cli {

std::string default_state_directory() {
  const char* chosen = std::getenv("TROUPE_STATE");
  return chosen && *chosen ? chosen : "troupe-state";
}

std::string address_file(const std::string& state) {
  return (std::filesystem::path{state} / "controller.address").string();
}

std::vector<std::string> states_in_use(const std::string& but) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> found;
  // By default `up` makes ./troupe-state; the pages' other examples, and those of most users, have
  // theirs in out/.
  std::vector<fs::path> places{"troupe-state"};
  for (fs::directory_iterator at{"out", error}, end; !error && at != end; at.increment(error))
    places.push_back(at->path());
  for (const auto& place : places)
    if (!fs::equivalent(place, but, error) && fs::exists(address_file(place.string()), error) &&
        runtime::file_lock::holder((place / "up.lock").string()))
      found.push_back(place.string());
  std::ranges::sort(found);
  return found;
}

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The fault of a controller's address; empty: none.
std::string check_address(const std::string& a) {
  const bool ipc = a.starts_with("ipc://") && a.size() > 6;
  const auto colon = a.rfind(':');
  const bool tcp = a.starts_with("tcp://") && colon != std::string::npos && colon > 6 &&
                   colon + 1 < a.size() &&
                   a.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (ipc || tcp) return {};
  const bool bare = a.find("://") == std::string::npos && colon != std::string::npos;
  return fmt::format("found '{}', expected tcp://HOST:PORT or ipc://PATH{}", a,
                     bare ? fmt::format("; did you mean tcp://{}?", a) : "");
}

}  // namespace

void remote::options(CLI::App& app) {
  keys_ = variable("TROUPE_KEYS");
  app.add_option("--controller", controller_,
                 "Controller address, tcp://HOST:PORT or ipc://PATH (default: $TROUPE_CONTROLLER, "
                 "then STATE/controller.address)")
      ->check(check_address);
  state_option_ =
      app.add_option("--state", state_, "State directory of `troupe up` (default: $TROUPE_STATE)")
          ->capture_default_str();
  app.add_option("--keys", keys_,
                 "Key directory, if the cluster uses keys (default: $TROUPE_KEYS)");
  app.add_option("--as", key_,
                 "Name of the key to use (default: `client`, or the only user key there)");
  app.add_option("--patience", patience_s_,
                 "Seconds to wait for the controller, and for each answer")
      ->capture_default_str();
}

expected<void> remote::find_controller() {
  if (!controller_.empty()) return {};
  // An explicit --state names another cluster than the one in the environment, and wins.
  const bool named = state_option_ != nullptr && state_option_->count() > 0;
  if (const auto chosen = variable("TROUPE_CONTROLLER"); !named && !chosen.empty()) {
    if (const auto wrong = check_address(chosen); !wrong.empty())
      return refuse(reason::kind::invalid, "TROUPE_CONTROLLER: " + wrong);
    controller_ = chosen;
    return {};
  }
  // A cluster that is being started will write the file soon.
  const auto file = address_file(state_);
  const auto there = [&] {
    std::ifstream in{file};
    // The file is written while this waits for it, so its first line may be cut.
    return std::getline(in, controller_) && !in.eof();  // with its newline: complete
  };
  found_ = true;
  // An address that appears within this time needs no words.
  const double silent_s = std::min(patience_s_, 0.3);
  if (runtime::wait_until(there, silent_s, 0.05)) return {};
  const auto others = states_in_use(state_);
  const auto elsewhere =
      others.empty() ? std::string{}
                     : fmt::format("; a cluster is up on {} (--state)", fmt::join(others, ", "));
  if (!std::exchange(said_, true) && patience_s_ > silent_s)
    write_note(fmt::format("troupe: no controller on {} yet, waits up to {:.3g} s for one{}\n",
                           printable(state_), patience_s_, printable(elsewhere)));
  if (runtime::wait_until(there, patience_s_ - silent_s, 0.05)) return {};
  controller_.clear();
  return refuse(reason::kind::unavailable,
                fmt::format("no controller found: {} did not appear within {:.3g} s (start a "
                            "cluster with `troupe up CLUSTER`, or give --controller){}",
                            file, patience_s_, elsewhere));
}

expected<void> remote::connect() {
  if (host_) return {};
  // The transport's warnings during the attempt become part of the error.
  runtime::set_log_level(runtime::log_level::error);
  const runtime::stopwatch waited;
  if (auto ok = find_controller(); !ok) return ok;
  actors::real_host_options o;
  o.upstream = controller_;
  o.keys = keys_;
  o.client_key = key_;
  // At least half a second is left for the connection, however long the file took.
  auto host = actors::real_host::client(std::move(o), std::max(0.5, patience_s_ - waited.s()));
  if (!host)
    return refuse(host.error().code, fmt::format("the controller at {} cannot be reached: {}",
                                                 controller_, host.error().text));
  host_ = std::move(*host);
  return {};
}

expected<std::pair<message, payload>> remote::ask_any(message request) {
  if (auto ok = connect(); !ok) return refuse(ok.error());
  return host_->ask(std::move(request), patience_s_).reply;
}

expected<job_id> remote::submit(const job_spec& job) {
  const auto reply = ask<submit_reply>(submit_job{0, job});
  if (!reply) return refuse(reply.error());
  if (reply->job == 0) return refuse(reply->why);
  return reply->job;
}

expected<message> remote::ask_anything(message request) {
  auto reply = ask_any(std::move(request));
  if (!reply) return refuse(reply.error());
  return std::move(reply->first);
}

std::string remote::caller() const {
  if (keys_.empty()) return runtime::local_caller;
  return key_.empty() ? runtime::default_client_key(keys_) : key_;
}

void remote::disconnect() {
  host_.reset();
  // The next connect() reads the file again: a restarted cluster may have another address.
  if (std::exchange(found_, false)) controller_.clear();
}

std::string where_text(const job_status& j, const std::vector<node_status>& nodes) {
  std::string text;
  for (const auto& share : j.where)
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", share.gpus,
                        share.node < nodes.size() ? nodes[share.node].name : "?");
  return text;
}

}  // namespace troupe::cli
