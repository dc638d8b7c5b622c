#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "actors/control/controller_by_hand.hpp"
#include "actors/control/ledger/ends.hpp"
#include "actors/control/ledger/ledger.hpp"
#include "actors/control/ledger/retries.hpp"
#include "messages/codec/codec.hpp"
#include "messages/domain/work_kind.hpp"

// Which ends of attempts count, for what, and when a job that has failed is queued again.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using Catch::Contains;

namespace {

job_spec retried(std::uint32_t attempts, double delay_s = 10) {
  auto s = harness::small_job("retried", 1000);
  s.program.command = {"train"};
  s.limits.max_restarts = 3;
  s.program.retries = retry_rule{attempts, delay_s, 600, {}, {}};
  return s;
}

/// A ledger with one program on one node, and copies of it from its snapshots.
struct one_part {
  cluster c = *harness::small_cluster();
  ledger book{c};
  lease_id last = 0;
  double now_s = 100;

  explicit one_part(const job_spec& spec) {
    REQUIRE(book.apply(job_accepted{1, 9, 1, spec, "somebody"}));
  }
  void start() {
    lease_granted g;
    g.lease = ++last, g.job = 1, g.at_s = now_s;
    g.parts = {{0, 11, {0, 1}}};
    REQUIRE(book.apply(g));
  }
  /// An attempt that runs for so long and ends like this.
  void attempt(end_word why, double ran_s = 5, std::optional<std::int32_t> status = {},
               std::optional<std::uint64_t> saved = {}) {
    start();
    now_s += ran_s;
    auto e = make_part_end(last, 0, now_s, why, "what happened");
    e.exit_code = status;
    if (saved) e.program = program_end{*saved, false};
    REQUIRE(book.apply(e));
    ledger copy{c};
    for (const auto& entry : book.snapshot()) {
      const auto again = decode_entry(encode(entry));
      REQUIRE(again);
      REQUIRE(copy.apply(*again));
    }
    CHECK(copy == book);
  }
  const job_record& job() const { return *book.job(1); }
  bool waits() const { return !book.due(1, now_s) && job().state == job_state::waiting; }
  double delay_s() const { return job().not_before_s.value_or(now_s) - now_s; }
};

constexpr end_word peoples[] = {end_word::suspended, end_word::requeued,     end_word::moved,
                                end_word::drained,   end_word::node_stopped, end_word::removed,
                                end_word::preempted, end_word::merged};

}  // namespace

TEST_CASE("an outcome implies a word, and entries carry only words that say more") {
  using enum lease_outcome;
  for (const auto& [outcome, word] :
       {std::pair{succeeded, end_word::finished}, std::pair{failed, end_word::exit},
        std::pair{out_of_memory, end_word::out_of_memory},
        std::pair{preempted, end_word::preempted}, std::pair{cancelled, end_word::cancelled},
        std::pair{lost, end_word::lost_node}}) {
    CHECK(word_of(outcome) == word);
    CHECK_FALSE(make_part_end(1, 0, 2, word, "").word);
    CHECK_FALSE(make_revocation(1, 2, word, "").word);
    CHECK(make_revocation(1, 2, word, "").why == outcome);
  }
  for (std::size_t i = 0; i < end_words.size(); ++i) {
    const auto w = static_cast<end_word>(i);
    INFO(to_string(w));
    CHECK(word_of(make_part_end(1, 0, 2, w, "")) == w);
    CHECK(word_of(make_revocation(1, 2, w, "")) == w);
    for (const auto last : {std::optional<end_word>{}, std::optional{end_word::exit}})
      if (w == end_word::finished || blame_of(w) == blame::job || w == end_word::cancelled)
        CHECK(word_of(make_job_end(1, 2, w, "", last), last) == w);
  }
  // As a job without any plan, or one that a user ends before it ran, is recorded today.
  CHECK_FALSE(make_job_end(1, 2, end_word::infeasible, "").word);
  CHECK_FALSE(make_job_end(1, 2, end_word::cancelled, "", end_word::lost_node).word);
  CHECK(make_job_end(1, 2, end_word::deadline, "").word == end_word::deadline);
}

TEST_CASE("only what nodes do without progress counts for max_restarts") {
  one_part t{retried(0)};
  for (int i = 0; i < 8; ++i)
    for (const auto why : peoples) {
      t.attempt(why);
      INFO(to_string(why));
      REQUIRE(t.waits());
      CHECK(t.job().progress.losses == 0);
      CHECK(t.job().progress.retried == 0);
      CHECK(t.job().word == why);
      CHECK_FALSE(t.job().not_before_s);
    }
  for (int i = 1; i <= 3; ++i) {
    t.attempt(end_word::lost_node);
    t.attempt(end_word::node_stopped);  // does not break the row either
    CHECK(t.job().progress.losses == static_cast<std::uint32_t>(i));
  }
  t.attempt(end_word::lost_node, facts_of(work_kind::program).proof_s);
  CHECK(t.job().progress.losses == 0);
  for (int i = 0; i < 3; ++i)
    t.attempt(end_word::lost_node, facts_of(work_kind::program).proof_s - 1);
  CHECK(t.job().progress.losses == 3);
  t.attempt(end_word::lost_node, 5, {}, 40);
  CHECK(t.job().progress.losses == 0);
  for (int i = 0; i < 4; ++i) t.attempt(end_word::lost_node, 5, {}, 40);
  CHECK_FALSE(t.waits());
  const auto over = t.book.due(1, t.now_s);
  REQUIRE(over);
  CHECK(over->detail ==
        "lost its node in 4 consecutive attempts without progress (max_restarts 3); most recently: "
        "what happened");
  REQUIRE(t.book.apply(*over));
  CHECK(t.job().word == end_word::lost_node);
}

TEST_CASE("a job that its nodes do not start waits longer each time, and fails for good") {
  one_part t{retried(0)};
  for (int i = 1; i <= 3; ++i) {
    t.attempt(end_word::not_started, 0);
    REQUIRE(t.waits());
    const double shortest = i == 1 ? 0 : std::exp2(i - 2);  // once may be bad luck
    CHECK(t.delay_s() >= shortest);
    CHECK(t.delay_s() <= 1.1 * shortest);
    t.now_s += t.delay_s();
  }
  t.attempt(end_word::not_started, 0);
  CHECK_FALSE(t.waits());
  CHECK_THAT(t.job().detail,
             Contains("did not start, or lost its node, in 4 consecutive attempts"));
  // A node that says that it is unable gets no work, and the job goes elsewhere at once.
  one_part elsewhere{retried(0)};
  elsewhere.start();
  auto e = make_part_end(1, 0, 101, end_word::not_started, "the disk is full");
  e.outcome = lease_outcome::preempted;
  REQUIRE(elsewhere.book.apply(e));
  CHECK(elsewhere.waits());
  CHECK(elsewhere.job().progress.losses == 0);
  CHECK_FALSE(elsewhere.job().not_before_s);
  CHECK(elsewhere.job().word == end_word::not_started);
}

TEST_CASE("the delay of a retry counts from the end, is doubled, bounded, and differs by job") {
  const retry_rule rule{9, 10, 60, {}, {}};
  for (job_id job = 1; job < 200; ++job)
    for (std::uint32_t k = 1; k < 9; ++k) {
      const double shortest = std::min(60.0, 10 * std::exp2(k - 1));
      const double s = backoff_s(rule, k, job);
      REQUIRE(s >= shortest);
      REQUIRE(s < 1.1 * shortest);
      CHECK(s == backoff_s(rule, k, job));
      CHECK(s != backoff_s(rule, k, job + 1));
    }
  CHECK(backoff_s(rule, 1'000'000, 1) <= 66);
  one_part t{retried(5)};
  t.attempt(end_word::exit, 500, 1);
  REQUIRE(t.waits());
  CHECK(t.delay_s() == Approx(backoff_s(*t.job().spec->program.retries, 1, 1)));
  CHECK(t.job().progress.retried == 1);
  t.attempt(end_word::signal, 500, 137);
  CHECK(t.delay_s() == Approx(backoff_s(*t.job().spec->program.retries, 2, 1)));
  // A newly saved iteration makes it the first failure again; what people do changes nothing.
  t.attempt(end_word::exit, 500, 1, 70);
  CHECK(t.job().progress.retried == 1);
  CHECK(t.delay_s() == Approx(backoff_s(*t.job().spec->program.retries, 1, 1)));
  t.attempt(end_word::requeued, 5, {}, 70);
  CHECK(t.job().progress.retried == 1);
  t.attempt(end_word::lost_node, 5, {}, 70);
  CHECK(t.job().progress.retried == 1);
  t.attempt(end_word::preempted, 5, {}, 71);
  CHECK(t.job().progress.retried == 0);
}

TEST_CASE("a job fails for good when its retries are used up, and says how often it failed") {
  one_part t{retried(3)};
  for (int i = 0; i < 3; ++i) t.attempt(end_word::exit, 5, 1);
  REQUIRE(t.waits());
  t.attempt(end_word::exit, 5, 1);
  const auto over = t.book.due(1, t.now_s);
  REQUIRE(over);
  CHECK(over->final_state == job_state::failed);
  CHECK(over->detail == "failed (exit 1) in 4 attempts (retries 3); most recently: what happened");
  REQUIRE(t.book.apply(*over));
  CHECK(t.job().word == end_word::exit);
  CHECK_FALSE(t.job().not_before_s);
  one_part never{retried(0)};
  never.attempt(end_word::exit, 5, 1);
  CHECK_FALSE(never.waits());
  // As `elastic` does by itself: at once, and without counting attempts that have saved.
  auto spec = retried(0);
  spec.program.retries.reset();
  spec.program.elastic.emplace().retries = 1;
  one_part elastic{spec};
  for (std::uint64_t i = 1; i < 5; ++i) elastic.attempt(end_word::exit, 5, 1, i);
  CHECK(elastic.job().progress.retried == 0);
  elastic.attempt(end_word::exit, 5, 1);
  REQUIRE(elastic.waits());
  CHECK(elastic.delay_s() == 0);
  elastic.attempt(end_word::exit, 5, 1);
  CHECK_THAT(elastic.job().detail, Contains("failed (exit 1) in 2 attempts (elastic.retries 1)"));
}

TEST_CASE("a job is repeated only after the words and statuses that its rule names") {
  const auto repeats = [](const retry_rule& rule, end_word why, std::int32_t status) {
    auto spec = retried(3);
    spec.program.retries = rule;
    one_part t{spec};
    t.attempt(why, 5, status);
    return t.waits();
  };
  const retry_rule usual{3, 10, 600, {}, {2, 64, 65}};
  for (const auto why :
       {end_word::exit, end_word::signal, end_word::start_failed, end_word::rank_wait})
    CHECK(repeats(usual, why, 1));
  for (const auto why : {end_word::time_limit, end_word::deadline, end_word::diverged,
                         end_word::infeasible, end_word::cancelled})
    CHECK_FALSE(repeats(usual, why, 143));
  for (const auto status : {2, 64, 65}) CHECK_FALSE(repeats(usual, end_word::exit, status));
  CHECK(repeats(usual, end_word::exit, 66));
  const retry_rule signals{3, 10, 600, {end_word::signal}, {}};
  CHECK(repeats(signals, end_word::signal, 139));
  CHECK_FALSE(repeats(signals, end_word::exit, 139));
  // Without its word an attempt that ran out of memory is planned again at once.
  one_part memory{retried(3)};
  memory.attempt(end_word::out_of_memory);
  CHECK(memory.waits());
  CHECK(memory.delay_s() == 0);
  auto spec = retried(1);
  spec.program.retries->on = {end_word::out_of_memory};
  one_part counted{spec};
  counted.attempt(end_word::out_of_memory);
  CHECK(counted.delay_s() >= 10);
  CHECK(counted.job().history.out_of_memory == 1);
  counted.attempt(end_word::out_of_memory);
  CHECK_FALSE(counted.waits());
}

TEST_CASE("an attempt is kept with why, when, where and the GPU time that it took") {
  one_part t{retried(3)};
  t.attempt(end_word::exit, 7, 3);
  const auto& end = t.job().tries.back().end;
  REQUIRE(end);
  CHECK(*end == attempt_end{end_word::exit, 100, 107, 14, 0u, {}, 3});
  // Parts that end one after the other; a snapshot between them.
  auto spec = retried(3);
  ledger book{t.c};
  REQUIRE(book.apply(job_accepted{1, 9, 1, spec, "somebody"}));
  lease_granted g;
  g.lease = 1, g.job = 1, g.at_s = 10;
  g.parts = {{0, 11, {0, 1}}, {1, 12, {0}}};
  REQUIRE(book.apply(g));
  auto first = make_part_end(1, 1, 14, end_word::exit, "");
  first.exit_code = 9;
  first.rank = 12;
  REQUIRE(book.apply(first));
  ledger copy{t.c};
  for (const auto& e : book.snapshot()) REQUIRE(copy.apply(e));
  CHECK(copy == book);
  REQUIRE(copy.apply(make_part_end(1, 0, 20, end_word::finished, "")));
  CHECK(*copy.job(1)->tries.back().end == attempt_end{end_word::exit, 10, 20, 24, 1u, 12u, 9});
}

namespace {

/// A controller whose nodes, which are the test, end programs.
struct retrying : controller_by_hand {
  using controller_by_hand::controller_by_hand;

  void begin() {
    all_report();
    world.run_until(world.now_s() + 5);
    all_report();
  }
  /// The lease that the job is to run in, and its node; 0: none.
  std::pair<node_index, work_order> ordered(job_id job) {
    note_orders();
    for (const auto& [n, o] : orders)
      for (const auto& w : o.work)
        if (w.job == job && !over_.contains(w.lease)) return {n, w};
    return {};
  }
  void end(job_id job, part_report::state how, std::optional<end_word> word = {}) {
    const auto [n, w] = ordered(job);
    REQUIRE(w.lease != 0);
    over_.insert(w.lease);
    part_report p;
    p.lease = w.lease;
    p.now = how;
    p.exit_code = 1;
    p.word = word;
    p.detail = "exit status 1";
    report(n, {p});
  }
  /// Seconds until the job is ordered again.
  double ordered_after(job_id job, double limit_s) {
    const double from_s = world.now_s();
    while (ordered(job).second.lease == 0 && world.now_s() < from_s + limit_s) {
      world.run_until(world.now_s() + 0.5);
      for (node_index n = 0; n < cluster_->nodes.size(); ++n) report(n);
    }
    return world.now_s() - from_s;
  }

  std::set<lease_id> over_;
};

}  // namespace

TEST_CASE("no policy sees a job before its delay is over, and every policy does afterwards") {
  for (const auto* policy : {"frenzy", "fcfs", "troupe", "sia"}) {
    INFO(policy);
    retrying t{policy};
    t.begin();
    const auto id = t.submit(retried(3, 20));
    t.ordered_after(id, t.round_s + 60);
    t.end(id, part_report::state::failed);
    const auto s = t.job(id);
    CHECK(s.state == job_state::waiting);
    CHECK(s.waiting_reason == "backoff");
    CHECK(s.why == end_word::exit);
    CHECK(s.progress.retried == 1u);
    REQUIRE(s.retry_in_s);
    CHECK(*s.retry_in_s > 19);
    REQUIRE(s.ends);
    CHECK(s.ends->size() == 1);
    const auto why = t.ask<explanation>(explain_job{++t.asked, id});
    CHECK_THAT(why.summary, Contains("attempt 1 of 4 failed (exit 1 on ") &&
                                Contains("); the next not before 00:0"));
    const double again_s = t.ordered_after(id, t.round_s + 60);
    CHECK(again_s >= 19);
    CHECK(again_s <= 23 + t.round_s);
    CHECK_FALSE(t.job(id).retry_in_s);
  }
}

TEST_CASE("requeue and resume end a wait, and suspended jobs begin none anew") {
  retrying t;
  t.begin();
  const auto id = t.submit(retried(9, 500));
  t.ordered_after(id, 60);
  t.end(id, part_report::state::failed);
  CHECK(t.ask<requeue_reply>(requeue_job{++t.asked, id}).done);
  CHECK(t.ordered_after(id, 60) < 5);
  t.end(id, part_report::state::failed);
  CHECK(t.ask<suspend_reply>(suspend_job{++t.asked, id, true}).done);
  CHECK(t.job(id).waiting_reason == "suspended");
  const auto refused = t.ask<requeue_reply>(requeue_job{++t.asked, id});
  CHECK_FALSE(refused.done);
  CHECK(t.ask<suspend_reply>(suspend_job{++t.asked, id, false}).done);
  CHECK(t.ordered_after(id, 60) < 5);
  CHECK(t.job(id).progress.attempts == 3);
  CHECK_FALSE(t.ask<suspend_reply>(suspend_job{++t.asked, id, false}).done);
}

TEST_CASE("a node that does not start a job, and does not say that it is unable, delays it") {
  retrying t;
  t.begin();
  auto spec = retried(0);
  spec.limits.max_restarts = 5;
  const auto id = t.submit(spec);
  const double from_s = t.world.now_s();
  while (!is_final(t.job(id).state) && t.world.now_s() < from_s + 200) {
    t.ordered_after(id, 100);
    if (t.ordered(id).second.lease != 0) t.end(id, part_report::state::not_started);
  }
  const auto s = t.job(id);
  CHECK(s.state == job_state::failed);
  CHECK(s.why == end_word::not_started);
  CHECK(s.progress.attempts == 6);
  CHECK(t.world.now_s() - from_s > 1 + 2 + 4 + 8);
}
