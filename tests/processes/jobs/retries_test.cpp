#include <signal.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "cli/program.hpp"
#include "processes/detached.hpp"
#include "processes/fixture.hpp"
#include "runtime/host/wait.hpp"

// Every end of a job's attempts in one word, as users and their scripts see it, and the repetition
// of programs that fail. One cluster for all.

using namespace troupe;
using namespace troupe::test;

namespace {

std::string three_nodes(const scratch& where) {
  return where.write(
      "cluster.yaml",
      "name: words\n"
      "datacenters:\n"
      "  - name: east\n"
      "    nodes:\n"
      "      - {name: e, gpu: A100-40GB, gpus: 4, count: 3, intra: pcie4, inter: eth25}\n"
      "settings: {heartbeat_s: 0.2, lease_s: 3}\n");
}

constexpr const char* sleeps = "sleep 1000";

struct words_fixture {
  words_fixture() : cluster{"words", three_nodes(where), cli::default_policy} {
    REQUIRE(cluster.wait_for_nodes());
  }
  using change = std::function<void(job_spec&)>;
  job_id submit(const std::string& script, const change& c = {}) {
    auto s = fixture::program("program", script);
    s.assumed.model = s.request.exact = true;
    s.request.gpus = 1;
    s.program.working_directory = where.path();
    if (c) c(s);
    return cluster.submit(s);
  }
  template <class Reply, class Request>
  Reply ask(const Request& r) {
    auto reply = cluster.client->ask(r, long_s).reply;
    REQUIRE(reply);
    return std::get<Reply>(reply->first);
  }
  job_status job(job_id id) { return cluster.job(id); }
  job_status running(job_id id) {
    REQUIRE(cluster.is(id, job_state::running));
    return job(id);
  }
  job_status ended(job_id id) {
    REQUIRE(runtime::wait_until([&] { return is_final(job(id).state); }, long_s, 0.05));
    return job(id);
  }
  /// The first attempt that has ended.
  attempt_end first_end(job_id id) {
    REQUIRE(runtime::wait_until([&] { return job(id).ends.has_value(); }, long_s, 0.05));
    return job(id).ends->front();
  }
  job_spec diverging() const {
    std::string text;
    for (int i = 0; i < 40; ++i)
      text += "A wheel turned under the bridge, and the water with it.\n";
    where.write("text.txt", text);
    auto job = formats::load_job(where.write(
        "diverging.yaml",
        "name: diverging\nglobal_batch: 4\niterations: 60\n"
        "model: {name: tiny, family: gpt, hidden: 16, layers: 2, heads: 2, sequence: 16, "
        "vocabulary: 256}\n"
        "train: {data: text.txt, seed: 1, learning_rate: 100, weight_decay: 0}\n"
        "pipeline: {stages: 1, microbatches: 2}\n"));
    REQUIRE(job);
    return *job;
  }
  void cancel(job_id id) { CHECK(ask<cancel_reply>(cancel_job{0, id}).done); }

  scratch where;
  fixture cluster;
};

}  // namespace

TEST_CASE("every end of a real job has its word, and only its word", "[.retries]") {
  words_fixture f;
  std::map<end_word, job_id> jobs;
  using enum end_word;
  // All at the same time: each waits for something.
  jobs[finished] = f.submit("exit 0");
  jobs[end_word::exit] = f.submit("exit 143");
  jobs[end_word::signal] = f.submit("kill -TERM $$");
  jobs[start_failed] = f.submit("", [](job_spec& s) { s.program.command = {"no-such-program"}; });
  jobs[time_limit] = f.submit(sleeps, [](job_spec& s) { s.limits.time_limit_s = 1; });
  jobs[deadline] = f.submit(sleeps, [](job_spec& s) { s.limits.deadline_s = 2; });
  jobs[out_of_memory] = f.submit("echo 'CUDA out of memory'; exit 1", [](job_spec& s) {
    s.program.retries = retry_rule{0, 1, 1, {out_of_memory}, {}};
  });
  jobs[rank_wait] =
      f.submit("[ $NODE_RANK = 1 ] && exit 0; trap 'exit 0' TERM; while :; do sleep 0.05; done",
               [](job_spec& s) {
                 s.request.gpus = 8;
                 s.program.rank_wait_s = 1;
               });
  for (const auto& [word, id] : jobs) {
    const auto s = f.ended(id);
    INFO(to_string(word) << ": " << s.detail);
    REQUIRE(s.why);
    CHECK(to_string(*s.why) == to_string(word));
    REQUIRE(s.ends);
    CHECK(to_string(s.ends->back().why) == to_string(word));
    CHECK(s.ends->back().gpu_s > 0);
    CHECK(s.ends->back().started_s <= s.ends->back().ended_s);
  }
  CHECK(f.job(jobs[end_word::exit]).ends->front().exit_code == 143);
  CHECK(f.job(jobs[end_word::signal]).ends->front().exit_code == 143);
  CHECK(f.job(jobs[rank_wait]).ends->front().node.has_value());

  // A job that no cluster like this can hold, and a training whose numbers overflow.
  auto large = fixture::program("large", "exit 0");
  large.assumed.model = large.request.exact = true;
  large.request.gpus = 1000;
  CHECK(f.ask<submit_reply>(submit_job{0, large}).job == 0);
  const auto all = f.cluster.jobs().jobs;
  const auto never = std::ranges::find(all, "large", &job_status::name);
  REQUIRE(never != all.end());
  CHECK(never->state == job_state::failed);
  CHECK(never->why == infeasible);
  CHECK_FALSE(never->ends);
  const auto overflows = f.ended(f.cluster.submit(f.diverging()));
  INFO(overflows.detail);
  CHECK(overflows.state == job_state::failed);
  CHECK(overflows.why == diverged);
  CHECK(overflows.ends->front().why == diverged);
  CHECK(overflows.progress.attempts == 1);

  // Things that people do to jobs that run.
  const auto held = f.submit(sleeps), again = f.submit(sleeps), gone = f.submit(sleeps);
  for (const auto id : {held, again, gone}) f.running(id);
  CHECK(f.ask<suspend_reply>(suspend_job{0, held, true}).done);
  CHECK(f.ask<requeue_reply>(requeue_job{0, again}).done);
  f.cancel(gone);
  CHECK(f.first_end(held).why == suspended);
  CHECK(f.first_end(again).why == requeued);
  CHECK(f.ended(gone).why == cancelled);
  CHECK(f.first_end(gone).why == cancelled);
  f.cancel(held);
  CHECK(f.ended(held).why == cancelled);
  CHECK(f.job(held).ends->front().why == suspended);
  const auto moves = f.submit("trap 'exit 0' TERM; while :; do sleep 0.05; done", [](job_spec& s) {
    s.assumed.model = s.request.exact = false;
    s.limits.max_gpus = 2;
    s.program.elastic.emplace().max_gpus = 2;
  });
  const auto gpus = f.running(moves).where.at(0).gpus;
  const auto moved_to =
      f.ask<move_reply>(move_job{0, moves, 0, 0, 0, "", {"e-1", "e-2"}, {}, gpus == 2 ? 1u : 2u});
  INFO(moved_to.why.text);
  REQUIRE(moved_to.done);
  CHECK(f.first_end(moves).why == moved);
  CHECK(f.running(moves).progress.attempts == 2);
  f.cancel(moves);
  f.ended(moves);

  // Things that happen to nodes; e-2 runs the job, wherever the policy would have it.
  f.cancel(again);
  f.ended(again);
  const auto nodes_of = [&](const std::vector<std::string>& names, bool drained, bool stop) {
    return f.ask<drain_reply>(drain_nodes{0, names, drained, stop}).done;
  };
  REQUIRE(nodes_of({"e-0", "e-1"}, true, false));
  const auto of_node = f.submit(sleeps, [](job_spec& s) { s.limits.max_restarts = 0; });
  f.running(of_node);
  REQUIRE(nodes_of({"e-2"}, true, true));
  CHECK(f.first_end(of_node).why == drained);
  REQUIRE(nodes_of({"e-2"}, false, false));
  f.running(of_node);
  // Its process ends in an orderly way, as in an upgrade: that counts for nothing.
  ::kill(f.cluster.cluster->id("e-2"), SIGTERM);
  REQUIRE(runtime::wait_until([&] { return !f.cluster.cluster->ended().empty(); }, long_s, 0.05));
  REQUIRE(f.cluster.cluster->restart("e-2"));
  REQUIRE(runtime::wait_until([&] { return f.job(of_node).progress.attempts == 3; }, long_s, 0.05));
  CHECK(f.job(of_node).ends->back().why == node_stopped);
  f.running(of_node);
  f.cluster.cluster->kill("e-2");
  const auto lost = f.ended(of_node);
  CHECK(lost.why == lost_node);
  REQUIRE(lost.ends->size() == 3);
  CHECK(lost.ends->back().node == 2u);
  CHECK(lost.detail.starts_with("lost its node in 1 consecutive attempts"));
}

TEST_CASE("a script that fails twice ends well, after delays that its rule gives", "[.retries]") {
  words_fixture f;
  const auto id = f.submit("[ $TROUPE_ATTEMPT -gt 2 ] || exit 7", [](job_spec& s) {
    s.program.retries = retry_rule{3, 1, 600, {}, {}};
  });
  const auto never = f.submit("exit 2", [](job_spec& s) {
    s.program.retries = retry_rule{3, 1, 600, {}, {1, 2, 3}};
  });
  const auto up = f.submit("exit 9", [](job_spec& s) {
    s.program.retries = retry_rule{1, 0.2, 600, {}, {}};
  });
  REQUIRE(f.ended(id).state == job_state::finished);
  const auto done = f.job(id);
  REQUIRE(done.ends);
  REQUIRE(done.ends->size() == 3);
  const auto& ends = *done.ends;
  for (int k = 1; k <= 2; ++k) {
    INFO("after attempt " << k);
    CHECK(ends[k - 1].why == end_word::exit);
    CHECK(ends[k - 1].exit_code == 7);
    const double waited_s = ends[k].started_s - ends[k - 1].ended_s;
    CHECK(waited_s >= std::exp2(k - 1));
    CHECK(waited_s <= 1.1 * std::exp2(k - 1) + 3);  // a busy machine starts it later
  }
  CHECK(f.ended(never).progress.attempts == 1);
  const auto used_up = f.ended(up);
  CHECK(used_up.progress.attempts == 2);
  CHECK(used_up.detail ==
        "failed (exit 9) in 2 attempts (retries 1); most recently: exit status 9");

  // A controller that ends in the wait begins it no second time.
  const auto waits = f.submit("[ $TROUPE_ATTEMPT -gt 1 ] || exit 1", [](job_spec& s) {
    s.program.retries = retry_rule{1, 4, 600, {}, {}};
  });
  f.first_end(waits);
  f.cluster.cluster->kill("controller");
  REQUIRE(f.cluster.cluster->restart("controller"));
  CHECK(f.job(waits).waiting_reason != "suspended");
  REQUIRE(f.ended(waits).state == job_state::finished);
  const auto over = *f.job(waits).ends;
  REQUIRE(over.size() == 2);
  CHECK(over[1].started_s - over[0].ended_s >= 4);
}
