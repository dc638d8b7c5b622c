#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "messages/base/reason.hpp"
#include "messages/wire/message.hpp"
#include "runtime/host/clock.hpp"
#include "web/dashboard/controller_source.hpp"
#include "web/http/api_keys.hpp"
#include "web/http/http_server.hpp"
#include "web/http/routes.hpp"

namespace troupe::web {

struct dashboard_options {
  double every_s = 1;  // between two looks at the cluster, while nothing fails
  /// None: everybody who can connect may look, at a loopback address (browser_requests.hpp).
  std::optional<api_keys> keys{};
};

class dashboard_watcher;

/// The cluster as one web page, JSON and metrics: a client of the controller that only looks. It
/// asks the controller on a thread of its own; handle() never waits. The HTTP server must end
/// before this does.
class dashboard {
 public:
  dashboard(controller_source source, dashboard_options options, const runtime::clock& clock);
  ~dashboard();
  dashboard(const dashboard&) = delete;
  dashboard& operator=(const dashboard&) = delete;

  /// Does it answer this path? For servers that answer others too.
  static bool knows(const std::string& path);
  void handle(const http_request& r, std::shared_ptr<http_reply> reply);

 private:
  static std::span<const route<dashboard>> routes();
  /// Replies with answer(job, the controller's reply, the cluster as it was) to question(job,
  /// view).
  template <class Question, class Answer>
  void ask_about_job(const routed_request& q, Question question, Answer answer);

  const dashboard_options options_;
  std::unique_ptr<dashboard_watcher> watcher_;
};

}  // namespace troupe::web
