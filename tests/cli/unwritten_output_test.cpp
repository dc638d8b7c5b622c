#include <catch2/catch.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/program.hpp"
#include "harness/shell.hpp"

// Output that cannot be written, by every verb that needs no cluster (of the others see
// tests/processes/jobs/scripts_test.cpp): a script must not take what is there for the whole.

using namespace troupe::test;
using Catch::Contains;

namespace {

const std::vector<std::string>& verbs() {
  static const std::vector<std::string> all{
#define TROUPE_VERB(name, summary) #name,
#include "cli/verbs/verbs.def"
#undef TROUPE_VERB
  };
  return all;
}

command_result say(const std::string& words, const std::string& to) {
  return run(std::string{TROUPE_PROGRAM} + " " + words + " " + to);
}

void cannot_be_written(const std::string& words) {
  INFO(words);
  const auto full = say(words, ">/dev/full");
  CHECK(full.status == 1);
  CHECK_THAT(full.said,
             Contains("troupe: standard output cannot be written: No space left on device\n"));
  // A descriptor that is closed is no other file's, whatever the verb opens.
  const auto closed = say(words, ">&-");
  CHECK(closed.status == 1);
  CHECK_THAT(closed.said,
             Contains("troupe: standard output cannot be written: Bad file descriptor\n"));
}

}  // namespace

TEST_CASE("help that cannot be written is exit status 1 with a sentence, in every verb") {
  CHECK(verbs().size() > 30);
  cannot_be_written("--help");
  for (const auto& v : verbs()) cannot_be_written(v + " --help");
}

TEST_CASE(
    "results that cannot be written are exit status 1 with a sentence, for people and as JSON") {
  const scratch where;
  const auto trace = where.write("t.csv", "job_id,submit_s,duration_s,gpus\na,0,60,1\n");
  const auto itp = where.write("itp.csv", "job_id,submission_time,duration,num_gpu\na,1,5,2\n");
  const auto cluster = shipped("clusters/laptop.yaml"), job = shipped("jobs/hello.yaml");
  const std::vector<std::string> all{
      "version",
      "check " + cluster + " " + job,
      "plan " + job + " --cluster " + shipped("clusters/demo.yaml"),
      "simulate --workload as-is --policy fcfs --cluster " + cluster + " --trace " + trace,
      "trace import itp " + itp,
      "trace make titan --jobs 3",
  };
  for (const auto& words : all) {
    CHECK(say(words, "").status == 0);
    cannot_be_written(words);
    cannot_be_written(words + " --json");
  }
  // An error keeps its own status and sentence, and its document is missed, too.
  const auto bad = say("check nothing.yaml --json", ">/dev/full");
  CHECK(bad.status != 0);
  CHECK_THAT(bad.said, Contains("nothing.yaml") && Contains("cannot be written"));
}

TEST_CASE("a reader that has gone away is no failure") {
  const auto cut = run(std::string{"bash -c '"} + TROUPE_PROGRAM +
                       " trace make titan --jobs 3000 | head -c 1 >/dev/null; "
                       "exit ${PIPESTATUS[0]}'");
  CHECK((cut.status == 0 || cut.status == 141));
  CHECK(cut.said.find("cannot be written") == std::string::npos);
  // Also where the signal is ignored, as by some launchers.
  const auto ignored = run(std::string{"bash -c 'trap \"\" PIPE; "} + TROUPE_PROGRAM +
                           " trace make titan --jobs 3000 | head -c 1 >/dev/null; "
                           "exit ${PIPESTATUS[0]}'");
  CHECK(ignored.status == 0);
  CHECK(ignored.said.find("cannot be written") == std::string::npos);
}

TEST_CASE("a file that cannot be written to its end is exit status 1 with a sentence") {
  const scratch where;
  const auto itp = where.write("itp.csv", "job_id,submission_time,duration,num_gpu\na,1,5,2\n");
  const auto full = say("trace import itp " + itp + " --out /dev/full", "");
  CHECK(full.status == 1);
  CHECK_THAT(full.said, Contains("/dev/full: ") && Contains("No space left on device"));
  const auto timeline =
      say("train " + shipped("jobs/figure6.yaml") + " --schedule varuna --timeline /dev/full", "");
  CHECK(timeline.status == 1);
  CHECK_THAT(timeline.said, Contains("/dev/full: the timeline cannot be written"));
  CHECK(timeline.said.find("open it in Perfetto") == std::string::npos);
  // A path that cannot be a file is bad usage, before any work.
  CHECK(say("trace import itp " + itp + " --out " + where.path() + "/no/such/file", "").status ==
        2);
}
