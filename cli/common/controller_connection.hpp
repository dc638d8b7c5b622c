#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "actors/worlds/real_host.hpp"
#include "cli/common/output.hpp"

namespace troupe::cli {

/// Where `troupe up` and its clients meet if nobody says otherwise: $TROUPE_STATE, or troupe-state
/// here.
std::string default_state_directory();
/// The file of a state directory that names the controller's address.
std::string address_file(const std::string& state);

/// The options and the connection of every verb that talks to a controller.
class remote {
 public:
  void options(CLI::App& app);
  /// The controller is there, whatever the options say.
  void meet(std::string controller) { controller_ = std::move(controller); }

  /// Connects and asks. The reply must be a Reply; a controller that does not answer is a reason.
  template <class Reply>
  expected<Reply> ask(message request) {
    auto reply = ask_any(std::move(request));
    if (!reply) return tl::unexpected<reason>(reply.error());
    if (auto* r = std::get_if<Reply>(&reply->first)) {
      raw_ = std::move(reply->second);
      return std::move(*r);
    }
    return refuse(reason::kind::malformed, "unexpected answer from the controller");
  }

  /// The bytes beside the last reply.
  const payload& raw() const { return raw_; }

 private:
  expected<std::pair<message, payload>> ask_any(message request);
  expected<void> connect();
  expected<void> find_controller();

  std::string controller_, state_ = default_state_directory(), keys_, key_;
  CLI::Option* state_option_ = nullptr;
  double patience_s_ = 10;
  std::unique_ptr<actors::real_host> host_;
  payload raw_;
};

/// A job's row as JSON; node names come from the same reply. What is not known is null.
json job_document(const job_status& j, const std::vector<node_status>& nodes);
/// Whether its GPUs are those that it has, or had at its end; a job that waits holds none.
bool is_placed(const job_status& j);
/// "2 of n1, 4 of e1"; empty for a job that has not run.
std::string where_text(const job_status& j, const std::vector<node_status>& nodes);
json plan_document(const plan& p);
/// A whole number; 0, unknown: null.
json bytes_document(double bytes);

}  // namespace troupe::cli
