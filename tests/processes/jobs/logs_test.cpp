#include <fstream>
#include <sstream>

#include "harness/sanitized.hpp"
#include "processes/detached.hpp"

// Logs from the command line: of earlier attempts, their ends, as they grow, and large ones.

using namespace troupe;
using namespace troupe::test;

namespace {

std::string logging_job(const scratch& where, const std::string& name, const std::string& script) {
  return where.write(name + ".yaml",
                     "name: " + name + "\nmodel: gpt2-124m\nglobal_batch: 4\ncommand: [sh, -c, '" +
                         script + "']\n");
}

}  // namespace

TEST_CASE("logs --tail, --all and --attempt select lines, ranks and attempts") {
  // Frenzy, because its second attempt, after the first one reports that it ran out of memory, is
  // on two GPUs.
  const detached cluster{{"--policy", "frenzy"}};
  REQUIRE(cluster.said.status == 0);
  const auto job = cluster.where.write(
      "twice.yaml",
      "name: twice\nmodel: gpt2-124m\nglobal_batch: 4\ncommand: [sh, -c, 'if [ -e mark ]; "
      "then "
      "for i in 1 2 3; do echo second $i; done; else touch mark; echo first; echo CUDA out of "
      "memory; exit 1; fi']\nworking_directory: " +
          cluster.where.path() + "\n");
  REQUIRE(cluster.ask({"submit", job, "--wait"}).status == 0);
  CHECK(cluster.ask({"logs", "1"}).out == "second 1\nsecond 2\nsecond 3\n");
  CHECK(cluster.ask({"logs", "1", "--tail", "2"}).out == "second 2\nsecond 3\n");
  CHECK(cluster.ask({"logs", "1", "--tail", "0"}).out == "");
  CHECK(cluster.ask({"logs", "1", "--tail", "9"}).out == "second 1\nsecond 2\nsecond 3\n");
  CHECK(cluster.ask({"logs", "1", "--attempt", "1"}).out == "first\nCUDA out of memory\n");
  CHECK(cluster.ask({"logs", "1", "--all", "--tail", "1"}).out ==
        "1.0| CUDA out of memory\n2.0| second 3\n2.1| second 3\n");
  CHECK(cluster.ask({"logs", "1", "--attempt", "3"}).status == 1);
  CHECK_THAT(cluster.ask({"logs", "1", "--rank", "2"}).err, Catch::Contains("no rank 2"));
  const auto d = cluster.ask({"logs", "1", "--json"}).document();
  CHECK(d.at("text") == "second 1\nsecond 2\nsecond 3\n");
  CHECK(d.at("attempt") == 2);
  const auto all = cluster.ask({"logs", "1", "--all", "--json"}).document().at("logs");
  REQUIRE(all.size() == 3);
  CHECK(all[0].at("text") == "first\nCUDA out of memory\n");
  CHECK(all[0].at("lease") != all[1].at("lease"));
}

TEST_CASE("logs -f follows to the end, with --json as a document per line, whatever the bytes") {
  detached cluster;
  REQUIRE(cluster.said.status == 0);
  const auto job =
      logging_job(cluster.where, "slow",
                  "echo one; sleep 1; printf \"\\\\303\\\\244 \\\\377\\\\n\"; printf two");
  REQUIRE(cluster.ask({"submit", job}).status == 0);
  const auto followed = cluster.ask({"logs", "1", "-f", "--json"});
  INFO(followed.out << followed.err);
  REQUIRE(followed.status == 0);
  std::vector<std::string> lines;
  std::istringstream in{followed.out};
  for (std::string line; std::getline(in, line);) {
    const auto d = nlohmann::json::parse(line);
    CHECK(d.at("job") == 1);
    CHECK(d.at("attempt") == 1);
    CHECK(d.at("rank") == 0);
    lines.push_back(d.at("line").get<std::string>());
  }
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "one");
  CHECK(lines[1].starts_with("\u00e4 "));
  CHECK(lines[2] == "two");
  CHECK(cluster.ask({"logs", "1", "-f"}).out == "one\n\xc3\xa4 \xff\ntwo");
}

TEST_CASE("a large log is printed completely in bounded memory") {
  detached cluster;
  REQUIRE(cluster.said.status == 0);
  const auto job = logging_job(cluster.where, "loud",
                               "head -c 60000000 /dev/zero | tr \"\\\\0\" x | fold -w 99");
  REQUIRE(cluster.ask({"submit", job, "--wait"}).status == 0);
  // 300 MB of address space: the log as one JSON string, twice held, would not fit.
  const auto out = cluster.where / "out.json";
  const std::string limit = harness::sanitized ? "" : "ulimit -v 300000; ";
  const auto line =
      limit + "'" TROUPE_PROGRAM "' logs 1 --json --state '" + cluster.state + "' >" + out;
  REQUIRE(std::system(line.c_str()) == 0);
  std::ifstream in{out};
  const auto text = nlohmann::json::parse(in).at("text").get<std::string>();
  CHECK(std::count(text.begin(), text.end(), 'x') == 60'000'000);
}
