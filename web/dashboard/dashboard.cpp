#include "web/dashboard/dashboard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "messages/base/whole_number.hpp"
#include "web/dashboard/dashboard_json.hpp"
#include "web/dashboard/dashboard_page.hpp"
#include "web/dashboard/dashboard_watcher.hpp"
#include "web/http/browser_requests.hpp"

namespace troupe::web {

namespace {

constexpr const char* json_type = "application/json";

http_answer failed(int status, const std::string& sentence, http_fields fields = {}) {
  return {status, json_type, dashboard_json::error(sentence), std::move(fields)};
}

// The cluster changes every second, so no cache may keep an answer. "nosniff" keeps browsers from
// reading JSON, which has users' text in it, as a page.
http_answer json_answer(std::string text) {
  return {200,
          json_type,
          std::move(text),
          {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}}};
}

// The dashboard itself is well, so clients are to ask again, and the sentence has the reason of the
// connection.
http_answer absent(const std::string& why) {
  return failed(503, "the controller does not answer: " + why, {{"Retry-After", "1"}});
}

const page_file* file_of(const std::string& path) {
  for (const auto& f : page_files())
    if (f.path == path) return &f;
  return nullptr;
}

// The policy lets the page load files of this server only and run no script of a job's name; the
// page may not be framed, so no other site can have its users click on it.
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

/// "after" of a query; 0 if it has none, nothing if that is no number.
std::optional<std::uint64_t> after_of(std::string_view query) {
  constexpr std::string_view name = "after=";
  while (!query.empty()) {
    const auto one = query.substr(0, query.find('&'));
    if (one.starts_with(name)) return whole_number<std::uint64_t>(one.substr(name.size()));
    query.remove_prefix(std::min(query.size(), one.size() + 1));
  }
  return 0;
}

template <class Reply>
http_answer absent(const expected<Reply>& reply) {
  return absent(reply ? "unexpected type of answer" : reply.error().text);
}

/// A training's report as `text` has it, unless the controller knows no such job.
// A job that has not reported yet has a reason, too, but it exists: the page then gets a document
// without iterations, and the reason in it.
template <class Text>
http_answer training_answer(job_id job, const expected<message>& reply, const query_reply& cluster,
                            Text text) {
  const auto* t = reply ? std::get_if<training_reply>(&*reply) : nullptr;
  if (!t) return absent(reply);
  const bool exists = std::ranges::find(cluster.jobs, job, &job_status::job) != cluster.jobs.end();
  if (!t->why.text.empty() && !exists) return failed(404, t->why.text);
  return json_answer(text(*t));
}

http_answer explain_answer(job_id, const expected<message>& reply, const query_reply&) {
  const auto* e = reply ? std::get_if<explanation>(&*reply) : nullptr;
  if (!e) return absent(reply);
  return e->job.job == 0 ? failed(404, e->summary) : json_answer(dashboard_json::explain(*e));
}

http_answer job_answer(job_id job, const expected<message>& reply, const query_reply&) {
  const auto* jobs = reply ? std::get_if<query_reply>(&*reply) : nullptr;
  if (!jobs) return absent(reply);
  const auto text = dashboard_json::job(*jobs, job);
  return text.empty() ? failed(404, fmt::format("no job {}", job)) : json_answer(text);
}

}  // namespace

dashboard::dashboard(controller_source source, dashboard_options options,
                     const runtime::clock& clock)
    : options_{std::move(options)},
      watcher_{std::make_unique<dashboard_watcher>(std::move(source), options_.every_s, clock)} {}

dashboard::~dashboard() = default;

namespace {

/// A question about one job, as its path and query have it.
struct job_question {
  job_id job;
  std::uint64_t after;  // of "?after="
};

using view = dashboard_watcher::view;

message all_of(const job_question& j, const view&) {
  return query_jobs{0, j.job};
}
message explanation_of(const job_question& j, const view&) {
  return explain_job{0, j.job};
}
message training_of(const job_question& j, const view&) {
  return query_training{0, j.job, j.after};
}
/// Iterations before the newest known one are not sent again: only the timeline counts.
message timeline_of(const job_question& j, const view& v) {
  const auto seen = v.positions.find(j.job);
  return query_training{0, j.job, seen == v.positions.end() ? 0 : seen->second};
}

http_answer training_document(job_id job, const expected<message>& reply,
                              const query_reply& cluster) {
  return training_answer(job, reply, cluster, dashboard_json::training);
}
http_answer timeline_document(job_id job, const expected<message>& reply,
                              const query_reply& cluster) {
  return training_answer(job, reply, cluster, [&](const training_reply& t) {
    return dashboard_json::timeline(t, cluster);
  });
}

}  // namespace

// A path of the API is a row here and nothing else; the page's files come from web/page.
// Lists come from the watcher's last look, so their cost for the controller does not grow with the
// number of browsers; questions about one job go to the controller.
std::span<const route<dashboard>> dashboard::routes() {
  static constexpr auto from_view = [](const dashboard& d, const routed_request& q, auto text) {
    const auto v = d.watcher_->now();
    q.reply->whole(v->known ? json_answer(text(*v)) : absent(v->why_absent));
  };
  static const route<dashboard> all[] = {
      {{"/health", "GET", false},
       [](dashboard& d, const routed_request& q) {
         q.reply->whole(json_answer(d.watcher_->now()->known
                                        ? R"({"status":"ok","controller":true})"
                                        : R"({"status":"ok","controller":false})"));
       }},
      {{"/metrics"},
       [](dashboard& d, const routed_request& q) {
         const auto v = d.watcher_->now();
         q.reply->whole({200, "text/plain; version=0.0.4", cluster_metrics(v->known.get()), {}});
       }},
      {{"/api/v1/cluster"},
       [](dashboard& d, const routed_request& q) {
         from_view(d, q, [](const view& v) { return dashboard_json::cluster(v.known->now); });
       }},
      {{"/api/v1/jobs"},
       [](dashboard& d, const routed_request& q) {
         from_view(d, q, [](const view& v) { return dashboard_json::jobs(v.known->now); });
       }},
      {{"/api/v1/links"},
       [](dashboard& d, const routed_request& q) {
         from_view(d, q, [](const view& v) { return v.links; });
       }},
      {{"/api/v1/serving"},
       [](dashboard& d, const routed_request& q) {
         from_view(d, q, [](const view& v) { return dashboard_json::serving(v.known->now); });
       }},
      {{"/api/v1/events"},
       [](dashboard& d, const routed_request& q) {
         if (!d.watcher_->subscribe(q.reply))
           q.reply->whole(failed(503, "too many event subscribers"));
       }},
      {{"/api/v1/jobs/#"},
       [](dashboard& d, const routed_request& q) { d.ask_about_job(q, all_of, job_answer); }},
      {{"/api/v1/jobs/#/explain"},
       [](dashboard& d, const routed_request& q) {
         d.ask_about_job(q, explanation_of, explain_answer);
       }},
      {{"/api/v1/jobs/#/training"},
       [](dashboard& d, const routed_request& q) {
         d.ask_about_job(q, training_of, training_document);
       }},
      {{"/api/v1/jobs/#/timeline"}, [](dashboard& d, const routed_request& q) {
         d.ask_about_job(q, timeline_of, timeline_document);
       }}};
  return all;
}

bool dashboard::knows(const std::string& path) {
  return file_of(path) || find_route(routes(), path).to;
}

void dashboard::handle(const http_request& r, std::shared_ptr<http_reply> reply) {
  if (!options_.keys && !is_local_host(r.host))
    return reply->whole(
        failed(403, fmt::format("Host: found '{}', expected the address that `troupe dashboard` "
                                "printed",
                                r.host)));
  // The page has nothing to hide: it asks for a key itself, which a browser could not add to it.
  static constexpr route_facts page{"/", "GET", false};
  const auto* file = file_of(r.path);
  const auto [to, argument] = find_route(routes(), r.path);
  const bool has_key = !options_.keys || options_.keys->allows(r.authorization);
  if (const auto why = refusal_of(r, file ? &page : to, has_key))
    return reply->whole(failed(why->status, why->sentence, why->fields));
  if (file) return reply->whole(answer_of(*file));
  to->answer(*this, {r, argument, reply});
}

template <class Question, class Answer>
void dashboard::ask_about_job(const routed_request& q, Question question, Answer answer) {
  const auto after = after_of(q.request.query);
  if (!after) return q.reply->whole(failed(400, "'after': expected a number"));
  const job_question about{*whole_number<job_id>(q.argument), *after};
  const auto v = watcher_->now();
  if (!v->known) return q.reply->whole(absent(v->why_absent));
  // The reply outlives this call: the watcher's thread asks the controller.
  const bool asked = watcher_->ask(
      question(about, *v), [reply = q.reply, v, answer, job = about.job](expected<message> a) {
        reply->whole(answer(job, a, v->known->now));
      });
  if (!asked) q.reply->whole(failed(503, "too many questions at a time", {{"Retry-After", "1"}}));
}

}  // namespace troupe::web
