#include "actors/control/controller_by_hand.hpp"

#include <fmt/format.h>

#include "actors/control/ledger/ledger.hpp"
#include "actors/node/process_runner.hpp"

// How programs end: by themselves, stopped, beside a failed part or a lost one; and what counts
// afterwards.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

job_spec program(std::uint64_t iterations = 1000) {
  auto s = harness::small_job("program", iterations);
  s.program.command = {"train"};
  return s;
}

/// A ledger with one program on two nodes.
struct two_parts {
  cluster c = *harness::small_cluster();
  ledger book{c};
  lease_id last = 0;

  explicit two_parts(const job_spec& spec = program()) {
    REQUIRE(book.apply(job_accepted{1, 9, 1, spec, "somebody"}));
    start();
  }
  void start() {
    lease_granted g;
    g.lease = ++last, g.job = 1;
    g.parts = {{0, 11, {0}}, {1, 12, {0}}};
    REQUIRE(book.apply(g));
  }
  void revoke(lease_outcome why, const char* detail = "why") {
    REQUIRE(book.apply(lease_revoked{last, 2, why, detail}));
  }
  void end(std::uint32_t part, lease_outcome how, std::optional<std::int32_t> status = {},
           std::optional<program_end> said = {}, std::uint64_t iterations = 0) {
    REQUIRE(book.apply(
        part_ended{last, part, 3, how, iterations, 0, fmt::format("end {}", part), status, said}));
    // A compacted journal has the same state.
    ledger copy{c};
    for (const auto& e : book.snapshot()) REQUIRE(copy.apply(e));
    CHECK(copy == book);
  }
  const job_record& job() const { return *book.job(1); }
  /// The state that the job has, or is due to have.
  job_state state() const {
    const auto due = book.due(1, 4);
    return due ? due->final_state : job().state;
  }
};

using enum lease_outcome;
constexpr program_end done{{}, true};
program_end saved(std::uint64_t n) {
  return {n, false};
}

}  // namespace

TEST_CASE("a stopped program is finished if all its parts had ended or it says that it is done") {
  struct row {
    lease_outcome first;
    std::int32_t status_0;
    std::optional<program_end> said;
    lease_outcome second;
    std::int32_t status_1;
    job_state then;
  };
  for (const auto& r : {row{succeeded, 0, {}, succeeded, 0, job_state::finished},
                        row{preempted, 0, {}, preempted, 0, job_state::waiting},
                        row{succeeded, 0, {}, preempted, 0, job_state::waiting},
                        row{preempted, 0, {}, succeeded, 0, job_state::waiting},
                        row{succeeded, 0, done, preempted, 0, job_state::finished},
                        row{succeeded, 0, done, preempted, 1, job_state::waiting},
                        row{succeeded, 0, done, preempted, 143, job_state::waiting},
                        row{preempted, 143, done, preempted, 0, job_state::waiting}}) {
    CAPTURE(r.status_0, r.status_1);
    for (const bool other_way : {false, true}) {
      two_parts t;
      t.revoke(preempted, "suspended by alice");
      if (other_way) t.end(1, r.second, r.status_1);
      t.end(0, r.first, r.status_0, r.said);
      if (!other_way) t.end(1, r.second, r.status_1);
      CHECK(t.state() == r.then);
      // A part that ended neither with 0 nor by SIGTERM has its sentence there.
      const auto odd = [](int status) { return status != 0 && status != 143; };
      const auto* ended = odd(r.status_0) ? "; end 0" : odd(r.status_1) ? "; end 1" : "";
      CHECK(t.job().detail ==
            (r.then == job_state::finished ? "" : std::string{"suspended by alice"} + ended));
    }
  }
}

TEST_CASE("a job goes on from what its program saved, after a stop, a loss and out of memory") {
  for (const auto how : {preempted, lost, out_of_memory}) {
    two_parts t;
    t.end(0, how, 143, saved(400), 9);
    t.end(1, how, 143, {}, 7);
    CHECK(t.job().progress.iterations_done == 400);
    CHECK(t.job().progress.losses == 0);
    t.start();
    t.end(0, how, 143, saved(300));  // it had to go back
    t.end(1, how, 143, saved(350));
    CHECK(t.job().progress.iterations_done == 300);
    CHECK(t.job().progress.losses == (how == lost ? 1 : 0));
    t.start();
    t.end(0, how, 1, saved(5000));
    t.end(1, how, 1);
    CHECK(t.job().progress.iterations_done == 1000);
  }
  two_parts without_a_length{program(1)};
  without_a_length.end(0, preempted, 0, saved(5000));
  without_a_length.end(1, preempted, 0, saved(4000));
  CHECK(without_a_length.job().progress.iterations_done == 4000);
  two_parts without_a_word;
  without_a_word.end(0, preempted, 0, {}, 30);
  without_a_word.end(1, preempted, 0, {}, 20);
  CHECK(without_a_word.job().progress.iterations_done == 20);
}

TEST_CASE("a part that failed beside a lost one does not count, whichever is first") {
  for (const bool failed_first : {true, false}) {
    two_parts t;
    t.end(failed_first ? 1 : 0, failed_first ? failed : lost, 9);
    t.revoke(failed_first ? failed : lost);
    t.end(failed_first ? 0 : 1, failed_first ? lost : failed);
    CHECK(t.state() == job_state::waiting);
    CHECK(t.job().progress.losses == 1);
    CHECK(t.job().detail == "end 0");
    CHECK_FALSE(t.job().failed_rank);
  }
  two_parts both_failed;
  both_failed.end(1, failed, 9);
  both_failed.revoke(failed);
  both_failed.end(0, failed, 143);
  CHECK(both_failed.state() == job_state::failed);
  CHECK(both_failed.job().failed_rank == 1u);
  // Neither a deadline nor a user's wish has to do with the node.
  for (const auto why : {failed, cancelled}) {
    two_parts t;
    t.revoke(why, "its deadline has passed");
    t.end(0, why, 0);
    t.end(1, lost);
    CHECK(t.state() == (why == failed ? job_state::failed : job_state::cancelled));
    CHECK_FALSE(t.job().failed_rank);
  }
}

TEST_CASE("the first part that failed is known until the next attempt begins") {
  two_parts t;
  t.end(1, out_of_memory, 1);
  t.revoke(out_of_memory);
  t.end(0, out_of_memory, 143);
  CHECK(t.job().state == job_state::waiting);
  CHECK(t.job().failed_rank == 1u);
  CHECK(t.job().detail == "end 1");
  t.start();
  CHECK_FALSE(t.job().failed_rank);
  auto training = program();
  training.program.command.clear();
  training.train.emplace();
  two_parts stages{training};
  stages.end(0, failed);
  stages.end(1, failed);
  CHECK_FALSE(stages.job().failed_rank);  // its sentence names the stage
}

// -- the controller
// ----------------------------------------------------------------------------------------------

namespace {

/// A controller whose policy has placed a program on one GPU each of two nodes.
struct two_nodes : controller_by_hand {
  explicit two_nodes(const std::function<void(job_spec&)>& change = {})
      : controller_by_hand{"frenzy", [](cluster& c) {
                             c.nodes[0].gpus = c.nodes[1].gpus = 1;
                             c.settings.grace_s = 7;
                           }} {
    auto spec = program();
    spec.model = harness::gpt2(24, 2304, 16);
    spec.global_batch = 2;
    spec.limits.required_gpu_type = "A100-40GB";
    if (change) change(spec);
    all_report();
    id = submit(spec);
    pass_round();
    REQUIRE(seen().where.size() == 2);
    for (const auto& share : seen().where) nodes.push_back(share.node);
    lease = order(0).lease;
  }
  const std::string& name(std::uint32_t rank) const { return cluster_->nodes[nodes[rank]].name; }
  job_status seen() { return job(id); }
  const work_order& order(std::uint32_t rank) {
    note_orders();
    REQUIRE(orders[nodes[rank]].work.size() == 1);
    return orders[nodes[rank]].work[0];
  }
  bool is_ordered(std::uint32_t rank) {
    note_orders();
    return !orders[nodes[rank]].work.empty();
  }
  /// The rank's node reports its part in this state.
  void part(std::uint32_t rank, part_report::state now, int status = 0, program_progress said = {},
            const char* detail = "") {
    part_report p;
    p.lease = lease, p.now = now, p.exit_code = status, p.detail = detail, p.program = said;
    report(nodes[rank], {p});
    world.run_until(world.now_s() + 0.1);
  }
  void runs(std::uint32_t rank) { part(rank, part_report::state::running); }
  /// It was sent SIGTERM, and ended with that status.
  void obeys(std::uint32_t rank, int status = 0, program_progress said = {}) {
    said.signalled = true;
    const bool well = status == 0 && said.finished;
    part(rank, well ? part_report::state::succeeded : part_report::state::stopped, status, said);
  }
  suspend_reply suspend(bool on = true) { return ask<suspend_reply>(suspend_job{++asked, id, on}); }

  job_id id = 0;
  lease_id lease = 0;
  std::vector<node_index> nodes;  // by rank
};

bool has_line(const work_order& w, const std::string& line) {
  return std::ranges::find(w.environment, line) != w.environment.end();
}

}  // namespace

TEST_CASE("a suspended program that obeys waits with what it saved, and goes on there") {
  two_nodes t;
  CHECK(has_line(t.order(0), "TROUPE_ATTEMPT=1"));
  CHECK(has_line(t.order(0), "TROUPE_ITERATION=0"));
  CHECK(t.order(1).program == program_order{7, 0, 1000});
  program_progress said;
  said.iteration = 420, said.saved = 400;
  t.part(0, part_report::state::running, 0, said);
  CHECK(t.seen().iteration == 420);
  REQUIRE(t.suspend().done);
  CHECK_FALSE(t.is_ordered(0));
  t.obeys(0, 0, said);
  CHECK(t.seen().state == job_state::stopping);
  t.obeys(1);
  CHECK(t.seen().state == job_state::waiting);
  CHECK(t.seen().progress.iterations_done == 400);
  CHECK(t.seen().iteration == 400);
  REQUIRE(t.suspend(false).done);
  t.pass_round();
  CHECK(has_line(t.order(0), "TROUPE_ATTEMPT=2"));
  CHECK(has_line(t.order(0), "TROUPE_ITERATION=400"));
  CHECK(t.order(0).program == program_order{7, 400, 1000});
  CHECK(t.seen().iteration == 400);  // not what the first attempt reported last
  said.iteration = 10, said.resumed = 0;
  t.lease = t.order(0).lease;
  t.part(0, part_report::state::running, 0, said);
  CHECK(t.seen().iteration == 10);  // it had to start over
}

TEST_CASE("a program that ended before it was stopped, or says that it is done, is finished") {
  program_progress done_now;
  done_now.finished = true;
  two_nodes t;
  REQUIRE(t.suspend().done);
  t.part(0, part_report::state::succeeded);
  t.part(1, part_report::state::succeeded);
  CHECK(t.seen().state == job_state::finished);
  two_nodes said;
  REQUIRE(said.suspend().done);
  said.obeys(1);
  said.obeys(0, 0, done_now);
  CHECK(said.seen().state == job_state::finished);
}

TEST_CASE("the rank and the node that failed are in the job's detail and status") {
  two_nodes t;
  t.part(1, part_report::state::failed, 9, {}, "exit status 9");
  CHECK_FALSE(t.is_ordered(0));
  t.obeys(0, 143);
  auto s = t.seen();
  CHECK(s.state == job_state::failed);
  const auto detail = fmt::format("rank 1 on {}: exit status 9", t.name(1));
  CHECK(s.detail == detail);
  CHECK(s.failed_rank == 1u);
  CHECK(s.failed_node == t.name(1));
  CHECK(s.exit_code == 9);
  CHECK(t.ask<explanation>(explain_job{++t.asked, t.id}).summary == "failed: " + detail);
  two_nodes first;
  first.part(0, part_report::state::failed, 127, {}, "cannot run train");
  first.obeys(1);
  CHECK(first.seen().detail == fmt::format("rank 0 on {}: cannot run train", first.name(0)));
  CHECK(first.seen().failed_node == first.name(0));
}

TEST_CASE("a failed rank beside a lost node is a lost attempt") {
  two_nodes t;
  t.part(1, part_report::state::failed, 9, {}, "exit status 9");
  CHECK(t.seen().state == job_state::stopping);
  for (int i = 0; i < 40; ++i) {  // the other node is silent
    for (const node_index n : {t.nodes[1], 2u, 3u, 4u}) t.report(n);
    t.world.run_until(t.world.now_s() + 1);
  }
  CHECK(t.seen().state == job_state::waiting);
  CHECK_THAT(t.seen().detail, Catch::StartsWith(fmt::format("node {} was silent", t.name(0))));
  CHECK_FALSE(t.seen().failed_rank);
  // A part that its node killed by itself was lost too.
  two_nodes killed;
  killed.part(1, part_report::state::failed, 9, {}, "exit status 9");
  killed.part(0, part_report::state::stopped, 137, {}, lease_expired);
  CHECK(killed.seen().progress.attempts == 2);  // it was queued again, and both nodes are there
}

TEST_CASE("ranks that outlive one that ended are stopped after rank_wait_s, if the job says so") {
  two_nodes t{[](job_spec& s) { s.program.rank_wait_s = 20; }};
  t.part(1, part_report::state::succeeded);
  CHECK(t.seen().state == job_state::running);
  CHECK(t.seen().ended_ranks == std::vector<std::uint32_t>{1});
  CHECK(t.seen().detail == fmt::format("node {} has ended with status 0", t.name(1)));
  for (int i = 0; i < 18; ++i) t.runs(0);
  t.world.run_until(t.world.now_s() + 10);
  t.runs(0);
  CHECK(t.seen().state == job_state::running);
  t.world.run_until(t.world.now_s() + 10);
  t.runs(0);
  CHECK(t.seen().state == job_state::stopping);
  CHECK_FALSE(t.is_ordered(0));
  t.obeys(0);
  const auto s = t.seen();
  CHECK(s.state == job_state::failed);
  CHECK(
      s.detail ==
      fmt::format("rank 0 on {} was still running 20 s (rank_wait_s) after rank 1 on {} had ended",
                  t.name(0), t.name(1)));
  CHECK(s.failed_rank == 0u);
  two_nodes patient;
  patient.part(1, part_report::state::succeeded);
  for (int i = 0; i < 10; ++i) {
    patient.world.run_until(patient.world.now_s() + 20);
    patient.runs(0);
  }
  CHECK(patient.seen().state == job_state::running);
  patient.part(0, part_report::state::succeeded);
  CHECK(patient.seen().state == job_state::finished);
}

TEST_CASE("a requeued job is stopped once per request, and starts again") {
  two_nodes t;
  const requeue_job r{77, t.id};
  REQUIRE(t.ask<requeue_reply>(r).done);
  CHECK(t.seen().state == job_state::stopping);
  const auto again = t.ask<requeue_reply>(requeue_job{78, t.id});
  CHECK_FALSE(again.done);
  CHECK(again.why.text == fmt::format("job {} is not running: it is stopping", t.id));
  t.obeys(0);
  t.obeys(1);
  t.pass_round();
  CHECK(t.seen().state == job_state::running);
  CHECK(t.seen().progress.attempts == 2);
  CHECK(t.ask<requeue_reply>(r).done);  // repeated: its answer was lost
  CHECK(t.seen().state == job_state::running);
  CHECK(t.ask<requeue_reply>(requeue_job{79, 99}).why.code == reason::kind::unknown);
}

TEST_CASE("a program's own grace_s goes to its nodes, and the cluster's where it has none") {
  two_nodes t{[](job_spec& s) { s.program.grace_s = 90; }};
  CHECK(t.order(0).program->grace_s == 90);
  CHECK(t.order(0).stop_within_s == 0);
  REQUIRE(t.suspend().done);
  CHECK_FALSE(t.is_ordered(0));  // the node keeps the time
}
