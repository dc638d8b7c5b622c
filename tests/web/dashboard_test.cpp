#include "web/dashboard/dashboard.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "harness/scratch.hpp"
#include "harness/source_dir.hpp"
#include "runtime/host/real_clock.hpp"
#include "runtime/host/wait.hpp"
#include "web/dashboard_sample.hpp"

using namespace troupe;
using namespace troupe::test;
using namespace troupe::web;
using nlohmann::json;

// The dashboard with a controller that is a function, and replies that are kept.

namespace {

constexpr double soon_s = 10;

class kept_reply final : public http_reply {
 public:
  void whole(http_answer a) override {
    const std::lock_guard hold{mutex_};
    answer_ = std::move(a);
    done_.notify_all();
  }
  void promise_stream(http_answer) override {}
  void begin_stream(http_answer a) override { whole(std::move(a)); }
  void fail(http_answer a, std::string) override { whole(std::move(a)); }
  void piece(std::string bytes) override {
    const std::lock_guard hold{mutex_};
    pieces_.push_back(std::move(bytes));
  }
  void end(bool) override {}
  void when_gone(std::function<void()> gone) override { leave = std::move(gone); }

  http_answer answer() {
    REQUIRE(runtime::wait_until([&] { return here(); }, soon_s, 0.001));
    const std::lock_guard hold{mutex_};
    return *answer_;
  }
  std::size_t pieces() const {
    const std::lock_guard hold{mutex_};
    return pieces_.size();
  }
  json last_event() const {
    const std::lock_guard hold{mutex_};
    return json::parse(pieces_.back().substr(6));
  }
  std::function<void()> leave;

 private:
  bool here() const {
    const std::lock_guard hold{mutex_};
    return answer_.has_value();
  }
  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::optional<http_answer> answer_;
  std::vector<std::string> pieces_;
};

/// A dashboard of the sample cluster, whose controller can go.
struct room {
  explicit room(std::optional<api_keys> keys = {})
      : shown{[this](message m) { return reply_to(m); }, {0.01, std::move(keys)}, clock} {}

  expected<message> reply_to(const message& m) {
    if (!present) return refuse(reason::kind::unavailable, "nobody there");
    if (std::holds_alternative<query_jobs>(m)) return sample_cluster();
    if (const auto* q = std::get_if<query_training>(&m)) {
      if (q->job == 1) return sample_training();
      return training_reply{0, {}, {reason::kind::unknown, "no training reports"}, 0};
    }
    explanation e;
    e.job.job = std::get<explain_job>(m).job == 2 ? 2 : 0;
    e.summary = e.job.job == 2 ? "needs more GPUs" : "no job";
    return e;
  }

  std::shared_ptr<kept_reply> ask(const std::string& path, const std::string& key = {},
                                  const std::string& host = "localhost:8080") {
    auto reply = std::make_shared<kept_reply>();
    http_request r;
    r.method = "GET";
    const auto mark = path.find('?');
    r.path = path.substr(0, mark);
    if (mark != std::string::npos) r.query = path.substr(mark + 1);
    r.authorization = key;
    r.host = host;
    shown.handle(r, reply);
    return reply;
  }
  http_answer get(const std::string& path) { return ask(path)->answer(); }
  bool wait_for(bool there) {
    return runtime::wait_until(
        [&] { return json::parse(get("/health").body)["controller"] == there; }, soon_s, 0.002);
  }

  const runtime::real_clock clock;
  std::atomic<bool> present{true};
  dashboard shown;
};

}  // namespace

TEST_CASE("every path of the dashboard's API answers with the cluster's facts") {
  room r;
  REQUIRE(r.wait_for(true));
  CHECK(json::parse(r.get("/api/v1/cluster").body)["name"] == "two");
  CHECK(json::parse(r.get("/api/v1/jobs").body)["jobs"].size() == 2);
  CHECK(json::parse(r.get("/api/v1/jobs/2").body)["state"] == "waiting");
  CHECK(json::parse(r.get("/api/v1/jobs/2/explain").body)["reason"] == "needs more GPUs");
  CHECK(json::parse(r.get("/api/v1/jobs/1/training?x=1&after=3").body)["position"] == 9);
  CHECK(json::parse(r.get("/api/v1/jobs/1/timeline").body)["rows"].size() == 2);
  CHECK(json::parse(r.get("/api/v1/links").body)["links"].size() == 2);
  CHECK(json::parse(r.get("/api/v1/serving").body)["fronts"].size() == 2);
  CHECK(r.get("/metrics").body.find("troupe_training_loss") != std::string::npos);
}

TEST_CASE("jobs, paths and queries that do not exist get an error with a sentence") {
  room r;
  REQUIRE(r.wait_for(true));
  for (const auto* path :
       {"/api/v1/jobs/9", "/api/v1/jobs/9/explain", "/api/v1/jobs/9/training", "/api/v1/jobs/x",
        "/api/v1/jobs/", "/api/v1/jobs/1/other", "/etc/passwd", "/page/../x", "/page/"}) {
    INFO(path);
    const auto a = r.get(path);
    CHECK(a.status == 404);
    CHECK(json::parse(a.body)["error"]["message"].is_string());
  }
  CHECK(r.get("/api/v1/jobs/1/training?after=-1").status == 400);
  // A waiting job exists, so a page that asks for its training has made no mistake.
  CHECK(json::parse(r.get("/api/v1/jobs/2/training").body)["reason"] == "no training reports");
}

TEST_CASE(
    "without a controller the API says so, metrics keep nothing, and it comes back by itself") {
  room r;
  REQUIRE(r.wait_for(true));
  r.present = false;
  REQUIRE(r.wait_for(false));
  const auto a = r.get("/api/v1/cluster");
  CHECK(a.status == 503);
  CHECK(a.body.find("nobody there") != std::string::npos);
  CHECK(r.get("/api/v1/jobs/1/training").status == 503);
  CHECK(r.get("/metrics").body.find("troupe_jobs") == std::string::npos);
  r.present = true;
  CHECK(r.wait_for(true));
  CHECK(r.get("/api/v1/cluster").status == 200);
}

TEST_CASE("readers of events get one at once and one with every look, until they leave") {
  room r;
  REQUIRE(r.wait_for(true));
  const auto reader = r.ask("/api/v1/events");
  CHECK(reader->answer().content_type == "text/event-stream");
  CHECK(reader->pieces() >= 1);
  CHECK(reader->last_event()["jobs"]["jobs"].size() == 2);
  REQUIRE(runtime::wait_until([&] { return reader->pieces() > 3; }, soon_s, 0.002));
  r.present = false;
  REQUIRE(runtime::wait_until([&] { return reader->last_event()["source"]["present"] == false; },
                              soon_s, 0.002));
  CHECK(reader->last_event()["source"]["reason"] == "nobody there");
  reader->leave();
  const auto before = reader->pieces();
  r.present = true;
  REQUIRE(r.wait_for(true));
  CHECK(reader->pieces() == before);
}

TEST_CASE("the page comes from the program, asks for nothing outside, and tells browsers so") {
  room r;
  const auto page = r.get("/");
  CHECK(page.status == 200);
  CHECK(page.content_type == "text/html; charset=utf-8");
  const auto policy = std::ranges::find(page.fields, "Content-Security-Policy",
                                        &std::pair<std::string, std::string>::first);
  REQUIRE(policy != page.fields.end());
  CHECK(policy->second.starts_with("default-src 'self'"));
  for (const auto& entry :
       std::filesystem::directory_iterator{troupe::test::source_dir() + "/web/page"}) {
    const auto name = entry.path().filename().string();
    INFO(name);
    std::ifstream in{entry.path(), std::ios::binary};
    const std::string text{std::istreambuf_iterator<char>{in}, {}};
    CHECK(r.get(name == "index.html" ? "/" : "/page/" + name).body == text);
    CHECK(text.find("innerHTML") == std::string::npos);
    auto rest = text;  // names of XML's vocabularies are no addresses
    for (std::size_t at; (at = rest.find("http://www.w3.org/2000/svg")) != std::string::npos;)
      rest.erase(at, 26);
    CHECK(rest.find("http") == std::string::npos);
  }
}

TEST_CASE("another site's name gets nothing, and with keys only their owners get the cluster") {
  room open;
  REQUIRE(open.wait_for(true));
  CHECK(open.ask("/api/v1/jobs", {}, "evil.example")->answer().status == 403);
  CHECK(open.ask("/api/v1/jobs", {}, "127.0.0.1:8080")->answer().status == 200);
  CHECK(open.ask("/api/v1/jobs", {}, "[::1]:8080")->answer().status == 200);
  CHECK(open.ask("/api/v1/jobs", {}, "127.evil.example")->answer().status == 403);
  const scratch dir;
  // printf %s secret | sha256sum
  auto keys = api_keys::read(
      dir.write("keys", "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n"));
  REQUIRE(keys);
  room locked{*keys};
  REQUIRE(locked.wait_for(true));
  for (const auto* path : {"/api/v1/jobs", "/api/v1/events", "/metrics", "/api/v1/jobs/1/explain"})
    CHECK(locked.ask(path)->answer().status == 401);
  CHECK(locked.ask("/api/v1/jobs", "Bearer secret", "example.org")->answer().status == 200);
  CHECK(locked.ask("/")->answer().status == 200);
}
