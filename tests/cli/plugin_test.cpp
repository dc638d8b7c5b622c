#include <stdlib.h>

#include <catch2/catch.hpp>

#include "cli/program.hpp"
#include "harness/source_dir.hpp"

// --policy with a policy in a shared object: that of examples/my_policy, and faulty ones.

using namespace troupe::test;
using Catch::Contains;

namespace {

const std::string files = troupe::test::source_dir() + "/examples/my_policy/";

result simulate(const std::string& policy, std::vector<std::string> more = {}) {
  std::vector<std::string> words{"simulate", "--cluster",         files + "cluster.yaml",
                                 "--trace",  files + "trace.csv", "--policy",
                                 policy,     "--workload",        "frenzy"};
  words.insert(words.end(), more.begin(), more.end());
  return troupe::test::troupe(words);
}

result plan(const std::string& policy) {
  return troupe::test::troupe({"plan", shipped("jobs/gpt2-7b.yaml"), "--cluster",
                               shipped("clusters/frenzy-testbed.yaml"), "--policy", policy,
                               "--json"});
}

/// Exit status 2, the sentence on standard error and in the document, which names the file.
void check_refused(const result& r, const std::string& file, const std::string& sentence) {
  CHECK(r.status == 2);
  CHECK_THAT(r.err, Contains(file + ": ") && Contains(sentence));
  const auto document = r.document();
  CHECK_THAT(document["error"].get<std::string>(), Contains(sentence));
  CHECK(document["file"] == file);
}

}  // namespace

TEST_CASE(
    "a plug-in's policy is simulated beside the built-in ones with a reproducible fingerprint") {
  const auto both = std::string{MY_PLUGIN} + ",frenzy";
  const auto first = simulate(both, {"--json", "--faults", files + "faults.yaml"});
  INFO(first.err);
  REQUIRE(first.status == 0);
  const auto again = simulate(both, {"--json", "--faults", files + "faults.yaml"});
  const auto mine = first.document()["policies"][0];
  CHECK(mine["policy"] == "shortest_first");
  CHECK(mine["finished"] == 24);
  CHECK(first.document()["policies"][1]["policy"] == "frenzy");
  CHECK(mine["fingerprint"] == again.document()["policies"][0]["fingerprint"]);
  CHECK(mine["fingerprint"] != first.document()["policies"][1]["fingerprint"]);
}

TEST_CASE("a plug-in's policy works with plan and train, and every verb's help mentions plug-ins") {
  const auto r = plan(MY_PLUGIN);
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK(r.document()["policy"] == "shortest_first");
  CHECK(r.document()["allocation"].size() > 0);
  const auto trained =
      troupe::test::troupe({"train", shipped("jobs/figure6.yaml"), "--policy", MY_PLUGIN});
  INFO(trained.err);
  CHECK(trained.status == 0);
  for (const auto* verb : {"simulate", "plan", "train", "up", "controller"})
    CHECK_THAT(troupe::test::troupe({verb, "--help"}).out, Contains("a plug-in's file"));
}

TEST_CASE("an unusable plug-in is refused in a sentence that begins with its file") {
  check_refused(simulate("./nothing.so", {"--json"}), "./nothing.so", "no such file");
  check_refused(plan("nothing.so"), "nothing.so", "no such file");
  check_refused(simulate(files + "trace.csv", {"--json"}), files + "trace.csv", "cannot be loaded");
  check_refused(simulate(EMPTY_PLUGIN, {"--json"}), EMPTY_PLUGIN, "troupe_policy_plugin");
  check_refused(simulate(UNRESOLVED_PLUGIN, {"--json"}), UNRESOLVED_PLUGIN, "make_nobody");
  check_refused(simulate(OTHER_UNRESOLVED_PLUGIN, {"--json"}), OTHER_UNRESOLVED_PLUGIN,
                "was compiled for Troupe 0.0.9-0123456789ab");
  const struct {
    const char *wrong, *sentence;
  } cases[] = {
      {"other headers", "0.0.9-0123456789ab"},
      {"other format", "unsupported plug-in format"},
      {"throws when made", "no licence"},
      {"throws a number when made", "unknown exception"},
      {"makes nothing", "returns no policy"},
      {"bad name", "name must"},
      {"taken name", "fcfs"},
      {"bad round", "round_s"},
  };
  for (const auto& c : cases) {
    INFO(c.wrong);
    ::setenv("TROUPE_TEST_PLUGIN", c.wrong, 1);
    check_refused(simulate(BAD_PLUGIN, {"--json"}), BAD_PLUGIN, c.sentence);
    const auto started = troupe::test::troupe({"up", shipped("clusters/laptop.yaml"), "--state",
                                               "/nonexistent", "--policy", BAD_PLUGIN, "--json"});
    check_refused(started, BAD_PLUGIN, c.sentence);
  }
  ::unsetenv("TROUPE_TEST_PLUGIN");
}

TEST_CASE("a plug-in's parameters are set by the option that sets those of built-in policies") {
  const auto with = [](const char* option) {
    return simulate(BAD_PLUGIN, {"--json", "--policy-option", option});
  };
  check_refused(with("wrong.limit=3"), BAD_PLUGIN, "the limit is three");
  CHECK_THAT(with("wrong.limit=6").err, Contains("found 6, expected a whole number from 0 to 5"));
  CHECK_THAT(with("wrong.limit=0.5").err, Contains("found 0.5, expected a whole number"));
  CHECK_THAT(with("wrong.size=1").err, Contains("wrong has no option 'size'; it has limit"));
  const auto planned = troupe::test::troupe(
      {"plan", "--policy-option", "wrong.limit=3", shipped("jobs/gpt2-7b.yaml"), "--cluster",
       shipped("clusters/frenzy-testbed.yaml"), "--policy", BAD_PLUGIN, "--json"});
  check_refused(planned, BAD_PLUGIN, "the limit is three");
}

TEST_CASE("a plug-in that throws or decides nonsense ends the run with its error") {
  const struct {
    const char *wrong, *sentence;
  } cases[] = {{"throws", "cannot think"}, {"bad node", "node 1000"}};
  for (const auto& c : cases) {
    INFO(c.wrong);
    ::setenv("TROUPE_TEST_PLUGIN", c.wrong, 1);
    check_refused(simulate(BAD_PLUGIN, {"--json"}), BAD_PLUGIN, c.sentence);
    check_refused(plan(BAD_PLUGIN), BAD_PLUGIN, c.sentence);
    if (c.wrong == std::string{"bad node"}) continue;  // trainings are placed beside it
    check_refused(troupe::test::troupe(
                      {"train", shipped("jobs/figure6.yaml"), "--policy", BAD_PLUGIN, "--json"}),
                  BAD_PLUGIN, c.sentence);
  }
  ::unsetenv("TROUPE_TEST_PLUGIN");
}

TEST_CASE("policies of the same name from two plug-ins cannot be compared") {
  const scratch where;
  std::filesystem::copy_file(MY_PLUGIN, where / "other.so");
  const auto r = simulate(std::string{MY_PLUGIN} + "," + where / "other.so", {"--json"});
  check_refused(r, where / "other.so", "shortest_first");
}
