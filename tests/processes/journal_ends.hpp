#pragma once

#include <map>

#include "actors/control/ledger/ledger.hpp"
#include "processes/fixture.hpp"
#include "runtime/journal/sqlite_journal.hpp"

namespace troupe::test {

/// Kills the controller and replays its journal, which no entry may contradict: for each job that
/// was accepted, how many times it has ended.
inline std::map<job_id, int> ends_in_journal(fixture& f) {
  f.cluster->kill("controller");
  auto journal =
      runtime::sqlite_journal::open((f.state / "controller" / "journal.sqlite").string());
  REQUIRE(journal);
  const auto c = formats::load_cluster(f.cluster_file.string());
  REQUIRE(c);
  actors::ledger replayed{*c};
  std::map<job_id, int> ends;
  REQUIRE((*journal)->replay([&](const journal_entry& e) {
    const auto applied = replayed.apply(e);
    INFO((applied ? "" : applied.error().text));
    CHECK(applied);
    if (const auto* accepted = std::get_if<job_accepted>(&e)) ends.try_emplace(accepted->job, 0);
    if (const auto* ended = std::get_if<job_ended>(&e)) ++ends[ended->job];
  }));
  CHECK(replayed.leases().empty());
  CHECK(replayed.unfinished() == 0);
  return ends;
}

}  // namespace troupe::test
