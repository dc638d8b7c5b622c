#include "actors/node/program_ends.hpp"

#include <catch2/catch.hpp>

#include "actors/node/awaited_work.hpp"
#include "actors/node/program_files.hpp"

using namespace troupe;
using namespace troupe::actors;

TEST_CASE("a stopped program's end is worth a sentence unless it obeyed or SIGTERM ended it") {
  CHECK(end_without_save(0).empty());
  CHECK(end_without_save(128 + 15).empty());
  CHECK(end_without_save(1) == "exit status 1 after it was asked to stop, and no save reported");
  CHECK(end_without_save(137) ==
        "exit status 137 (SIGKILL) after it was asked to stop, and no save reported");
}

TEST_CASE("the rank that failed is the launcher's, or that of torchrun's summary") {
  CHECK(parse_program_report("iteration: 3\n\nfailed_rank: 5\n").failed_rank == 5u);
  CHECK_FALSE(parse_program_report("failed_rank: 1e12\nfailed_rank: -1\n").failed_rank);
  const std::string summary =
      "train.py FAILED\n"
      "------------------------------------------------------------\n"
      "Failures:\n[1]:\n  rank      : 6 (local_rank: 2)\n"
      "------------------------------------------------------------\n"
      "Root Cause (first observed failure):\n[0]:\n"
      "  time      : 2026-11-29_07:00:00\n  host      : vm\n"
      "  rank      : 12 (local_rank: 0)\n  exitcode  : 1 (pid: 77)\n";
  CHECK(rank_in_summary(summary) == 12u);
  CHECK_FALSE(rank_in_summary("rank      : 3 (local_rank: 1)\n"));
  CHECK_FALSE(rank_in_summary("Root Cause (first observed failure):\nrank : x (local_rank: 1)"));
}

TEST_CASE("what a node waits for is named, with the longest grace") {
  cluster c;
  c.settings.preempt_grace_s = 60;
  work_order program, training, other, decoder;
  program.job = 3;
  program.program = program_order{5, 0, {}};
  program.environment = {"A=b", "TROUPE_JOB_NAME=resnet"};
  training.job = 4;
  training.train = train_order{};
  training.train->spec.name = "bert";
  other = training;
  other.job = 7;
  other.train->part = 1;
  decoder.job = 9;
  decoder.serve = serving{};
  CHECK(awaited(c, {}).sentence.empty());
  CHECK(awaited(c, {&program}).sentence == "waits at most 5 s for job 3 (resnet)");
  CHECK(awaited(c, {&program, &training, &other}).sentence ==
        "waits at most 60 s for jobs 3 (resnet), 4 (bert), 7");
  CHECK(awaited(c, {&decoder}).within_s == c.settings.grace_s);
}
