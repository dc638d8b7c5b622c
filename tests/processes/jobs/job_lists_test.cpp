#include <fstream>

#include "processes/detached.hpp"

// Several jobs at a time: what each verb does if one of them is refused, and what its JSON is.

using namespace troupe;
using namespace troupe::test;

namespace {

std::string job_file(const scratch& where, const std::string& name, const std::string& more) {
  return where.write(name + ".yaml", "name: " + name + "\nglobal_batch: 4\n" + more);
}

}  // namespace

TEST_CASE("of several jobs, those that are accepted are submitted and waited for") {
  detached cluster;
  REQUIRE(cluster.said.status == 0);
  const auto a = job_file(cluster.where, "a", "command: ['true']\n"),
             never = job_file(cluster.where, "never", "gpus: 99\ncommand: ['true']\n"),
             c = job_file(cluster.where, "c", "command: ['true']\n");
  const auto said = cluster.ask({"submit", a, never, c, "--json"});
  INFO(said.err);
  CHECK(said.status == 1);
  const auto d = said.document();
  REQUIRE(d.at("jobs").size() == 2);
  CHECK(d.at("jobs")[0].at("name") == "a");
  CHECK(d.at("jobs")[1].at("name") == "c");
  REQUIRE(d.at("refused").size() == 1);
  CHECK(d.at("refused")[0].at("name") == "never");
  CHECK(d.at("refused")[0].at("file") == never);
  CHECK_THAT(said.err, Catch::Contains("troupe: never (" + never + "): needs 99 GPUs"));
  const auto waited = cluster.ask({"submit", never, c, a, "--wait", "--json"});
  CHECK(waited.status == 1);
  CHECK(waited.document().at("jobs").size() == 2);
  const auto ended = waited.document();
  for (const auto& j : ended.at("jobs")) CHECK(j.at("state") == "finished");
  CHECK(waited.document().at("submitted").size() == 2);
  CHECK(cluster.ask({"submit", never}).status == 1);
  CHECK(cluster.ask({"submit", never, "--json"}).document().at("code") == "infeasible");
}

TEST_CASE("several numbers and ranges choose jobs, and a choice is always a list") {
  detached cluster;
  REQUIRE(cluster.said.status == 0);
  const auto file = job_file(cluster.where, "long", "command: [sleep, '1000']\n");
  REQUIRE(cluster.ask({"submit", file, file, file, file}).status == 0);
  const auto numbers = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "status");
    words.emplace_back("--json");
    std::vector<job_id> ids;
    const auto document = cluster.ask(words).document();
    for (const auto& j : document.at("jobs")) ids.push_back(j.at("job"));
    return ids;
  };
  CHECK(numbers({"2"}) == std::vector<job_id>{2});
  CHECK(numbers({"4", "1"}) == std::vector<job_id>{4, 1});
  CHECK(numbers({"2-4", "3", "1"}) == std::vector<job_id>{2, 3, 4, 1});
  CHECK(numbers({"3-9"}) == std::vector<job_id>{3, 4});
  const auto some = cluster.ask({"status", "4-5"});
  CHECK(some.status == 1);
  CHECK(some.err == "troupe: no job 5\n");
  CHECK(cluster.ask({"status", "7", "9"}).status == 1);
  CHECK(cluster.ask({"status", "7", "--json"}).document().at("code") == "unknown");
  for (const auto* bad : {"0", "x", "3-", "4-2", "1-2-3", "1-999999999"}) {
    CAPTURE(bad);
    CHECK(cluster.ask({"status", bad}).status == 2);
    CHECK(cluster.ask({"cancel", bad}).status == 2);
  }
  CHECK(cluster.ask({"suspend", "2-3", "--json"}).document().at("jobs").size() == 2);
  CHECK(cluster.ask({"resume", "3", "--json"}).document().at("job") == 3);
  // One number is no choice, whatever it comes to.
  CHECK(cluster.ask({"cancel", "1", "--json"}).document().at("cancelled") == true);
  const auto list = cluster.ask({"cancel", "--states", "waiting", "--name", "nothing", "--json"});
  CHECK(list.document() == nlohmann::json{{"jobs", nlohmann::json::array()}});
  const auto one = cluster.ask({"cancel", "2-2", "--json"}).document().at("jobs");
  REQUIRE(one.size() == 1);
  CHECK(one[0].at("job") == 2);
  CHECK(cluster.ask({"cancel", "3"}).status == 0);
  (void)cluster.ask({"wait", "1-3"});  // until they have ended, which a choice then leaves out
  const auto mine = cluster.ask({"cancel", "--name", "lon?", "--json"}).document().at("jobs");
  REQUIRE(mine.size() == 1);
  CHECK(mine[0].at("job") == 4);
  CHECK(cluster.ask({"wait", "1-3", "--json"}).document().at("jobs").size() == 3);
}

TEST_CASE("status says that it has not looked at the oldest of many ended jobs") {
  detached cluster;
  REQUIRE(cluster.said.status == 0);
  const auto file = job_file(cluster.where, "gone", "command: ['true']\n"),
             early = job_file(cluster.where, "early", "command: ['true']\n");
  std::vector<std::string> words{"submit", "--wait", early};
  words.resize(105, file);
  REQUIRE(cluster.ask(words).status == 0);
  const auto all = cluster.ask({"status", "--json"}).document();
  CHECK(all.at("jobs").size() == 100);
  CHECK(all.at("older_left_out") == true);
  CHECK_THAT(cluster.ask({"status"}).out, Catch::Contains("only the newest 100 are shown"));
  const auto none = cluster.ask({"status", "--name", "early"});
  CHECK_THAT(none.out, Catch::Contains("No such jobs.") &&
                           Catch::Contains("only the newest 100 were searched"));
  CHECK(
      cluster.ask({"status", "1-200", "--json", "--name", "early"}).document().at("jobs").size() ==
      1);
  CHECK(cluster.ask({"status", "1-3", "--json"}).document().at("older_left_out") == false);
}
