#include "cli/verbs/serving/front_server.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "actors/node/awaited_work.hpp"
#include "cli/connection/key_file.hpp"
#include "cli/connection/server_url.hpp"
#include "cli/verbs/serving/end_in_order.hpp"
#include "messages/base/whole_file.hpp"
#include "messages/base/whole_number.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/real_clock.hpp"
#include "web/front/model_offers.hpp"

namespace troupe::cli {

namespace {

struct http_place {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
};

/// "address:port", "[v6]:port".
expected<http_place> place_of(const std::string& text) {
  if (text.empty()) return http_place{};
  // The last one: an IPv6 address has more.
  const auto colon = text.rfind(':');
  auto host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto port = colon == std::string::npos
                        ? std::nullopt
                        : whole_number<std::uint16_t>(std::string_view{text}.substr(colon + 1));
  if (!port || host.empty())
    return refuse(reason::kind::invalid,
                  fmt::format("http: found '{}', expected ADDRESS:PORT", text));
  return http_place{host, *port};
}

void announce(output& out, const front_server_options& o, const std::string& url) {
  const auto file = (std::filesystem::path{o.host.state} / "url").string();
  // `troupe infer --state` and `troupe up` read it: port 0 is known only now.
  if (auto ok = write_whole_file(file, url + "\n"); !ok) out.note("{}", ok.error().text);
  out.document(
      {{"url", url}, {"metrics", url + "/metrics"}, {"front", o.name}, {"pid", ::getpid()}});
  out.line("front {} at {}/v1; Ctrl-C ends it", o.name, url);
  (void)flush_output();
}

}  // namespace

int run_front(output& out, front_server_options o) {
  if (auto ok = o.host.load(); !ok) return out.bad(ok.error());
  const auto& fronts = o.host.cluster->fronts;
  const auto it = std::ranges::find(fronts, o.name, &front::name);
  if (it == fronts.end())
    return out.bad(fmt::format("{}: no front '{}'", o.host.cluster_file, o.name));
  if (o.host.upstream.empty())
    o.host.upstream = o.host.cluster->datacenters[it->datacenter].gateway;
  if (o.host.upstream.empty())
    return out.bad("a front needs --gateway, or its gateway's address in the cluster file");
  auto place = place_of(it->http);
  if (!place) return out.bad(place.error());
  if (!o.at.empty()) place->host = o.at;
  if (o.port >= 0) place->port = static_cast<std::uint16_t>(o.port);
  // Before the cluster is joined: a front without a valid key file must not become reachable.
  auto keys = key_file::read(o.api_keys, place->host, "--api-keys");
  if (!keys) return out.bad(keys.error());

  const auto waits = (std::filesystem::path{o.host.state} / actors::waiting_file_name).string();
  std::error_code ignored;
  std::filesystem::remove(waits, ignored);  // of an earlier process
  auto host =
      actors::real_host::front(o.host.real(), static_cast<std::uint32_t>(it - fronts.begin()));
  if (!host) return out.failure(fmt::format("{}: {}", o.name, host.error().text));
  const runtime::real_clock clock;
  web::service service{std::move(*keys), clock, start_seed(clock)};
  service.allow_origins(o.origins);
  if (o.logs) service.log_requests();
  const auto server = web::http_server::start(
      place->host, place->port, o.limits,
      [&](const web::http_request& r, std::shared_ptr<web::http_reply> reply) {
        service.handle(r, std::move(reply));
      });
  if (!server) return out.bad(server.error());
  service.expect([front = (*host)->completions()](const std::string& model) {
    return front.view().may_be_offered(model);
  });
  key_file reloaded{o.api_keys, service};
  web::model_offers models{(*host)->completions(), (*host)->cluster(), o.folders, clock, service};
  announce(out, o, url_of(place->host, (*server)->port()));
  // Models come and go with the controller's statements, and keys with SIGHUP.
  const auto ended = (*host)->run([&] {
    models.look();
    reloaded.look();
  });
  if (const auto left = service.requests(); ended && left > 0)
    // `troupe up` and `troupe down` wait for this host as long.
    (void)write_whole_file(waits, fmt::format("{:g}\nanswers {} requests to their end, for at most "
                                              "{:g} s\n",
                                              o.grace_s, left, o.grace_s));
  end_in_order(out, service, **server, ended ? o.grace_s : 0);
  std::filesystem::remove(waits, ignored);
  if (!ended) return out.failure(fmt::format("{}: {}", o.name, ended.error().text));
  runtime::log(runtime::log_level::info, o.name, "stopping on signal");
  return exit_done;
}

}  // namespace troupe::cli
