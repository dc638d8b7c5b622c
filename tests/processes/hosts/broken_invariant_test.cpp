#include <csignal>

#include "processes/journal_ends.hpp"

// A process that finds one of its own facts wrong.

using namespace troupe;
using namespace troupe::test;

namespace {

std::string log_of(const fixture& f, const char* name) {
  std::ifstream in{f.state / "output" / fmt::format("{}.log", name)};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// The jobs whose acceptance a journal has.
std::set<job_id> accepted_in(const fs::path& file) {
  auto journal = runtime::sqlite_journal::open(file.string());
  REQUIRE(journal);
  std::set<job_id> jobs;
  REQUIRE((*journal)->replay([&](const journal_entry& e) {
    if (const auto* accepted = std::get_if<job_accepted>(&e)) jobs.insert(accepted->job);
  }));
  return jobs;
}

}  // namespace

TEST_CASE("a broken invariant ends the controller with its sentence, and its journal is whole") {
  ::setenv("TROUPE_TEST_PLUGIN", "breaks an invariant", 1);
  fixture f{"broken-invariant", shipped("clusters/laptop.yaml"), BAD_PLUGIN};
  REQUIRE(f.wait_for_nodes());
  const auto first = f.submit("first", "true");
  CHECK(f.job(first).state == job_state::waiting);
  // It is in the journal before the policy sees it, and breaks the invariant there; whether the
  // client has been answered by then is a matter of luck.
  (void)f.client->ask(submit_job{0, fixture::program("second", "true")}, 2);
  std::vector<cli::ended_process> ended;
  REQUIRE(runtime::wait_until(
      [&] {
        for (auto& e : f.cluster->ended()) ended.push_back(std::move(e));
        return !ended.empty();
      },
      long_s, 0.05));
  CHECK(ended.front().name == "controller");
  CHECK(ended.front().status == 128 + SIGABRT);
  const auto log = log_of(f, "controller");
  INFO(log);
  CHECK(log.find("broken invariant: no two jobs wait for a plug-in that is wrong") !=
        std::string::npos);
  CHECK(accepted_in(f.state / "controller" / "journal.sqlite") == std::set<job_id>{first, 2});

  // The next controller goes on where this one was.
  ::unsetenv("TROUPE_TEST_PLUGIN");
  REQUIRE(f.cluster->restart("controller"));
  for (const auto id : {first, job_id{2}}) {
    CHECK(f.job(id).state == job_state::waiting);
    auto reply = f.client->ask(cancel_job{0, id}, long_s).reply;
    REQUIRE(reply);
    CHECK(std::get<cancel_reply>(reply->first).done);
    CHECK(f.is(id, job_state::cancelled));
  }
}
