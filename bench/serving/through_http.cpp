#include "serving/through_http.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "harness/clock.hpp"
#include "web/http/http_client.hpp"

namespace troupe::bench {

namespace {

constexpr double patience_s = 30;

[[noreturn]] void give_up(const std::string& why) {
  fmt::print(stderr, "{}\n", why);
  std::exit(2);
}

/// Does it answer that it can generate?
bool is_ready(const std::string& url) {
  const auto a = web::ask(*web::parse_url(url), {"GET", "/health", {}, {}, 2});
  return a && a->status == 200;
}

void wait_until_ready(const std::string& url) {
  const double until_s = clock_s(CLOCK_MONOTONIC) + patience_s;
  while (!is_ready(url)) {
    if (clock_s(CLOCK_MONOTONIC) > until_s) give_up(url + " is not ready in time");
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }
}

/// Seconds to the first piece and to the end of a stream.
struct timed_stream {
  double first_s = 0, all_s = 0;
};
timed_stream stream_of(const std::string& url, const nlohmann::json& more) {
  nlohmann::json body{{"model", "scribe"}, {"stream", true}, {"temperature", 0}};
  body.update(more);
  timed_stream t;
  const double begin_s = clock_s(CLOCK_MONOTONIC);
  const auto a = web::ask(*web::parse_url(url), {"POST", "/v1/completions", body.dump(), {}},
                          [&](std::string_view) {
                            if (t.first_s == 0) t.first_s = clock_s(CLOCK_MONOTONIC) - begin_s;
                            return true;
                          });
  t.all_s = clock_s(CLOCK_MONOTONIC) - begin_s;
  if (!a || a->status != 200) give_up(a ? a->body : a.error().text);
  return t;
}

std::string file_text(const std::string& path) {
  std::ifstream in{path};
  return {std::istreambuf_iterator<char>{in}, {}};
}

}  // namespace

http_service http_service::alone(const scratch& in) {
  const auto out = in.path("serve.json");
  const auto pid = printed_by(
      fmt::format("'{}' serve '{}/models/scribe' --port 0 --json >'{}' 2>/dev/null & echo $!",
                  TROUPE_PROGRAM, TROUPE_BENCH_CONFIGS, out));
  const double until_s = clock_s(CLOCK_MONOTONIC) + patience_s;
  while (!nlohmann::json::accept(file_text(out))) {
    if (clock_s(CLOCK_MONOTONIC) > until_s) give_up("`troupe serve` does not begin");
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  const auto url = nlohmann::json::parse(file_text(out)).at("url").get<std::string>();
  wait_until_ready(url);
  return {url, {std::stoi(pid.text)}, "kill " + pid.text};
}

http_service http_service::cluster(const scratch& in) {
  const auto state = in.path("state");
  const auto printed =
      printed_by(fmt::format("'{}' up '{}/clusters/demo-serving.yaml' --state '{}' --detach",
                             TROUPE_PROGRAM, TROUPE_BENCH_CONFIGS, state));
  if (printed.status != 0) give_up(printed.text);
  const auto job = printed_by(fmt::format("'{}' submit '{}/jobs/serve-scribe.yaml' --state '{}'",
                                          TROUPE_PROGRAM, TROUPE_BENCH_CONFIGS, state));
  if (job.status != 0) give_up(job.text);
  std::string url;
  std::vector<int> pids;
  const std::regex line{R"((\S+) +process (\d+)(?: +(http\S+))?)"};
  for (std::sregex_iterator i{printed.text.begin(), printed.text.end(), line}, end; i != end; ++i) {
    pids.push_back(std::stoi((*i)[2]));
    if ((*i)[3].matched) url = (*i)[3];
  }
  wait_until_ready(url);
  return {url, pids, fmt::format("'{}' down --state '{}' >/dev/null", TROUPE_PROGRAM, state)};
}

http_service::http_service(http_service&& other) noexcept
    : url_{std::move(other.url_)},
      pids_{std::move(other.pids_)},
      end_{std::exchange(other.end_, {})} {}

http_service::~http_service() {
  if (!end_.empty()) printed_by(end_);
}

double http_service::first_token_s(const std::string& prompt) const {
  return stream_of(url_, {{"prompt", prompt}, {"max_tokens", 1}}).first_s;
}

double http_service::cpu_s() const {
  double ticks = 0;
  for (const int pid : pids_) {
    const auto text = file_text(fmt::format("/proc/{}/stat", pid));
    std::istringstream in{text.substr(text.rfind(')') + 2)};
    std::string skipped;
    constexpr int before_utime = 11;
    for (int i = 0; i < before_utime; ++i) in >> skipped;
    double user = 0, system = 0;
    in >> user >> system;
    ticks += user + system;
  }
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double http_service::cpu_s_of_token(std::size_t streams, std::size_t count) const {
  const double before_s = cpu_s();
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < streams; ++i)
    all.emplace_back([this, i, count] {
      stream_of(url_, {{"prompt", fmt::format("The President {}", i)}, {"max_tokens", count}});
    });
  for (auto& t : all) t.join();
  return (cpu_s() - before_s) / static_cast<double>(streams * count);
}

}  // namespace troupe::bench
