#include "web/dashboard/dashboard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "web/dashboard/dashboard_json.hpp"
#include "web/dashboard/dashboard_page.hpp"
#include "web/dashboard/dashboard_watcher.hpp"
#include "web/http/browser_requests.hpp"

namespace troupe::web {

namespace {

constexpr std::string_view api = "/api/v1/", one_job = "/api/v1/jobs/";
constexpr const char* json_type = "application/json";

http_answer said(int status, const std::string& sentence, http_fields fields = {}) {
  return {status, json_type, dashboard_json::error(sentence), std::move(fields)};
}

http_answer document(std::string text) {
  return {200,
          json_type,
          std::move(text),
          {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}}};
}

http_answer absent(const std::string& why) {
  return said(503, "the controller does not answer: " + why, {{"Retry-After", "1"}});
}

const page_file* file_of(const std::string& path) {
  for (const auto& f : page_files())
    if (f.path == path) return &f;
  return nullptr;
}

http_answer answer_of(const page_file& f) {
  return {200,
          std::string{f.content_type},
          std::string{f.text},
          {{"Content-Security-Policy",
            "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
           {"X-Content-Type-Options", "nosniff"},
           {"Referrer-Policy", "no-referrer"},
           {"Cache-Control", "no-cache"}}};
}

template <class T>
std::optional<T> number_of(std::string_view text) {
  T value = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (bad != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

/// "after" of a query; 0 if it has none, nothing if that is no number.
std::optional<std::uint64_t> after_of(std::string_view query) {
  constexpr std::string_view name = "after=";
  while (!query.empty()) {
    const auto one = query.substr(0, query.find('&'));
    if (one.starts_with(name)) return number_of<std::uint64_t>(one.substr(name.size()));
    query.remove_prefix(std::min(query.size(), one.size() + 1));
  }
  return 0;
}

/// "/api/v1/jobs/7/explain": 7 and "explain".
struct job_path {
  job_id job = 0;
  std::string_view about;  // empty: the job
};
std::optional<job_path> parse_job_path(std::string_view path) {
  if (!path.starts_with(one_job)) return {};
  path.remove_prefix(one_job.size());
  const auto slash = path.find('/');
  const auto job = number_of<job_id>(path.substr(0, slash));
  const auto about = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
  const bool known = slash == std::string_view::npos || about == "explain" || about == "training" ||
                     about == "timeline";
  if (!job || !known) return {};
  return job_path{*job, about};
}

bool is_list(const std::string& path) {
  return path == "/api/v1/cluster" || path == "/api/v1/jobs" || path == "/api/v1/links" ||
         path == "/api/v1/serving" || path == "/api/v1/events" || path == "/metrics" ||
         path == "/health";
}

http_answer training_answer(const job_path& p, const expected<message>& reply,
                            const query_reply& cluster) {
  const auto* t = reply ? std::get_if<training_reply>(&*reply) : nullptr;
  if (!t) return absent(reply ? "its answer was not understood" : reply.error().text);
  const bool exists =
      std::ranges::find(cluster.jobs, p.job, &job_status::job) != cluster.jobs.end();
  if (!t->why.text.empty() && !exists) return said(404, t->why.text);
  return document(p.about == "training" ? dashboard_json::training(*t)
                                        : dashboard_json::timeline(*t, cluster));
}

http_answer explain_answer(const expected<message>& reply) {
  const auto* e = reply ? std::get_if<explanation>(&*reply) : nullptr;
  if (!e) return absent(reply ? "its answer was not understood" : reply.error().text);
  return e->job.job == 0 ? said(404, e->summary) : document(dashboard_json::explain(*e));
}

}  // namespace

dashboard::dashboard(controller_source source, dashboard_options options,
                     const runtime::clock& clock)
    : options_{std::move(options)},
      watcher_{std::make_unique<watcher>(std::move(source), options_.every_s, clock)} {}

dashboard::~dashboard() = default;

bool dashboard::knows(const std::string& path) {
  return is_list(path) || parse_job_path(path) || file_of(path);
}

void dashboard::handle(const http_request& r, std::shared_ptr<http_reply> reply) {
  const auto answer = [&](http_answer a) { reply->whole(std::move(a)); };
  if (!options_.keys && !is_local_host(r.host))
    return answer(
        said(403, fmt::format("Host: found '{}', expected the address that `troupe dashboard` "
                              "printed",
                              r.host)));
  if (!knows(r.path)) return answer(said(404, fmt::format("there is nothing at '{}'", r.path)));
  if (r.method != "GET" && r.method != "HEAD")
    return answer(said(405, fmt::format("'{}' does not take {}", r.path, r.method),
                       {{"Allow", "GET, HEAD"}}));
  // The page has nothing to hide: it asks for a key itself, which a browser could not add to it.
  if (const auto* file = file_of(r.path)) return answer(answer_of(*file));
  if (r.path != "/health" && options_.keys && !options_.keys->allows(r.authorization))
    return answer(said(401, "give an API key: 'Authorization: Bearer KEY'",
                       {{"WWW-Authenticate", "Bearer"}}));
  if (r.path.starts_with(one_job)) return ask_about_job(r, reply);
  if (r.path != "/api/v1/events") return answer(get(r.path));
  if (!watcher_->subscribe(reply)) answer(said(503, "too many readers of events"));
}

http_answer dashboard::get(const std::string& path) const {
  const auto v = watcher_->now();
  if (path == "/health")
    return document(v->known ? R"({"status":"ok","controller":true})"
                             : R"({"status":"ok","controller":false})");
  if (path == "/metrics")
    return {200, "text/plain; version=0.0.4", cluster_metrics(v->known.get()), {}};
  if (!v->known) return absent(v->why_absent);
  if (path == "/api/v1/links") return document(v->links);
  if (path == "/api/v1/serving") return document(dashboard_json::serving(v->known->now));
  return document(path == "/api/v1/cluster" ? dashboard_json::cluster(v->known->now)
                                            : dashboard_json::jobs(v->known->now));
}

void dashboard::ask_about_job(const http_request& r, const std::shared_ptr<http_reply>& reply) {
  const auto p = *parse_job_path(r.path);
  const auto about = std::string{p.about};
  const auto after = after_of(r.query);
  if (!after) return reply->whole(said(400, "'after': expected a number"));
  const auto v = watcher_->now();
  if (!v->known) return reply->whole(absent(v->why_absent));
  message request = query_jobs{0, p.job};
  if (about == "explain") request = explain_job{0, p.job};
  if (about == "training") request = query_training{0, p.job, *after};
  if (about == "timeline") {
    const auto seen = v->positions.find(p.job);
    request = query_training{0, p.job, seen == v->positions.end() ? 0 : seen->second};
  }
  const bool asked = watcher_->ask(std::move(request), [=](expected<message> answer) {
    if (about == "explain") return reply->whole(explain_answer(answer));
    if (!about.empty()) return reply->whole(training_answer({p.job, about}, answer, v->known->now));
    const auto* jobs = answer ? std::get_if<query_reply>(&*answer) : nullptr;
    if (!jobs) return reply->whole(absent("it left the question unanswered"));
    const auto text = dashboard_json::job(*jobs, p.job);
    reply->whole(text.empty() ? said(404, fmt::format("no job {}", p.job)) : document(text));
  });
  if (!asked) reply->whole(said(503, "too many questions at a time", {{"Retry-After", "1"}}));
}

}  // namespace troupe::web
