#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "actors/worlds/real_host.hpp"
#include "cli/output/output.hpp"
#include "messages/wire/job_pages.hpp"

namespace troupe::cli {

/// The default state directory of `troupe up` and its clients: $TROUPE_STATE, or troupe-state in
/// the current directory.
std::string default_state_directory();
/// The file of a state directory that has the controller's address.
std::string address_file(const std::string& state);
/// The usual places of state directories, from here, where a cluster is up: for users who have
/// forgotten --state. Without `but`.
std::vector<std::string> states_in_use(const std::string& but);

/// The options and the connection of every verb that uses a controller.
class remote {
 public:
  void options(CLI::App& app);
  /// Connects to this controller, in place of the one in the options.
  void set_controller(std::string controller) { controller_ = std::move(controller); }

  /// Sends a request. The reply must be a Reply; fails if the controller does not answer.
  template <class Reply>
  expected<Reply> ask(message request) {
    auto reply = ask_any(std::move(request));
    if (!reply) return refuse(reply.error());
    if (auto* r = std::get_if<Reply>(&reply->first)) {
      raw_ = std::move(reply->second);
      return std::move(*r);
    }
    return refuse(reason::kind::malformed, "unexpected answer from the controller");
  }

  /// All jobs, whose list may come in several answers.
  expected<query_reply> ask_all_jobs() {
    return all_jobs([this](const query_jobs& q) { return ask<query_reply>(q); });
  }

  /// The number of a new job, or why it was not accepted.
  expected<job_id> submit(const job_spec& job);

  /// Sends a request; the reply may be any message.
  expected<message> ask_anything(message request);

  /// How long to wait without --patience. To be called before options().
  void set_patience(double s) { patience_s_ = s; }

  /// The next request connects anew, and finds the controller anew unless its address was given.
  void disconnect();

  /// The name under which the controller knows this client.
  std::string caller() const;

  /// The body of the last reply's frame.
  const payload& raw() const { return raw_; }

 private:
  expected<std::pair<message, payload>> ask_any(message request);
  expected<void> connect();
  expected<void> find_controller();

  bool found_ = false;  // controller_ is from the state directory
  bool said_ = false;   // that it waits for a controller
  std::string controller_, state_ = default_state_directory(), keys_, key_;
  CLI::Option* state_option_ = nullptr;
  double patience_s_ = 10;
  std::unique_ptr<actors::real_host> host_;
  payload raw_;
};

/// "2 of n1, 4 of e1"; empty for a job that has not run.
std::string where_text(const job_status& j, const std::vector<node_status>& nodes);

}  // namespace troupe::cli
