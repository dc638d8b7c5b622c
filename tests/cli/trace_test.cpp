#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <tuple>

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
  CHECK(troupe::test::troupe({"trace", "import", "slurm", file}).status == 2);
  CHECK(troupe::test::troupe({"trace", "import", "itp", file}).status == 2);
  CHECK(troupe::test::troupe({"trace"}).status == 2);
}

TEST_CASE("what an importer left out is counted, on standard error and in the document") {
  const scratch dir;
  const auto file = dir.write("pods.csv",
                              "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
                              "a,1,460,0,50,10\nb,0,0,0,50,10\nc,1,1000,5,50,\n");
  const auto r = troupe::test::troupe({"trace", "import", "openb", file});
  REQUIRE(r.status == 0);
  CHECK(r.out.find("a,0,40,1") != std::string::npos);
  CHECK(r.err.find("left out: 1 never ran, 1 without GPUs") != std::string::npos);
  CHECK(r.err.find("changed: 1 parts of a GPU rounded up") != std::string::npos);
  const auto d = troupe::test::troupe({"trace", "import", "openb", file, "--json"}).document();
  CHECK(d["left_out"]["never ran"] == 1);
  CHECK(d["rows"] == 1);
  const auto zero =
      dir.write("zero.csv", "job_id,submission_time,duration,num_gpu\na,0,0,1\nb,1,5,1\n");
  CHECK(troupe::test::troupe({"trace", "import", "itp", zero}).status == 2);
  const auto skipped = troupe::test::troupe({"trace", "import", "itp", zero, "--skip"});
  CHECK(skipped.out.starts_with("# troupe trace import itp zero.csv --skip\n"));
  CHECK(skipped.err.find("left out: 1 never ran") != std::string::npos);
}

TEST_CASE("a result that cannot be written is refused by its name") {
  const scratch dir;
  const auto r = troupe::test::troupe(
      {"trace", "import", "itp", dir.write("c.csv", itp), "--out", dir.path("no/where.csv")});
  CHECK(r.status == 2);
  CHECK(r.err.find("where.csv") != std::string::npos);
}

TEST_CASE("titan's workload is made from its description, and a seed repeats it") {
  const scratch dir;
  const auto out = dir.path("titan.csv");
  const std::vector<std::string> make{"trace", "make", "titan", "--density", "0.5", "--seed", "7"};
  auto to_file = make;
  to_file.insert(to_file.end(), {"--out", out, "--json"});
  const auto d = troupe::test::troupe(to_file).document();
  CHECK(d["workload"] == "titan");
  CHECK(d["rows"] == 160);
  CHECK(d["last_s"].get<double>() > 7 * 3600);
  CHECK(d["last_s"].get<double>() <= 8 * 3600);
  CHECK(d["gpu_hours"].get<double>() > 160 * 300.0 / 3600);
  CHECK(d["seed"] == 7);
  CHECK(d["out"] == out);
  const auto r = troupe::test::troupe(make);
  CHECK(r.out == text_of(out));
  CHECK(
      r.out.starts_with("# troupe trace make titan --jobs 320 --hours 8 --density 0.5 --seed 7\n"
                        "job_id,submit_s,duration_s,gpus,model,dataset_card,merge\ntune-1,"));
  CHECK(r.err.find("titan: 160 rows over ") != std::string::npos);
  CHECK(troupe::test::troupe({"check", out}).out.find("trace of 160 jobs") != std::string::npos);
  auto other = make;
  other.back() = "8";
  CHECK(troupe::test::troupe(other).out != r.out);
}

TEST_CASE("bad numbers of a trace to make are refused with what was found and expected") {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"--jobs", "0", "--jobs: found '0', expected a number above 0, at most 1e+06"},
      {"--jobs", "many", "--jobs: found 'many', expected a number above 0"},
      {"--hours", "-8", "--hours: found '-8', expected a number above 0"},
      {"--density", "nan", "--density: found 'nan', expected a number above 0"},
      {"--density", "0.001", "--jobs times --density: found 0 jobs, expected 1 to 1000000"},
      {"--density", "1e6", "--jobs times --density: found 3.2e+08 jobs"},
      {"--seed", "-1", "found '-1', expected a non-negative integer"},
  };
  for (const auto& [option, value, words] : cases) {
    const auto r = troupe::test::troupe({"trace", "make", "titan", option, value});
    INFO(option << " " << value << ": " << r.err);
    CHECK(r.status == 2);
    CHECK(r.err.find(words) != std::string::npos);
    CHECK(r.out.empty());
  }
  CHECK(troupe::test::troupe({"trace", "make", "philly"}).status == 2);
  CHECK(troupe::test::troupe({"trace", "make"}).status == 2);
}
