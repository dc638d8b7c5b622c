#include "web/dashboard/dashboard.hpp"

#include <unistd.h>

#include "cli/connection/controller_connection.hpp"
#include "cli/connection/key_file.hpp"
#include "cli/connection/server_url.hpp"
#include "cli/output/interrupt.hpp"
#include "cli/verbs/verb.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/real_clock.hpp"

namespace troupe::cli {

namespace {

/// A client of the controller with an HTTP server for browsers and Prometheus. Runs until a signal;
/// the cluster does not depend on it.
class dashboard_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    // Its thread asks one thing after the other: a lost controller must not hold up the page.
    remote_.set_patience(2);
    remote_.options(app);
    app.add_option("--port", port_, "TCP port; 0: any that is free")->capture_default_str();
    app.add_option("--host", host_,
                   "IP address to listen on; one that other machines can reach needs --api-keys")
        ->capture_default_str();
    app.add_option("--api-keys", keys_file_,
                   "File with the SHA-256 of each key that may look, one a line; without it, "
                   "everybody who can connect may");
  }

  int run(output& out) override {
    // Before any thread is started: all of them inherit the blocked signals.
    interrupt stop;
    // Names and commands of all users' jobs are shown, so an address that others can reach needs
    // keys.
    auto keys = key_file::read(keys_file_, host_, "--api-keys");
    if (!keys) return out.bad(keys.error());
    web::dashboard_options o;
    o.keys = std::move(*keys);
    // The server is declared last, so it ends first: its handler uses the dashboard.
    const runtime::real_clock clock;
    web::dashboard dashboard{[this](message request) { return ask(std::move(request)); },
                             std::move(o), clock};
    const auto server = web::http_server::start(
        host_, port_, {}, [&](const web::http_request& r, std::shared_ptr<web::http_reply> reply) {
          dashboard.handle(r, std::move(reply));
        });
    if (!server) return out.bad(server.error());
    const auto url = url_of(host_, (*server)->port()) + "/";
    out.document({{"url", url}, {"metrics", url + "metrics"}, {"pid", ::getpid()}});
    out.line("The dashboard is at {}; Ctrl-C ends it", url);
    (void)flush_output();
    while (!stop.arrived()) runtime::pause(0.05);
    return exit_done;
  }

 private:
  /// A controller that is lost may come back at another address, so the next question looks anew.
  expected<message> ask(message request) {
    auto reply = remote_.ask_anything(std::move(request));
    if (!reply) remote_.disconnect();
    return reply;
  }

  remote remote_;
  std::string host_ = "127.0.0.1", keys_file_;
  std::uint16_t port_ = 8080;
};

}  // namespace

std::unique_ptr<verb> make_dashboard() {
  return std::make_unique<dashboard_verb>();
}

}  // namespace troupe::cli
