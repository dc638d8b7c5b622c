#include <catch2/catch.hpp>

#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "actors/control/controller_by_hand.hpp"
#include "actors/control/keyed_clients.hpp"
#include "actors/control/leases/owner_usage.hpp"
#include "harness/logged_errors.hpp"
#include "messages/wire/job_pages.hpp"
#include "planners/policy/checked_policy.hpp"

// A controller beside jobs of any size and policies of any kind.

using namespace troupe;
using namespace troupe::actors;
using harness::logged_errors;
using namespace troupe::actors::tests;

namespace {

job_spec job_of(std::size_t words, std::size_t bytes_a_word) {
  auto spec = harness::small_job("job");
  spec.program.command = {"true"};
  for (std::size_t i = 0; i < words; ++i)
    spec.program.command.push_back(std::string(bytes_a_word, 'y'));
  return spec;
}

query_reply page(controller_by_hand& c, std::optional<job_id> from) {
  query_jobs q{++c.asked, 0};
  q.from = from;
  return c.ask<query_reply>(q);
}

/// Starts a job whose name is "fine", and fails otherwise.
struct picky : planners::policy {
  mutable bool fails = true;
  std::string_view name() const override { return "picky"; }
  reason why_waiting(const planners::snapshot&, job_id) const override { return {}; }
  std::vector<planners::decision> decide(const planners::snapshot&, random_source&) const override {
    if (fails) throw std::runtime_error("it stumbles");
    return {};
  }
};

struct throws_plans : picky {
  expected<std::vector<plan>> plans_of(const cluster&, const job_spec&,
                                       planners::planning_budget&) const override {
    throw std::runtime_error("no plan for it");
  }
};

/// Keeps the numbers of the jobs that it was asked about.
struct asked_policy : picky {
  mutable std::vector<job_id> about;
  reason why_waiting(const planners::snapshot&, job_id id) const override {
    about.push_back(id);
    return {reason::kind::insufficient, "it is asked"};
  }
};

}  // namespace

TEST_CASE("an owner's unfinished jobs have a limit, those from before a restart included") {
  ledger book{*harness::small_cluster()};
  owner_usage usage;
  const auto accept = [&](const std::string& owner, std::size_t kib, double limit_mib,
                          owner_usage& by) {
    const job_accepted e{book.next_job(), 0, 0, job_of(kib, 1024), owner};
    auto ok = by.add(book, e, limit_mib);
    if (ok) REQUIRE(book.apply(e));
    return ok;
  };
  for (int i = 0; i < 3; ++i) REQUIRE(accept("bob", 300, 1, usage));
  const auto refused = accept("bob", 300, 1, usage);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == reason::kind::refused);
  for (const char* part : {"of bob take 0.88", "0.29", "at most 1 MiB", "owner_mib"})
    CHECK(refused.error().text.find(part) != std::string::npos);
  CHECK(accept("alice", 300, 1, usage));  // another's is another's
  // After a restart; a smaller limit takes nothing away.
  owner_usage later;
  CHECK_FALSE(accept("bob", 300, 1, later));
  CHECK_FALSE(accept("bob", 1, 0.5, later));
  // An end makes room.
  REQUIRE(book.apply(job_ended{1, 1, job_state::cancelled, ""}));
  CHECK(accept("bob", 300, 1, later));
  CHECK(accept("bob", 300, 64, usage));
}

TEST_CASE(
    "a list of jobs comes in pages, with the beginning of each command; one job has it whole") {
  controller_by_hand c;
  c.all_report();
  constexpr std::size_t jobs = 80;
  for (std::size_t i = 0; i < jobs; ++i) {
    const auto reply = c.ask<submit_reply>(submit_job{++c.asked, job_of(14, 40'000)});
    INFO(reply.why.text);
    REQUIRE(reply.job != 0);
  }
  const auto all = page(c, {});
  CHECK(all.jobs.size() == jobs);
  CHECK_FALSE(all.next);
  std::size_t bytes = 0;
  for (const auto& j : all.jobs) {
    for (const auto& word : j.command) bytes += word.size();
    CHECK(j.command.front() == "true");
    CHECK(j.command.back().ends_with("cut]"));
  }
  CHECK(bytes / jobs < 1000);
  const auto one = c.job(1);
  CHECK(one.command.size() == 15);
  CHECK(one.command.back().size() == 40'000);
  // From any number on.
  CHECK(page(c, 70).jobs.size() == 11);
  CHECK(page(c, 71).jobs.front().job == 71);
  CHECK(page(c, 10'000).jobs.empty());
}

TEST_CASE("a client that asks for page after page gets every job once", "[.long]") {
  controller_by_hand c{"sia"};
  constexpr std::size_t jobs = 4100;  // more than a page
  for (std::size_t i = 0; i < jobs; ++i) {
    auto spec = harness::small_job("job");
    spec.program.command = {"true"};
    c.say(a_client, a_client, controller_address, submit_job{++c.asked, spec});
  }
  std::size_t pages = 0;
  const auto all = all_jobs([&](query_jobs q) -> expected<query_reply> {
    ++pages;
    q.request = ++c.asked;
    return c.ask<query_reply>(q);
  });
  REQUIRE(all);
  CHECK(pages == 2);
  CHECK_FALSE(all->next);
  std::set<job_id> ids;
  for (const auto& j : all->jobs) ids.insert(j.job);
  CHECK(ids.size() == jobs);
  CHECK(all->jobs.size() == jobs);
}

TEST_CASE("jobs of all pages are in one list, in their order") {
  const auto all = all_jobs([](const query_jobs& q) -> expected<query_reply> {
    query_reply r;
    const auto first = q.from.value_or(1);
    for (job_id id = first; id < first + 3 && id <= 8; ++id) r.jobs.emplace_back().job = id;
    if (first + 3 <= 8) r.next = first + 3;
    return r;
  });
  REQUIRE(all);
  REQUIRE(all->jobs.size() == 8);
  for (std::size_t i = 0; i < 8; ++i) CHECK(all->jobs[i].job == i + 1);
}

TEST_CASE("a page that does not go on is the last one") {
  int asked = 0;
  const auto all = all_jobs([&](const query_jobs&) -> expected<query_reply> {
    query_reply r;
    r.next = 5;
    if (++asked > 3) throw std::logic_error("asked without end");
    return r;
  });
  CHECK(all);
  CHECK(asked == 2);
}

TEST_CASE("a round of a policy that throws decides nothing, and explain says so") {
  logged_errors errors;
  const auto policy = std::make_shared<picky>();
  controller_by_hand c{policy};
  c.all_report();
  const auto id = c.submit(harness::small_job("job"));
  REQUIRE(id != 0);
  c.pass_round();
  const auto said = c.ask<explanation>(explain_job{++c.asked, id}).summary;
  CHECK(said.find("the policy fails, and nothing is decided") != std::string::npos);
  CHECK(said.find("the policy 'picky' threw: it stumbles") != std::string::npos);
  CHECK(errors.has("the policy fails"));
  CHECK(c.job(id).state == job_state::waiting);
  // It goes on with what is not the policy's, and with the policy once that decides again.
  policy->fails = false;
  for (int i = 0; i < 8; ++i) c.pass_round();  // it is asked again after 10 s
  CHECK(c.ask<explanation>(explain_job{++c.asked, id}).summary.find("fails") == std::string::npos);
  CHECK(c.ask<cancel_reply>(cancel_job{++c.asked, id}).done);
}

TEST_CASE("a job whose plans a policy throws at waits, and explain has the sentence") {
  controller_by_hand c{std::make_shared<throws_plans>()};
  c.all_report();
  const auto id = c.submit(harness::small_job("job"));
  REQUIRE(id != 0);
  c.pass_round();
  CHECK(c.job(id).state == job_state::waiting);
  const auto said = c.ask<explanation>(explain_job{++c.asked, id}).summary;
  CHECK(said == "it has no plans: the policy 'picky' threw: no plan for it");
  CHECK(c.ask<cancel_reply>(cancel_job{++c.asked, id}).done);
}

TEST_CASE("explain asks the policy only about a job that waits and is planned") {
  const auto policy = std::make_shared<asked_policy>();
  policy->fails = false;
  controller_by_hand c{policy};
  const auto explain = [&](job_id id) {
    policy->about.clear();
    return c.ask<explanation>(explain_job{++c.asked, id}).summary;
  };
  const auto id = c.submit(harness::small_job("job"));
  REQUIRE(id != 0);
  CHECK(explain(id).find("it is asked") == std::string::npos);  // before its nodes have reported
  CHECK(policy->about.empty());
  c.all_report();
  CHECK(explain(id).find("it is asked") != std::string::npos);
  CHECK(policy->about == std::vector{id});
  CHECK(explain(id + 1) == "no job " + std::to_string(id + 1));
  CHECK(policy->about.empty());
  REQUIRE(c.ask<suspend_reply>(suspend_job{++c.asked, id, true}).done);
  CHECK(explain(id).starts_with("suspended"));
  CHECK(policy->about.empty());
}

TEST_CASE("what a job has printed is in the answers to its owner and operators alone") {
  controller_by_hand c{planners::make_policy("frenzy"), {}, with_keys};
  for (const auto who : {bob, root}) c.speak_for(who);
  c.all_report();
  auto spec = harness::small_job("job");
  spec.program.command = {"train"};
  const auto id = c.submit(spec);
  REQUIRE(id != 0);
  c.pass_round();
  bool failed = false;
  for (const auto& [n, o] : std::map{c.orders})
    for (const auto& w : o.work) {
      part_report p;
      p.lease = w.lease;
      p.now = part_report::state::failed;
      p.exit_code = 1;
      p.detail = "exit status 1: CUDA out of memory while loading /data/secret";
      c.report(n, {p});
      failed = true;
    }
  REQUIRE(failed);
  const auto said_to = [&](address who) {
    std::vector<std::string> all;
    for (const auto& q : {query_jobs{++c.asked, 0}, query_jobs{++c.asked, id}}) {
      const auto job = c.ask<query_reply>(q, who).jobs.at(0);
      CHECK(job.state == job_state::failed);
      all.push_back(job.detail);
    }
    const auto e = c.ask<explanation>(explain_job{++c.asked, id}, who);
    all.push_back(e.summary);
    all.push_back(e.job.detail);
    return all;
  };
  for (const auto who : {ann, root, bob, ann})  // replies about all jobs are kept for a while
    for (const auto& text : said_to(who)) {
      INFO(who << ": " << text);
      CHECK((text.find("secret") != text.npos) == (who != bob));
      CHECK(text.find("exit status 1") != text.npos);
    }
}

TEST_CASE("no policy stops or moves a running program without elastic") {
  using namespace troupe::planners;
  struct stops : picky {
    std::vector<decision> decide(const snapshot& s, random_source&) const override {
      std::vector<decision> all;
      for (const auto& [id, j] : s.running) all.push_back(stop_job(id));
      return all;
    }
  };
  const checked_policy checked{std::make_shared<stops>(), "the policy"};
  const auto c = harness::small_cluster();
  const idle_index idle{*c};
  job_views running;
  auto spec = harness::small_job("job");
  spec.program.command = {"true"};
  running[1].id = 1;
  running[1].spec = std::make_shared<const job_spec>(spec);
  random_source random{1};
  const snapshot s{0, *c, idle, no_jobs, running};
  CHECK_THROWS_WITH(checked.decide(s, random), Catch::Contains("without `elastic:`"));
  spec.program.elastic.emplace();
  running[1].spec = std::make_shared<const job_spec>(spec);
  CHECK(checked.decide(s, random).size() == 1);
}
