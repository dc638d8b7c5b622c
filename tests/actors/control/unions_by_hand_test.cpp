#include "actors/control/controller_by_hand.hpp"
#include "actors/control/keyed_clients.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "actors/control/leases/rare_branches.hpp"
#include "actors/control/ledger/ledger.hpp"
#include "actors/control/ledger/unions.hpp"
#include "planners/policy/policy.hpp"
#include "runtime/journal/memory_journal.hpp"

// Unions of jobs as their users and the cluster's nodes see them.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

/// Starts `size` waiting jobs as one on two GPUs of the first node, `unions` times; nothing else.
struct merging final : planners::queue_policy {
  std::size_t size = 3;
  merge_kind kind = merge_kind::shared;
  mutable int unions = 1;

  std::string_view name() const override { return "merging"; }
  std::vector<planners::decision> decide(const planners::snapshot& s,
                                         random_source&) const override {
    if (s.waiting.size() < size || unions == 0) return {};
    --unions;
    plan how;
    how.data_parallel = 2;
    auto at = s.waiting.begin();
    auto d = planners::start_job(at->first, how, {{0, 2}});
    while (++at != s.waiting.end() && d.with.size() + 1 < size) d.with.push_back(at->first);
    d.kind_of_union = kind;
    d.expected = planners::start_estimate{1, 1e9, false, 5.0};
    return {d};
  }

 private:
  reason why_waits(const planners::snapshot&, const planners::job_view&) const override {
    return {reason::kind::insufficient, "waits for others"};
  }
};

job_spec tuning(std::uint64_t iterations, std::vector<std::string> card = {"photo", "animals"}) {
  auto s = harness::small_job("tuning", iterations);
  s.merging.dataset_card = std::move(card);
  return s;
}

/// A controller that merges jobs, whose nodes and clients are the test.
struct merged_by_hand {
  std::shared_ptr<merging> policy = std::make_shared<merging>();
  controller_by_hand c;

  explicit merged_by_hand(merge_kind kind = merge_kind::shared, bool keys = false)
      : c{policy, {}, keys ? with_keys : nullptr} {
    policy->kind = kind;
    c.speak_for(bob);
    c.speak_for(root);
    c.all_report();
  }
  /// Jobs of 100, 200 and 300 iterations, and whether they may be merged with others' jobs.
  void submit_three(std::optional<bool> across = {},
                    const std::array<address, 3>& by = {ann, ann, ann}) {
    for (std::size_t i = 0; i < 3; ++i) {
      auto s = tuning(100 * (i + 1));
      if (policy->kind == merge_kind::adapters) s.merging.kind = merge_kind::adapters;
      s.merging.across_owners = across;
      REQUIRE(c.ask<submit_reply>(submit_job{++c.asked, s}, by[i]).job == i + 1);
    }
    c.pass_round();
  }
  void report(std::uint64_t iterations, part_report::state now = part_report::state::running,
              lease_id lease = 1) {
    part_report p;
    p.lease = lease;
    p.now = now;
    p.iterations = iterations;
    c.report(0, {p});
  }
  void stopped(std::uint64_t iterations) { report(iterations, part_report::state::stopped); }
  std::size_t ordered() {
    c.note_orders();
    return c.orders[0].work.size();
  }
  job_state state(job_id id) { return c.job(id).state; }
  std::vector<job_id> merged_with(job_id id) {
    return c.job(id).merged_with.value_or(std::vector<job_id>{});
  }
  explanation explained(job_id id) { return c.ask<explanation>(explain_job{++c.asked, id}); }
  cancel_reply cancel(job_id id, address who = ann) {
    return c.ask<cancel_reply>(cancel_job{++c.asked, id}, who);
  }
  suspend_reply suspend(job_id id, bool suspended = true, address who = ann) {
    return c.ask<suspend_reply>(suspend_job{++c.asked, id, suspended}, who);
  }
  requeue_reply requeue(job_id id, std::uint64_t request, address who = ann) {
    return c.ask<requeue_reply>(requeue_job{request, id}, who);
  }
  /// The ledger by the controller's journal.
  ledger replayed() const {
    ledger book{*c.cluster_};
    const runtime::memory_journal journal{c.world.disk(controller_address)};
    const auto ok = journal.replay([&](const journal_entry& e) { REQUIRE(book.apply(e)); });
    REQUIRE(ok);
    return book;
  }
  /// Between two entries of the controller its host dies; this is the last that it has written.
  void die_after(const journal_entry& e) {
    c.world.crash(controller_address);
    runtime::memory_journal journal{c.world.disk(controller_address)};
    REQUIRE(journal.append(std::array{e}));
    c.world.restart(controller_address);
    c.world.run_until(c.world.now_s() + 0.1);
  }
};

}  // namespace

TEST_CASE("jobs that are started together run as one, and each is shown as itself") {
  merged_by_hand t;
  t.submit_three();
  const auto all = t.c.ask<query_reply>(query_jobs{++t.c.asked, 0});
  REQUIRE(all.jobs.size() == 3);
  CHECK_FALSE(all.older_left_out);
  for (job_id id = 1; id <= 3; ++id) {
    INFO(id);
    const auto j = t.c.job(id);
    CHECK(all.jobs[id - 1].job == id);
    CHECK(all.jobs[id - 1].merged_with == j.merged_with);
    CHECK(j.state == job_state::running);
    CHECK(j.lease == 1u);
    CHECK(j.where == allocation{{0, 2}});
    CHECK(j.how.data_parallel == 2);
    CHECK(j.predicted_bytes == 1e9);
    CHECK(j.iterations == 100 * id);
  }
  CHECK(t.merged_with(1) == std::vector<job_id>{2, 3});
  CHECK(t.merged_with(2) == std::vector<job_id>{1, 3});
  CHECK(t.merged_with(3) == std::vector<job_id>{1, 2});
  REQUIRE(t.ordered() == 1);
  const auto& w = t.c.orders[0].work[0];
  CHECK(w.job == 4);
  CHECK(w.lease == 1);
  CHECK(w.iterations == 300);
  CHECK(w.start_s == 5);
  const auto view = t.c.ask<query_reply>(query_jobs{++t.c.asked, 9, true}).view;
  REQUIRE(view);
  CHECK(view->scheduling.started == 1);
}

TEST_CASE("nobody finds a union by its number, and the next job has the one after it") {
  for (const auto who : {ann, root}) {
    merged_by_hand t{merge_kind::shared, true};
    t.submit_three();
    CHECK(t.c.ask<query_reply>(query_jobs{++t.c.asked, 4}, who).jobs.empty());
    const auto e = t.c.ask<explanation>(explain_job{++t.c.asked, 4}, who);
    CHECK(e.job.job == 0);
    CHECK(e.summary == "no job 4");
    const auto unknown = [](const reason& why) {
      return why.code == reason::kind::unknown && why.text == "no job 4";
    };
    CHECK(unknown(t.cancel(4, who).why));
    CHECK(unknown(t.suspend(4, true, who).why));
    CHECK(unknown(t.requeue(4, 77, who).why));
    move_job m;
    m.request = ++t.c.asked;
    m.job = 4;
    CHECK(unknown(t.c.ask<move_reply>(m, who).why));
    CHECK(unknown(t.c.ask<log_chunk>(read_log{++t.c.asked, 4, 0, 0, 0}, who).why));
    CHECK(t.c.ask<training_reply>(query_training{++t.c.asked, 4, 0}, who).why.code ==
          reason::kind::unknown);
    for (job_id id = 1; id <= 3; ++id) CHECK(t.state(id) == job_state::running);
    CHECK(t.c.submit(tuning(100)) == 5);
  }
}

TEST_CASE("a member's progress and remaining time are its share of its union's") {
  merged_by_hand shared;
  shared.submit_three();
  shared.report(150);
  CHECK(shared.c.job(1).iteration == 50);
  CHECK(shared.c.job(2).iteration == 100);
  CHECK(shared.c.job(3).iteration == 150);
  REQUIRE(shared.c.job(3).eta_s);
  CHECK(*shared.c.job(1).eta_s == Approx(*shared.c.job(3).eta_s).margin(0.1));
  merged_by_hand adapters{merge_kind::adapters};
  adapters.submit_three();
  CHECK(adapters.c.orders[0].work.at(0).iterations == 600);
  adapters.report(150);
  for (job_id id = 1; id <= 3; ++id) CHECK(adapters.c.job(id).iteration == 50);
  // 150 iterations are left until the first is done, then 200 for two, then 100 for the last.
  const auto last_s = *adapters.c.job(3).eta_s;
  CHECK(*adapters.c.job(1).eta_s == Approx(last_s / 3).margin(0.1));
  CHECK(*adapters.c.job(2).eta_s == Approx(last_s * 7 / 9).margin(0.1));
}

TEST_CASE("an explanation of a member says with whom it is merged, and how much they agree") {
  merged_by_hand t;
  const std::vector<std::vector<std::string>> cards{
      {"photo", "animals"}, {"photo", "plants"}, {"photo", "animals", "birds"}};
  for (std::size_t i = 0; i < 3; ++i) t.c.submit(tuning(100 * (i + 1), cards[i]));
  t.c.pass_round();
  const auto e = t.explained(1);
  CHECK_THAT(e.summary,
             Catch::Contains("running on GPUs 2 of a-0") && Catch::EndsWith(", merged with 2, 3"));
  REQUIRE(e.merge);
  CHECK(e.merge->kind == "shared");
  CHECK(e.merge->with == std::vector<job_id>{2, 3});
  CHECK(e.merge->similarity == 1.0 / 3);  // with the second
  REQUIRE(e.merge->duration_ratio);
  CHECK(*e.merge->duration_ratio == Approx(3));  // with the third
  CHECK(e.merge->why_not.empty());
  CHECK_FALSE(e.follows);
  CHECK_FALSE(e.placement.empty());
  CHECK(t.explained(2).placement == e.placement);  // it was one placement
  t.suspend(2);
  CHECK_THAT(t.explained(3).summary,
             Catch::EndsWith(": job 2, merged with 1, 3, was suspended by local"));
}

TEST_CASE("a member of a shared union that is cancelled ends, and the others are queued again") {
  merged_by_hand t;
  t.submit_three();
  CHECK(t.cancel(1).done);
  CHECK(t.state(1) == job_state::cancelled);
  CHECK(t.c.job(1).detail == "cancelled by local");
  for (const job_id id : {2, 3}) CHECK(t.state(id) == job_state::stopping);
  CHECK(t.ordered() == 0);
  t.stopped(150);
  for (const job_id id : {2, 3}) {
    const auto j = t.c.job(id);
    CHECK(j.state == job_state::waiting);
    CHECK(j.progress.iterations_done == 50 * id);
    CHECK(j.detail == "job 1 left the union");
    CHECK_FALSE(j.merged_with);
  }
  CHECK(t.cancel(1).done);  // once more: it is
  CHECK(t.replayed().unfinished() == 2);
  CHECK(is_final(t.replayed().job(4)->state));
}

TEST_CASE("members with adapters are cancelled one by one, and the last takes the union along") {
  merged_by_hand t{merge_kind::adapters};
  t.submit_three();
  CHECK(t.cancel(2).done);
  CHECK(t.state(2) == job_state::cancelled);
  CHECK(t.merged_with(1) == std::vector<job_id>{3});
  CHECK(t.cancel(1).done);
  CHECK(t.state(3) == job_state::running);
  CHECK_FALSE(t.c.job(3).merged_with);
  CHECK(t.ordered() == 1);
  reached_branches = 0;
  CHECK(t.cancel(3).done);
  CHECK(reached_branches == 1U << static_cast<unsigned>(rare_branch::no_member_left));
  CHECK(t.state(3) == job_state::cancelled);
  CHECK(t.ordered() == 0);
  t.stopped(9);
  CHECK(t.replayed().unfinished() == 0);
  CHECK(t.c.ask<query_reply>(query_jobs{++t.c.asked, 0}).nodes[0].idle == 4);
}

TEST_CASE("members with adapters end when their own iterations are done") {
  merged_by_hand t{merge_kind::adapters};
  t.submit_three();
  t.report(299);
  CHECK(t.state(1) == job_state::running);
  reached_branches = 0;
  t.report(300);
  CHECK(reached_branches == 1U << static_cast<unsigned>(rare_branch::member_done));
  CHECK(t.state(1) == job_state::finished);
  CHECK(t.c.job(1).progress.iterations_done == 100);
  CHECK(t.merged_with(2) == std::vector<job_id>{3});
  t.report(400);
  CHECK(t.c.job(2).iteration == 150);
  CHECK(t.c.job(3).iteration == 150);
  t.report(500);
  CHECK(t.state(2) == job_state::finished);
  CHECK(t.state(3) == job_state::running);
  t.report(600, part_report::state::succeeded);
  CHECK(t.state(3) == job_state::finished);
  CHECK(t.replayed().unfinished() == 0);
}

TEST_CASE("a suspended member stays suspended, and the others are queued again and merged anew") {
  for (const auto kind : {merge_kind::shared, merge_kind::adapters}) {
    merged_by_hand t{kind};
    t.submit_three();
    CHECK(t.suspend(2).done);
    for (job_id id = 1; id <= 3; ++id) CHECK(t.state(id) == job_state::stopping);
    t.stopped(150);
    for (job_id id = 1; id <= 3; ++id) {
      const auto j = t.c.job(id);
      CHECK(j.state == job_state::waiting);
      CHECK(j.progress.iterations_done == (kind == merge_kind::shared ? 50 * id : 50));
      CHECK_THAT(j.detail, Catch::StartsWith("job 2, merged with 1, 3, was suspended by"));
      CHECK((j.waiting_reason == "suspended") == (id == 2));
    }
    t.policy->size = 2;
    t.policy->unions = 1;
    t.c.pass_round();
    t.c.submit(tuning(10));  // a change, on which the policy decides
    t.c.pass_round();
    CHECK(t.merged_with(1) == std::vector<job_id>{3});
    CHECK(t.state(2) == job_state::waiting);
    CHECK(t.suspend(2, false).done);
    CHECK(t.state(2) == job_state::waiting);
    CHECK(t.c.job(2).detail.empty());
  }
}

TEST_CASE("all members of a union are queued again with the one that a user requeues, once") {
  merged_by_hand t;
  t.policy->unions = 2;
  t.submit_three();
  const std::uint64_t request = 4242;
  CHECK(t.requeue(3, request).done);
  for (job_id id = 1; id <= 3; ++id) CHECK(t.state(id) == job_state::stopping);
  t.stopped(30);
  t.c.pass_round();
  for (job_id id = 1; id <= 3; ++id) {
    CHECK(t.state(id) == job_state::running);
    CHECK(t.c.job(id).progress.attempts == 2);
    CHECK(t.c.job(id).lease == 2u);
    CHECK(t.c.job(id).progress.iterations_done == 10 * id);
  }
  CHECK(t.requeue(3, request).done);  // a repetition, which stops nothing
  CHECK(t.state(3) == job_state::running);
}

TEST_CASE("a member cannot be moved, which is said with the jobs that it is merged with") {
  merged_by_hand t;
  t.submit_three();
  move_job m;
  m.request = ++t.c.asked;
  m.job = 2;
  const auto said = t.c.ask<move_reply>(m);
  CHECK_FALSE(said.done);
  CHECK_THAT(said.why.text, Catch::Contains("merged with 1, 3"));
}

TEST_CASE("a member's owner and operators may stop it, and the owners of the others may not") {
  merged_by_hand t{merge_kind::adapters, true};
  t.submit_three(true, {ann, bob, ann});
  CHECK(t.merged_with(2) == std::vector<job_id>{1, 3});
  const auto refused = [](const reason& why) { return why.code == reason::kind::refused; };
  CHECK(refused(t.cancel(1, bob).why));
  CHECK(refused(t.suspend(1, true, bob).why));
  CHECK(refused(t.requeue(1, 1, bob).why));
  CHECK(refused(t.cancel(2, ann).why));
  CHECK(refused(t.c.ask<log_chunk>(read_log{++t.c.asked, 2, 0, 0, 0}, ann).why));
  for (job_id id = 1; id <= 3; ++id) CHECK(t.state(id) == job_state::running);
  CHECK(t.cancel(2, bob).done);
  CHECK(t.c.job(2).detail == "cancelled by bob");
  CHECK(t.cancel(1, root).done);
  CHECK(t.state(3) == job_state::running);
}

TEST_CASE("jobs of several owners are not merged unless all of them agree") {
  for (const auto across : {std::optional<bool>{}, std::optional{false}}) {
    merged_by_hand t{merge_kind::shared, true};
    t.submit_three(across, {ann, ann, bob});
    for (job_id id = 1; id <= 3; ++id) CHECK(t.state(id) == job_state::waiting);
    const auto view = t.c.ask<query_reply>(query_jobs{++t.c.asked, 9, true}).view;
    REQUIRE(view);
    CHECK(view->scheduling.refused == 1);
    CHECK(t.c.submit(tuning(10)) == 4);  // no union was made
  }
  merged_by_hand same{merge_kind::shared, true};
  same.submit_three({}, {bob, bob, bob});
  CHECK(same.state(1) == job_state::running);
}

TEST_CASE("a drained node's jobs are the members, which are all stopped") {
  merged_by_hand t;
  t.submit_three();
  const auto drained = t.c.ask<drain_reply>(drain_nodes{++t.c.asked, {"a-0"}, true, true});
  REQUIRE(drained.done);
  CHECK(drained.jobs == std::vector<job_id>{1, 2, 3});
  for (job_id id = 1; id <= 3; ++id) CHECK(t.state(id) == job_state::stopping);
  t.stopped(150);
  for (job_id id = 1; id <= 3; ++id) {
    CHECK(t.state(id) == job_state::waiting);
    CHECK_THAT(t.c.job(id).detail, Catch::Contains("was drained by"));
  }
}

TEST_CASE("a union that got no lease before its controller died ends, and its members wait") {
  merged_by_hand t;
  t.policy->unions = 0;
  t.submit_three();
  const auto book = t.replayed();
  const std::vector<const job_record*> members{book.job(1), book.job(2)};
  job_accepted made{4, 0, 20, spec_of_union(members, merge_kind::shared), ""};
  made.members = union_of(members, merge_kind::shared);
  t.die_after(made);
  CHECK(t.replayed().job(4)->state == job_state::cancelled);
  t.policy->unions = 1;
  t.c.all_report();
  t.c.pass_round();
  for (job_id id = 1; id <= 3; ++id) CHECK(t.state(id) == job_state::running);
  CHECK(t.c.orders[0].work.at(0).job == 5);
}

TEST_CASE("a shared union that a member left before the controller died is ended after it") {
  for (const auto kind : {merge_kind::shared, merge_kind::adapters}) {
    merged_by_hand t{kind};
    t.submit_three();
    t.die_after(member_ended{1, 30, lease_outcome::cancelled, 0, "cancelled by local"});
    const auto book = t.replayed();
    CHECK(book.job(1)->state == job_state::cancelled);
    CHECK(book.job(4)->state ==
          (kind == merge_kind::shared ? job_state::stopping : job_state::running));
    CHECK(book.lease(1)->revoked == (kind == merge_kind::shared));
    CHECK_THAT(book.lease(1)->detail, kind == merge_kind::shared
                                          ? Catch::Equals("job 1 left the union")
                                          : Catch::Equals(""));
  }
}

TEST_CASE("a running union goes on after its controller's restart, as it was") {
  merged_by_hand t;
  t.submit_three();
  t.c.world.crash(controller_address);
  t.c.world.restart(controller_address);
  t.c.world.run_until(t.c.world.now_s() + 0.1);
  t.c.pass_round();
  for (job_id id = 1; id <= 3; ++id) CHECK(t.state(id) == job_state::running);
  CHECK(t.merged_with(1) == std::vector<job_id>{2, 3});
  CHECK(t.c.orders[0].work.at(0).lease == 1);
  t.report(300, part_report::state::succeeded);
  for (job_id id = 1; id <= 3; ++id) CHECK(t.state(id) == job_state::finished);
}
