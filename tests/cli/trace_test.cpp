#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "cli/program.hpp"

using namespace troupe::test;

namespace {

const char* const philly =
    "timestamp,duration,num_gpus,gpu_time,cluster\n"
    "2017-12-20 23:59:59,60.0,1,60.0,aaa\n"
    "2017-12-21 00:00:10,3600.0,8,28800.0,aaa\n"
    "2017-12-21 12:00:00,7200.0,1,7200.0,bbb\n"
    "2017-12-22 00:00:01,60.0,1,60.0,aaa\n";

const char* const itp =
    "job_id,submission_time,duration,num_gpu\n"
    "b,200,50,2\n"
    "a,100,60,64\n";

std::string text_of(const std::string& path) {
  std::ifstream in{path};
  return {std::istreambuf_iterator<char>{in}, {}};
}

}  // namespace

TEST_CASE("a day of the Philly trace is imported by its date, and check accepts the result") {
  const scratch dir;
  const auto file = dir.write("philly.csv", philly);
  const auto out = dir.path("day.csv");
  const auto r = troupe::test::troupe({"trace", "import", "philly", file, "--from", "2017-12-21",
                                       "--hours", "24", "--out", out, "--json"});
  REQUIRE(r.status == 0);
  const auto d = r.document();
  CHECK(d["rows"] == 2);
  CHECK(d["gpu_hours"].get<double>() == Approx(10));
  CHECK(d["out"] == out);
  CHECK_FALSE(d.contains("csv"));
  const auto csv = text_of(out);
  CHECK(csv.starts_with("# troupe trace import philly philly.csv --from 2017-12-21 --hours 24\n"));
  CHECK(csv.find(",10,3600,8") != std::string::npos);
  const auto checked = troupe::test::troupe({"check", out});
  CHECK(checked.status == 0);
  CHECK(checked.out.find("trace of 2 jobs") != std::string::npos);
}

TEST_CASE("without --out the trace goes to standard output and the summary to standard error") {
  const scratch dir;
  const auto r = troupe::test::troupe({"trace", "import", "itp", dir.write("c.csv", itp)});
  REQUIRE(r.status == 0);
  CHECK(r.out.find("job_id,submit_s,duration_s,gpus\na,0,60,64\nb,100,50,2\n") !=
        std::string::npos);
  CHECK(r.err.find("2 rows") != std::string::npos);
  const auto programs =
      troupe::test::troupe({"trace", "import", "itp", dir.path("c.csv"), "--json"});
  CHECK(programs.document()["csv"] == r.out);
}

TEST_CASE("a window without rows, and a bad line, are refused with their place") {
  const scratch dir;
  const auto file = dir.write("philly.csv", philly);
  CHECK(troupe::test::troupe(
            {"trace", "import", "philly", file, "--from", "2017-12-21 13:00:00", "--hours", "1"})
            .status == 2);
  const auto bad =
      dir.write("bad.csv", "job_id,submission_time,duration,num_gpu\na,1,2,3\nb,x,2,3\n");
  const auto r = troupe::test::troupe({"trace", "import", "itp", bad});
  CHECK(r.status == 2);
  CHECK(r.err.find(bad + ":3: submission_time") != std::string::npos);
  CHECK(troupe::test::troupe({"trace", "import", "helios", file}).status == 2);
  CHECK(troupe::test::troupe({"trace", "import", "itp", file}).status == 2);
  CHECK(troupe::test::troupe({"trace"}).status == 2);
}

TEST_CASE("a result that cannot be written is refused by its name") {
  const scratch dir;
  const auto r = troupe::test::troupe(
      {"trace", "import", "itp", dir.write("c.csv", itp), "--out", dir.path("no/where.csv")});
  CHECK(r.status == 2);
  CHECK(r.err.find("where.csv") != std::string::npos);
}
