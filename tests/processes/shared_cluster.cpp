#include "processes/shared_cluster.hpp"

#include <csignal>

#include <algorithm>

#include "cli/program.hpp"
#include "cli/verbs/serving/remote_completion.hpp"
#include "harness/source_dir.hpp"
#include "runtime/host/wait.hpp"

namespace troupe::test {

namespace {

constexpr std::uint32_t prompts = 4, new_tokens = 12;

std::string prompt_of(std::uint64_t n) {
  const std::string begin = "The President of the United States shall, from time to time, give ";
  return begin + std::string(20 * (n % prompts), 'x') + std::to_string(n % prompts);
}

const std::map<std::uint64_t, std::string>& tokens_alone() {
  static const auto all = [] {
    std::map<std::uint64_t, std::string> tokens;
    for (std::uint64_t n = 0; n < prompts; ++n) {
      const auto r =
          test::troupe({"infer", prompt_of(n), "--alone", "--model", test::shipped("models/scribe"),
                        "--json", "--max-tokens", std::to_string(new_tokens)});
      REQUIRE(r.status == 0);
      tokens[n] = r.document().at("tokens").dump();
    }
    return tokens;
  }();
  return all;
}

}  // namespace

void tally::decline(const std::string& why) {
  const std::lock_guard hold{guard_};
  ++declined_[why];
}

std::string tally::declined() const {
  const std::lock_guard hold{guard_};
  std::string all;
  for (const auto& [why, times] : declined_) all += fmt::format("{} x {}; ", times, why);
  return all;
}

clients::clients(const std::string& url, std::uint64_t count, double every_s)
    : tokens_alone_{tokens_alone()} {
  for (std::uint64_t c = 0; c < count; ++c)
    threads_.emplace_back([this, url, every_s, c] {
      for (auto n = c; !over_; ++n) {
        const runtime::stopwatch since;
        ask(url, n);
        if (since.s() < every_s) runtime::pause(every_s - since.s());
      }
    });
}

void clients::end() {
  over_ = true;
  for (auto& t : threads_) t.join();
  threads_.clear();
}

bool clients::go_on(std::size_t more, double limit_s) const {
  const auto before = of.right.load();
  return runtime::wait_until([&] { return of.right >= before + more; }, limit_s, 0.01);
}

void clients::ask(const std::string& url, std::uint64_t n) {
  cli::remote_prompt p;
  p.url = url;
  p.text = prompt_of(n);
  p.what.max_tokens = new_tokens;
  p.what.how.temperature = 0;
  const auto made = cli::complete_remotely(p, [](std::string_view) {});
  if (!made) {
    ++of.failed;
    of.refused += made.error().code != reason::kind::unavailable;
    return;
  }
  ++(made->at("tokens").dump() == tokens_alone_.at(n % prompts) ? of.right : of.wrong);
  const auto& where = made->at("where");
  of.bubbles += where.at("prefill") == "bubbles";
  if (const auto& why = where.at("declined"); why.is_string()) of.decline(why);
  of.again += where.at("attempts").get<int>() > 1;
  of.two_guests += where.at("guests") == 2;
}

lending_cluster::lending_cluster(const std::function<void(job_spec&)>& change)
    : fixture{
          "bubbles",
          fs::path{troupe::test::source_dir()} / "tests/processes/clusters/beside-training.yaml",
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
  if (change) change(*t);
  training = submit(*t);
  REQUIRE(trains_on(40));
  url = cluster->fronts().at("front-1");
}

job_status lending_cluster::status() {
  const auto all = jobs();
  return *std::ranges::find(all.jobs, training, &job_status::job);
}

bool lending_cluster::trains_on(std::uint64_t more) {
  const auto before = status().iteration;
  return runtime::wait_until([&] { return status().iteration >= before + more; }, long_s, 0.1);
}

std::string lending_cluster::node_of_stage(std::size_t n) {
  const auto all = jobs();
  const auto at = std::ranges::find(all.jobs, training, &job_status::job);
  return all.nodes.at(at->where.at(n).node).name;
}

void lending_cluster::stop_for(const std::string& name, double s) {
  const auto process = cluster->id(name);
  ::kill(process, SIGSTOP);
  runtime::pause(s);
  ::kill(process, SIGCONT);
}

}  // namespace troupe::test
