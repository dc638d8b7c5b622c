#include <csignal>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/program.hpp"
#include "cli/verbs/serving/remote_completion.hpp"
#include "messages/random.hpp"
#include "processes/fixture.hpp"
#include "runtime/host/wait.hpp"

// Requests whose prompts are computed in the bubbles of a training, while processes of both are
// killed and stopped.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr double lease_s = 3;  // of beside-training.yaml
constexpr std::uint32_t prompts = 4, new_tokens = 12;

std::string prompt_of(std::uint64_t n) {
  const std::string begin = "The President of the United States shall, from time to time, give ";
  return begin + std::string(20 * (n % prompts), 'x') + std::to_string(n % prompts);
}

/// What the model says alone.
const std::map<std::uint64_t, std::string>& texts_alone() {
  static const auto all = [] {
    std::map<std::uint64_t, std::string> texts;
    for (std::uint64_t n = 0; n < prompts; ++n) {
      const auto r =
          test::troupe({"infer", prompt_of(n), "--alone", "--model", test::shipped("models/scribe"),
                        "--json", "--max-tokens", std::to_string(new_tokens)});
      REQUIRE(r.status == 0);
      texts[n] = r.document().at("tokens").dump();
    }
    return texts;
  }();
  return all;
}

/// What has become of requests.
struct tally {
  std::atomic<std::size_t> right{0}, wrong{0}, bubbles{0}, again{0};
  std::atomic<std::size_t> failed{0}, refused{0};  // refused: failed otherwise than by a 5xx
};

void ask(const std::string& url, std::uint64_t n, const std::string& expected, tally& t) {
  cli::remote_prompt p;
  p.url = url;
  p.text = prompt_of(n);
  p.limits.max_tokens = new_tokens;
  p.how.temperature = 0;
  const auto made = cli::complete_remotely(p, [](std::string_view) {});
  if (!made) {
    ++t.failed;
    t.refused += made.error().code != reason::kind::unavailable;
    return;
  }
  ++(made->at("tokens").dump() == expected ? t.right : t.wrong);
  const auto& where = made->at("where");
  t.bubbles += where.at("prefill") == "bubbles";
  t.again += where.at("attempts").get<int>() > 1;
}

/// Clients that ask one front, one request after the other, as long as they exist.
class clients {
 public:
  clients(const std::string& url, std::uint64_t count) : texts_{texts_alone()} {
    for (std::uint64_t c = 0; c < count; ++c)
      threads_.emplace_back([this, url, c] {
        for (auto n = c; !over_; ++n) ask(url, n, texts_.at(n % prompts), of);
      });
  }
  ~clients() { end(); }
  void end() {
    over_ = true;
    for (auto& t : threads_) t.join();
    threads_.clear();
  }
  /// So many more have ended well.
  bool go_on(std::size_t more, double limit_s = long_s) const {
    const auto before = of.right.load();
    return runtime::wait_until([&] { return of.right >= before + more; }, limit_s, 0.01);
  }

  tally of;

 private:
  const std::map<std::uint64_t, std::string> texts_;
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

struct shared_cluster : fixture {
  shared_cluster()
      : fixture{"bubbles",
                fs::path{TROUPE_SOURCE_DIR} / "tests/processes/clusters/beside-training.yaml",
                cli::default_policy} {
    REQUIRE(cluster->wait_until_ready(long_s));
    auto decoder = formats::load_job(shipped("jobs/serve-scribe.yaml"));
    REQUIRE(decoder);
    for (const auto* gpu : {"L4", "A10"}) {
      decoder->required_gpu_type = gpu;
      submit(*decoder);
    }
    REQUIRE(wait_until([](const query_reply& r) {
      return std::ranges::all_of(r.jobs, [](const auto& j) { return j.started_s > 0; });
    }));
    auto t = formats::load_job(shipped("jobs/train-lends.yaml"));
    REQUIRE(t);
    t->iterations = 1'000'000;
    t->train->checkpoint = (state / "checkpoint").string();
    t->train->checkpoint_every = 100;
    training = submit(*t);
    REQUIRE(trains_on(40));
    url = cluster->fronts().at("front-1");
  }

  job_status status() {
    const auto all = jobs();
    return *std::ranges::find(all.jobs, training, &job_status::job);
  }
  /// So many iterations more.
  bool trains_on(std::uint64_t more) {
    const auto before = status().iteration;
    return runtime::wait_until([&] { return status().iteration >= before + more; }, long_s, 0.1);
  }
  std::string node_of_stage(std::size_t n) {
    const auto all = jobs();
    const auto at = std::ranges::find(all.jobs, training, &job_status::job);
    return all.nodes.at(at->where.at(n).node).name;
  }
  /// SIGSTOP, and SIGCONT after that time.
  void stop_for(const std::string& name, double s) {
    const auto process = cluster->id(name);
    ::kill(process, SIGSTOP);
    runtime::pause(s);
    ::kill(process, SIGCONT);
  }

  job_id training = 0;
  std::string url;
};

}  // namespace

TEST_CASE(
    "requests beside a training are computed in its bubbles, with the tokens of the model alone",
    "[bubbles]") {
  shared_cluster c;
  clients all{c.url, 1};
  REQUIRE(all.go_on(30, 4 * long_s));  // guests wait for idle processors
  all.end();
  CHECK(all.of.wrong == 0);
  CHECK(all.of.failed == 0);
  INFO(all.of.bubbles << " of " << all.of.right);
  CHECK(2 * all.of.bubbles >= all.of.right);

  SECTION("also when a stage pauses, the controller dies, and a stage's node is lost") {
    clients more{c.url, 3};
    REQUIRE(more.go_on(5));
    c.stop_for(c.node_of_stage(1), 1);
    REQUIRE(more.go_on(5));
    CHECK(c.trains_on(20));

    c.cluster->kill("controller");
    REQUIRE(more.go_on(20));
    REQUIRE(c.cluster->restart("controller"));
    CHECK(c.trains_on(20));
    CHECK(c.status().attempts == 1);

    const auto lost = c.node_of_stage(1);
    c.cluster->kill(lost);
    REQUIRE(more.go_on(5));
    REQUIRE(c.wait_until([&](const query_reply& r) {
      const auto at = std::ranges::find(r.jobs, c.training, &job_status::job);
      return at->attempts == 2 && at->state == job_state::running;
    }));
    CHECK(c.trains_on(20));
    REQUIRE(more.go_on(5));
    more.end();
    CHECK(more.of.wrong == 0);
    CHECK(more.of.failed == 0);
  }
}

TEST_CASE("a decoder or a gateway that pauses changes no token, and nobody waits for it for good",
          "[bubbles]") {
  shared_cluster c;
  {
    clients all{c.url, 3};
    REQUIRE(all.go_on(5));
    c.stop_for("d1", 2 * lease_s);
    REQUIRE(all.go_on(10));
    all.end();
    CHECK(all.of.wrong == 0);
    CHECK(all.of.failed == 0);
    CHECK(all.of.again > 0);
  }
  for (const bool killed : {false, true}) {
    INFO((killed ? "killed" : "stopped"));
    clients here{c.url, 2}, there{c.cluster->fronts().at("front-2"), 2};
    REQUIRE(here.go_on(5));
    REQUIRE(there.go_on(5));
    if (killed) {
      c.cluster->kill("dc1/gateway");
      runtime::pause(1);
      REQUIRE(c.cluster->restart("dc1/gateway"));
    } else {
      c.stop_for("dc1/gateway", 1);
    }
    REQUIRE(there.go_on(5));
    REQUIRE(here.go_on(5));
    here.end();
    there.end();
    CHECK(here.of.wrong == 0);
    CHECK(here.of.refused == 0);
    CHECK(there.of.wrong == 0);
    CHECK(there.of.failed == 0);
  }
  CHECK(c.trains_on(20));
}

TEST_CASE("for minutes processes are killed at random, and every request ends once", "[.long]") {
  constexpr double minutes = 4;
  shared_cluster c;
  random_source random{1};
  clients here{c.url, 3}, there{c.cluster->fronts().at("front-2"), 2};
  const std::vector<std::string> names{"t-0", "t-1",        "t-2",         "d1",
                                       "d2",  "controller", "dc1/gateway", "dc2/gateway"};
  const runtime::stopwatch since;
  while (since.s() < 60 * minutes) {
    const auto name = names[random.below(names.size())];
    INFO(name << " after " << since.s() << " s");
    c.cluster->kill(name);
    runtime::pause(1 + 4 * random.uniform());
    REQUIRE(c.cluster->restart(name));
    runtime::pause(3 * lease_s);
    REQUIRE(here.go_on(5));
    REQUIRE(there.go_on(5));
  }
  here.end();
  there.end();
  CHECK(here.of.wrong == 0);
  CHECK(there.of.wrong == 0);
  WARN(here.of.right + there.of.right << " right, " << here.of.failed + there.of.failed
                                      << " failed, " << here.of.bubbles + there.of.bubbles
                                      << " in bubbles");
  CHECK(c.trains_on(20));
}
