#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "cli/program.hpp"
#include "cli/verbs/serving/remote_completion.hpp"
#include "harness/source_dir.hpp"
#include "messages/domain/served_bytes.hpp"
#include "processes/fixture.hpp"
#include "runtime/host/wait.hpp"
#include "web/http/http_client.hpp"

// A cluster with a front and decoders as processes, whose streams outlive them.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr double lease_s = 3;  // of with-front.yaml
constexpr std::uint32_t new_tokens = 400;

/// One front and decoders of the model that ships, two by default.
struct serving_cluster : fixture {
  explicit serving_cluster(const std::vector<const char*>& decoders = {"first", "second"})
      : fixture{"serving",
                fs::path{troupe::test::source_dir()} / "tests/processes/clusters/with-front.yaml",
                cli::default_policy} {
    const auto ready = cluster->wait_until_ready(long_s);
    INFO((ready ? std::string{} : ready.error().text));
    REQUIRE(ready);
    auto job = formats::load_job(shipped("jobs/serve-scribe.yaml"));
    INFO((job ? std::string{} : job.error().text));
    REQUIRE(job);
    for (const auto* name : decoders) {
      job->name = name;
      submit(*job);
    }
    const auto of_one =
        std::floor(job->serve->kv_gb * bytes_per_gb / cache_page_bytes(job->serve->model.shape));
    url = cluster->fronts().at("front-1");
    REQUIRE(runtime::wait_until([&] { return pages("free") == double(decoders.size()) * of_one; },
                                long_s, 0.1));
  }

  /// The number of pages of a kind in the front's metrics; -1: it does not answer.
  double pages(const std::string& kind) const {
    return metric("troupe_kv_pages{state=\"" + kind + "\"} ");
  }
  double metric(const std::string& name) const {
    const auto a = web::ask(*web::parse_url(url), {"GET", "/metrics", {}, {}, 5});
    if (!a) return -1;
    const auto at = a->body.find(name);
    return at == std::string::npos ? -1 : std::stod(a->body.substr(at + name.size()));
  }

  std::string url;
};

std::string prompt_of(std::uint64_t seed) {
  return "The President of the State " + std::to_string(seed);
}

/// The answer of the same model alone.
nlohmann::json alone(std::uint64_t seed) {
  const auto r =
      test::troupe({"infer", prompt_of(seed), "--alone", "--model", test::shipped("models/scribe"),
                    "--json", "--temperature", "0.8", "--max-tokens", std::to_string(new_tokens),
                    "--seed", std::to_string(seed)});
  INFO(r.err);
  REQUIRE(r.status == 0);
  return r.document();
}

/// Streams of a front, each with a thread of its own.
class streams {
 public:
  streams(const std::string& url, std::uint64_t count) : results_(count) {
    for (std::uint64_t i = 0; i < count; ++i)
      threads_.emplace_back([this, url, i] {
        cli::remote_prompt p;
        p.url = url;
        p.text = prompt_of(i);
        p.what.max_tokens = new_tokens;
        p.what.how.temperature = 0.8;
        p.what.how.seed = i;
        bool first = true;
        auto made = cli::complete_remotely(p, [&](std::string_view) {
          if (std::exchange(first, false)) ++begun_;
        });
        results_[i] = std::move(made);
        ++ended_;
      });
  }
  ~streams() { join(); }

  void join() {
    for (auto& t : threads_) t.join();
    threads_.clear();
  }
  std::size_t begun() const { return begun_; }
  std::size_t ended() const { return ended_; }
  const expected<cli::json>& operator[](std::size_t i) const { return results_[i]; }

 private:
  std::vector<expected<cli::json>> results_;
  std::atomic<std::size_t> begun_{0}, ended_{0};
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE(
    "streams outlive a killed decoder with the same text, and a killed front frees its pages") {
  serving_cluster c;
  constexpr std::uint64_t count = 16;
  const auto before = c.jobs();
  const auto killed = before.nodes.at(before.jobs.at(0).where.at(0).node).name;
  {
    streams all{c.url, count};
    REQUIRE(runtime::wait_until([&] { return all.begun() == count; }, long_s, 0.01));
    REQUIRE(all.ended() == 0);
    c.cluster->kill(killed);
    all.join();
    std::size_t again = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      INFO("stream " << i);
      INFO((all[i] ? std::string{} : all[i].error().text));
      REQUIRE(all[i]);
      const auto& d = *all[i];
      const auto expected = alone(i);
      CHECK(d.at("text") == expected.at("text").get<std::string>());
      CHECK(d.at("tokens").dump() == expected.at("tokens").dump());
      CHECK(d.at("logprobs").dump() == expected.at("logprobs").dump());
      CHECK(d.at("completion_tokens") == expected.at("completion_tokens").get<int>());
      CHECK(d.at("where").at("decoder") != killed);
      again += d.at("where").at("attempts").get<int>() == 2;
    }
    CHECK(again > 0);
  }
  REQUIRE(runtime::wait_until([&] { return c.pages("used") == 0; }, long_s, 0.05));

  streams lost{c.url, 4};
  REQUIRE(runtime::wait_until([&] { return lost.begun() == 4; }, long_s, 0.01));
  c.cluster->kill("front-1");
  lost.join();
  for (std::size_t i = 0; i < 4; ++i) CHECK_FALSE(lost[i]);
  REQUIRE(c.cluster->restart("front-1"));
  REQUIRE(runtime::wait_until([&] { return !c.cluster->fronts().empty(); }, long_s, 0.05));
  c.url = c.cluster->fronts().at("front-1");
  const runtime::stopwatch since;
  CHECK(runtime::wait_until([&] { return c.pages("free") > 0 && c.pages("used") == 0; },
                            2 * lease_s + 2, 0.05));
  streams next{c.url, 1};
  next.join();
  REQUIRE(next[0]);
  CHECK(next[0]->at("where").at("attempts") == 1);
}

TEST_CASE("a node that ends lets its decoder complete the streams that have begun") {
  serving_cluster c{{"only"}};
  const auto before = c.jobs();
  const auto node = before.nodes.at(before.jobs.at(0).where.at(0).node).name;
  constexpr std::uint64_t count = 16;
  streams all{c.url, count};
  REQUIRE(runtime::wait_until([&] { return all.begun() == count; }, long_s, 0.01));
  REQUIRE(all.ended() == 0);
  REQUIRE(::kill(c.cluster->id(node), SIGTERM) == 0);
  all.join();
  for (std::uint64_t i = 0; i < count; ++i) {
    INFO("stream " << i);
    INFO((all[i] ? std::string{} : all[i].error().text));
    REQUIRE(all[i]);
    if (i % 4 == 0) CHECK(all[i]->at("tokens").dump() == alone(i).at("tokens").dump());
    CHECK(all[i]->at("where").at("decoder") == node);
    CHECK(all[i]->at("where").at("attempts") == 1);
  }
  std::vector<cli::ended_process> ended;
  REQUIRE(runtime::wait_until([&] { return !(ended = c.cluster->ended()).empty(); }, long_s, 0.05));
  CHECK(ended[0].name == node);
  CHECK(ended[0].status == 0);
  // Its job goes on elsewhere.
  std::string by;
  REQUIRE(runtime::wait_until(
      [&] {
        streams next{c.url, 1};
        next.join();
        if (next[0]) by = next[0]->at("where").at("decoder").get<std::string>();
        return !by.empty();
      },
      long_s, 0.2));
  CHECK(by != node);
}

TEST_CASE("a front that ends writes the streams that have begun to their ends") {
  serving_cluster c{{"only"}};
  constexpr std::uint64_t count = 16;
  streams all{c.url, count};
  REQUIRE(runtime::wait_until([&] { return all.begun() == count; }, long_s, 0.01));
  REQUIRE(all.ended() == 0);
  REQUIRE(::kill(c.cluster->id("front-1"), SIGTERM) == 0);
  all.join();
  for (std::uint64_t i = 0; i < count; ++i) {
    INFO("stream " << i);
    INFO((all[i] ? std::string{} : all[i].error().text));
    REQUIRE(all[i]);
    CHECK(all[i]->at("completion_tokens") == new_tokens);
  }
  CHECK(all[0]->at("tokens").dump() == alone(0).at("tokens").dump());
  std::vector<cli::ended_process> ended;
  REQUIRE(runtime::wait_until([&] { return !(ended = c.cluster->ended()).empty(); }, long_s, 0.05));
  CHECK(ended[0].name == "front-1");
  CHECK(ended[0].status == 0);
}

TEST_CASE("a front says which tokens its decoder had cached, and counts them") {
  const serving_cluster c{{"only"}};
  const cli::json asked{{"model", "scribe"}, {"prompt", std::string(200, 'a')}, {"max_tokens", 2}};
  const auto cached = [&] {
    const auto a =
        web::ask(*web::parse_url(c.url), {"POST", "/v1/completions", asked.dump(), {}, long_s});
    REQUIRE(a);
    REQUIRE(a->status == 200);
    return cli::json::parse(a->body)
        .at("usage")
        .at("prompt_tokens_details")
        .at("cached_tokens")
        .get<int>();
  };
  CHECK(cached() == 0);
  CHECK(cached() == 192);
  const auto count = [&](const std::string& source) {
    return c.metric("troupe_prompt_positions_total{source=\"" + source + "\"} ");
  };
  CHECK(runtime::wait_until([&] { return count("cached") == 192; }, long_s, 0.05));
  CHECK(count("computed") == 208);
  CHECK(runtime::wait_until([&] { return c.pages("cached") > 0; }, long_s, 0.05));
}

TEST_CASE("OpenAI's own client gets from a cluster's front what it gets from one machine") {
  const char* modules = std::getenv("TROUPE_NODE_MODULES");
  if (!modules || !fs::exists(std::string{modules} + "/openai")) {
    WARN("not compared: TROUPE_NODE_MODULES names no node_modules with openai");
    return;
  }
  const serving_cluster c{{"only"}};
  const auto command = fmt::format("node {}/tests/web/openai_client.cjs {} {} open",
                                   troupe::test::source_dir(), modules, c.url);
  CHECK(std::system(command.c_str()) == 0);
  CHECK(runtime::wait_until([&] { return c.pages("used") == 0; }, long_s, 0.05));
}
