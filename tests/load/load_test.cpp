#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "messages/base/refuse.hpp"
#include "messages/wire/job_pages.hpp"
#include "processes/fixture.hpp"

// A real controller with a long queue, and many clients that poll it.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int queued_jobs = 10'000, submitters = 8, pollers = 50;
constexpr double poll_s = 10;

std::unique_ptr<actors::real_host> new_client(const fixture& f) {
  actors::real_host_options c;
  c.upstream = f.cluster->controller_address();
  auto connected = actors::real_host::client(c, long_s);
  return connected ? std::move(*connected) : nullptr;
}

/// In a list of all pages; 0: the controller did not answer.
std::size_t jobs_seen_by(actors::real_host& client) {
  const auto all = all_jobs([&](const query_jobs& q) -> expected<query_reply> {
    auto reply = client.ask(q, long_s).reply;
    if (!reply) return refuse(reply.error());
    return std::get<query_reply>(std::move(reply->first));
  });
  return all ? all->jobs.size() : 0;
}

/// Runs `what(thread)` in that many threads.
template <class F>
void in_threads(int count, F what) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(what, i);
  for (auto& t : threads) t.join();
}

double quantile_of(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace

TEST_CASE("with 10,000 queued jobs and 50 polling clients, a query takes under a second") {
  fixture f{"load"};
  REQUIRE(f.wait_for_nodes());
  auto m = formats::load_model(shipped("models/bert-large.yaml"));
  REQUIRE(m);
  job_spec job;
  job.model = *m;
  job.name = "waits";
  job.global_batch = 4;
  job.program.command = {"sleep", "3600"};

  std::atomic<int> accepted{0};
  const runtime::stopwatch submitting;
  in_threads(submitters, [&](int) {
    const auto client = new_client(f);
    if (!client) return;
    for (int i = 0; i < queued_jobs / submitters; ++i) {
      const auto reply = client->ask(submit_job{0, job}, long_s).reply;
      if (reply && std::get<submit_reply>(reply->first).job != 0) ++accepted;
    }
  });
  REQUIRE(accepted == queued_jobs);
  const double submitted_s = submitting.s();
  // The controller makes replies about a long queue at most ten times a second.
  REQUIRE(runtime::wait_until([&] { return jobs_seen_by(*f.client) >= queued_jobs; }, long_s, 0.1));

  std::vector<std::vector<double>> took(pollers);
  std::atomic<int> unanswered{0};
  in_threads(pollers, [&](int me) {
    const auto client = new_client(f);
    if (!client) {
      ++unanswered;
      return;
    }
    const runtime::stopwatch all;
    while (all.s() < poll_s) {
      const runtime::stopwatch one;
      if (jobs_seen_by(*client) >= queued_jobs)
        took[static_cast<std::size_t>(me)].push_back(one.s());
      else
        ++unanswered;
    }
  });
  std::vector<double> times;
  for (const auto& t : took) times.insert(times.end(), t.begin(), t.end());
  REQUIRE_FALSE(times.empty());
  WARN(fmt::format("{} submits in {:.1f} s; {} queries: p50 {:.3f} s, p99 {:.3f} s, max {:.3f} s",
                   queued_jobs, submitted_s, times.size(), quantile_of(times, 0.5),
                   quantile_of(times, 0.99), quantile_of(times, 1)));
  CHECK(unanswered == 0);
  CHECK(quantile_of(times, 0.99) < 1);
  const auto nodes = f.jobs().nodes;
  CHECK(std::ranges::all_of(nodes, [](const auto& n) { return n.present; }));
}
