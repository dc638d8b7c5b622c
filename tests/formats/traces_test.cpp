#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>

#include "formats/load/load.hpp"
#include "formats/traces/trace.hpp"
#include "formats/traces/workload.hpp"
#include "harness/facts.hpp"
#include "harness/files.hpp"
#include "harness/source_dir.hpp"

using namespace troupe;
using formats::trace_row;
using test::loaded;
using test::temporary;
namespace fs = std::filesystem;

namespace {

/// Published traces, if they are next to the checkout.
const fs::path published = fs::path{troupe::test::source_dir()} / "../shared/traces";

bool absent(const char* file) {
  if (fs::exists(published / file)) return false;
  WARN("skipped: ../shared/traces/" << file << " is not here");
  return true;
}

double seconds(const job_spec& job, std::uint32_t gpus) {
  const double h = job.model.operators.empty() ? job.model.hidden : 1000.0;
  return 1e-6 * h * job.global_batch / gpus;
}

}  // namespace

TEST_CASE("a trace is read as it was written") {
  trace_row a{"a", 0.5, 60, 1, "", "", {}, {}, {}, {}};
  trace_row b{"b-2", 7, 0.1, 64, "A40", "bert-large", 8, 1000, 3600.25, {"photo", "animals"}};
  const std::vector<trace_row> rows{a, b};
  const auto text = formats::to_csv(rows, "from nowhere\nlicence: none");
  CHECK(text.starts_with("# from nowhere\n# licence: none\njob_id,"));
  CHECK(loaded(formats::load_trace(temporary("t.csv", text))) == rows);
  const std::vector<trace_row> plain{a};
  CHECK(formats::to_csv(plain) == "job_id,submit_s,duration_s,gpus\na,0.5,60,1\n");
}

TEST_CASE("an inference trace is read as it was written") {
  const std::vector<formats::inference_row> rows{{0, 100, 8}, {0.25, 4808, 10}};
  CHECK(loaded(formats::load_inference_trace(temporary("i.csv", formats::to_csv(rows)))) == rows);
}

TEST_CASE("rows are ordered by submission time, equal times in the file's order") {
  const auto file = temporary("o.csv",
                              "job_id,submit_s,duration_s,gpus\nlate,9,1,1\nb,3,1,1\na,3,1,1\n\n"
                              "# a comment\nfirst,0,1,1\r\n");
  const auto rows = loaded(formats::load_trace(file));
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].job_id == "first");
  CHECK(rows[1].job_id == "b");
  CHECK(rows[2].job_id == "a");
  CHECK(rows[3].job_id == "late");
}

TEST_CASE("a trace may begin with a byte order mark, as spreadsheets write it") {
  const std::string rows = "job_id,submit_s,duration_s,gpus\r\na,3,1,1\r\n";
  CHECK(loaded(formats::load_trace(temporary("m.csv", "\xef\xbb\xbf" + rows))) ==
        loaded(formats::load_trace(temporary("n.csv", rows))));
}

TEST_CASE("a bad trace is refused with its line and column") {
  const std::string head = "job_id,submit_s,duration_s,gpus\n";
  const std::pair<std::string, std::string> cases[] = {
      {"job_id,submit_s,gpus\n", ":1: missing column 'duration_s'"},
      {"job_id,submit_s,duration_s,gpus,gpu_tipe\n",
       ":1: unknown column 'gpu_tipe'; did you mean 'gpu_type'?"},
      {"job_id,submit_s,duration_s,gpus,gpus\n", ":1: duplicate column 'gpus'"},
      {head, "no rows"},
      {head + "a,0,1,1\nb,0,1\n", ":3: found 3 fields, expected 4"},
      {head + "a,0,1,1\na,5,1,1\n", ":3: job_id: duplicate name 'a'"},
      {head + "a b,0,1,1\n", ":2: job_id: found 'a b'"},
      {head + "a,-1,1,1\n", ":2: submit_s: found '-1', expected a number from 0 to 10,000,000,000"},
      {head + "a,nan,1,1\n", ":2: submit_s: found 'nan'"},
      {head + "a,0,0,1\n", ":2: duration_s: found '0'"},
      {head + "a,0,1e99,1\n", ":2: duration_s: found '1e99'"},
      {head + "a,0,1,0\n", ":2: gpus: found '0'"},
      {head + "a,0,1,1.5\n", ":2: gpus: found '1.5', expected a whole number"},
      {head + "a,0,1,many\n", ":2: gpus: found 'many'"},
  };
  for (const auto& [text, words] : cases) {
    const auto file = temporary("bad.csv", text);
    const auto rows = formats::load_trace(file);
    REQUIRE_FALSE(rows);
    INFO(rows.error().text);
    CHECK(rows.error().text.find("bad.csv") != std::string::npos);
    CHECK(rows.error().text.find(words) != std::string::npos);
  }
}

TEST_CASE("timestamps are parsed exactly, including leap days and fractions") {
  CHECK(formats::parse_timestamp("1970-01-01") == 0.0);
  CHECK(formats::parse_timestamp("1970-01-02 00:00:01") == 86401.0);
  CHECK(formats::parse_timestamp("2017-12-21 00:00:00") == 1513814400.0);
  CHECK(formats::parse_timestamp("2024-02-29T12:00:00") == 1709208000.0);
  CHECK(formats::parse_timestamp("2023-11-16 18:17:03.5") == 1700158623.5);
  for (const char* bad : {"", "2017", "2017-13-01", "2017-02-29", "2017-12-21 25:00:00",
                          "2017-12-21 1", "2017/12/21", "2017-12-21 00:00:00x", "-017-12-21"}) {
    INFO(bad);
    CHECK_FALSE(formats::parse_timestamp(bad));
  }
}

TEST_CASE("times of every zone are converted to UTC, those without one are taken as written") {
  const double noon = 1709208000;  // 2024-02-29 12:00:00
  for (const char* same :
       {"2024-02-29 12:00:00", "2024-02-29T12:00:00Z", "2024-02-29 12:00:00+00:00",
        "2024-02-29 12:00:00-00:00", "2024-02-29 12:00:00 UTC", "2024-02-29 12:00:00 Z",
        "2024-02-29T14:30:00+02:30", "2024-02-29 14:30:00 +0230", "2024-02-29 14:00:00+02",
        "2024-03-01 02:00:00+14:00", "2024-02-29 00:00:00-12:00", "2024-02-29 05:00:00 PDT",
        "2024-02-29 04:00:00 PST", "2024-02-29 07:00:00 EST", "2024-02-29 08:00:00 EDT",
        "2024-02-29 06:00:00 CST", "2024-02-29 06:00:00 MDT", "2024-02-29 12:00:00.000 GMT"}) {
    INFO(same);
    CHECK(formats::parse_timestamp(same) == noon);
  }
  CHECK(formats::parse_timestamp("2024-02-29 14:00:00.25+02:00") == noon + 0.25);
  CHECK(formats::parse_timestamp("2024-02-29T12:00:00.5Z") == noon + 0.5);
  CHECK(formats::parse_timestamp("1970-01-01 00:00:00+01:00") == -3600.0);
  for (const char* bad : {"2024-02-29 12:00:00+",
                          "2024-02-29 12:00:00+2",
                          "2024-02-29 12:00:00+2:00",
                          "2024-02-29 12:00:00+02:",
                          "2024-02-29 12:00:00+02:60",
                          "2024-02-29 12:00:00+14:01",
                          "2024-02-29 12:00:00-12:30",
                          "2024-02-29 12:00:00+25:00",
                          "2024-02-29 12:00:00+02:00:00",
                          "2024-02-29 12:00:00+02:00 PDT",
                          "2024-02-29 12:00:00PDX",
                          "2024-02-29 12:00:00 ",
                          "2024-02-29 12:00:00  Z",
                          "2024-02-29 12:00:00ZZ",
                          "2024-02-29 12:00:00.",
                          "2024-02-29 12:00:00.Z",
                          "2024-02-29 12:00:00.5e-1",
                          "2024-02-29 12:00:00.+5",
                          "2024-02-29+02:00",
                          "2024-02-29Z",
                          "2024-02-29 ",
                          "2024-02-29 12:00:00+-2:00"}) {
    INFO(bad);
    CHECK_FALSE(formats::parse_timestamp(bad));
  }
}

TEST_CASE("Azure's traces of 2023 and of 2024 have the same times, also in one file") {
  const std::string head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const auto arrivals = [&](const std::string& rows) {
    std::vector<std::pair<double, std::uint32_t>> all;
    const auto trace = loaded(formats::import_azure_llm(temporary("azure.csv", head + rows)));
    for (const auto& r : trace.rows) all.emplace_back(r.arrival_s, r.prompt_tokens);
    return all;
  };
  using list = std::vector<std::pair<double, std::uint32_t>>;
  const list both{{0, 2162}, {0.007405, 2399}};
  CHECK(arrivals("2024-05-10 00:00:00.0099300,2162,5\n2024-05-10 00:00:00.0173350,2399,6\n") ==
        both);
  CHECK(arrivals("2024-05-10 00:00:00.009930+00:00,2162,5\n"
                 "2024-05-10 00:00:00.017335+00:00,2399,6\n") == both);
  CHECK(arrivals("2024-05-10 02:00:00.017335+02:00,2399,6\n2024-05-10 00:00:00.00993,2162,5\n") ==
        both);
  const auto bad = formats::import_azure_llm(temporary(
      "azure.csv", head + "2024-05-10 00:00:00+00:00,1,1\n2024-05-10 00:00:00+99:00,1,1\n"));
  REQUIRE_FALSE(bad);
  CHECK(
      bad.error().text.find(":3: TIMESTAMP: found '2024-05-10 00:00:00+99:00', expected a time") !=
      std::string::npos);
}

TEST_CASE("the Philly importer cuts a window and counts time from its start") {
  const auto file = temporary("p.csv",
                              "timestamp,duration,num_gpus,gpu_time,cluster\n"
                              "2017-10-03 00:00:10,5.0,2,10.0,b\n"
                              "2017-10-02 23:59:59,7.0,1,7.0,a\n"
                              "2017-10-03 01:00:00,8.0,1,8.0,a\n"
                              "2017-10-03 02:00:00,9.0,1,9.0,a\n");
  auto rows = loaded(formats::import_jobs("philly", file, {"2017-10-03", 2, ""})).rows;
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == trace_row{"philly-1", 10, 5, 2, "", "", {}, {}, {}, {}});
  CHECK(rows[1].submit_s == 3600);
  CHECK(loaded(formats::import_jobs("philly", file, {"1", 0, "a"})).rows.size() == 2);
  CHECK(loaded(formats::import_jobs("philly", file)).rows.size() == 4);
  CHECK_FALSE(formats::import_jobs("philly", file, {"2018-01-01", 0, ""}));
  CHECK_FALSE(formats::import_jobs("philly", file, {"", 0, "c"}));
  CHECK_FALSE(formats::import_jobs("philly", file, {"yesterday", 0, ""}));
}

TEST_CASE("the shipped day of Philly is 465 jobs of one day") {
  const auto rows = loaded(formats::load_trace(test::shipped / "traces/philly-day.csv"));
  CHECK(rows.size() == 465);
  CHECK(rows.front().submit_s >= 0);
  CHECK(rows.back().submit_s < 86400);
  if (absent("philly.csv")) return;
  CHECK(loaded(formats::import_jobs("philly", published / "philly.csv", {"2017-12-21", 24, ""}))
            .rows == rows);
}

TEST_CASE("every published trace is imported completely") {
  if (absent("philly.csv")) return;
  CHECK(loaded(formats::import_jobs("philly", published / "philly.csv")).rows.size() == 82247);
  const std::size_t itp[] = {1595, 5778, 3011, 15802, 3629};
  for (int i = 1; i <= 5; ++i)
    CHECK(loaded(formats::import_jobs("itp",
                                      published / ("itp/cluster0" + std::to_string(i) + ".csv")))
              .rows.size() == itp[i - 1]);
  const auto requests = loaded(formats::import_azure_llm(published / "azure_llm_code.csv")).rows;
  CHECK(requests.size() == 8819);
  CHECK(requests[0] == formats::inference_row{0, 4808, 10});
  CHECK(requests[1].arrival_s == Approx(0.052));
}

TEST_CASE("a workload is a function of the trace, the seed and the cluster, job by job") {
  const auto rows = loaded(formats::load_trace(test::shipped / "traces/philly-day.csv"));
  const auto c = loaded(formats::load_cluster(test::shipped / "clusters/frenzy-sim.yaml"));
  for (const char* workload : {"frenzy", "crius", "titan"}) {
    INFO(workload);
    const auto once = loaded(formats::assign(rows, workload, 1, c, seconds));
    CHECK(once == loaded(formats::assign(rows, workload, 1, c, seconds)));
    CHECK(once != loaded(formats::assign(rows, workload, 2, c, seconds)));
    REQUIRE(once.size() == rows.size());
    // A job stays the same when other rows are left out.
    const std::vector<trace_row> some(rows.begin() + 100, rows.begin() + 110);
    const auto few = loaded(formats::assign(some, workload, 1, c, seconds));
    CHECK(std::equal(few.begin(), few.end(), once.begin() + 100));
  }
}

TEST_CASE("the Frenzy workload keeps the trace's GPU counts, clipped, and its durations") {
  const auto rows = loaded(formats::load_trace(test::shipped / "traces/philly-day.csv"));
  const auto c = loaded(formats::load_cluster(test::shipped / "clusters/frenzy-sim.yaml"));
  const auto jobs = loaded(formats::assign(rows, "frenzy", 7, c, seconds));
  std::map<std::string, int> models;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto& job = jobs[i].spec;
    CHECK(job.request.gpus == rows[i].gpus);  // all are powers of two that fit
    CHECK(job.global_batch % job.request.gpus == 0);
    CHECK((job.model.family == "gpt" || job.model.family == "bert"));
    const double s = seconds(job, job.request.gpus);
    CHECK(static_cast<double>(job.iterations) * s == Approx(rows[i].duration_s).margin(s));
    ++models[job.model.name];
  }
  CHECK(models.size() >= 8);
}

TEST_CASE("the Crius workload has the batches of the paper's Table 2: BERT's are half") {
  const auto rows = loaded(formats::load_trace(test::shipped / "traces/philly-day.csv"));
  const auto c = loaded(formats::load_cluster(test::shipped / "clusters/crius-sim.yaml"));
  std::map<std::pair<bool, std::uint32_t>, int> drawn;  // BERT, batch
  for (const auto& [submit_s, job] : loaded(formats::assign(rows, "crius", 3, c, seconds)))
    ++drawn[{job.model.family == "bert", job.global_batch}];
  std::vector<std::pair<bool, std::uint32_t>> seen;
  for (const auto& [what, jobs] : drawn) seen.push_back(what);
  CHECK(seen ==
        std::vector<std::pair<bool, std::uint32_t>>{
            {false, 256}, {false, 512}, {false, 1024}, {true, 128}, {true, 256}, {true, 512}});
}

TEST_CASE("a job without a plan on the cluster becomes smaller until it has one") {
  const std::vector<trace_row> rows{{"big", 0, 600, 8, "", "", {}, {}, {}, {}}};
  const auto c = loaded(formats::load_cluster(test::shipped / "clusters/frenzy-sim.yaml"));
  const auto small_only = [](const job_spec& job, std::uint32_t) {
    const bool fits = job.model.name == "gpt2-124m" && job.global_batch == 8;
    return fits ? 1.0 : std::numeric_limits<double>::infinity();
  };
  const auto jobs = loaded(formats::assign(rows, "frenzy", 1, c, small_only));
  CHECK(jobs[0].spec.model.name == "gpt2-124m");
  CHECK(jobs[0].spec.iterations == 600);
  const auto never = [](const job_spec&, std::uint32_t) { return std::nan(""); };
  const auto refused = formats::assign(rows, "frenzy", 1, c, never);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text.find("job big: no plan of") != std::string::npos);
}

TEST_CASE("a row whose own model and batch have no plan, or whose GPU type is absent, is a job") {
  const auto c = loaded(formats::load_cluster(test::shipped / "clusters/frenzy-sim.yaml"));
  std::vector<trace_row> rows{{"fixed", 0, 600, 2, "", "llama-1.3b", 4, {}, {}, {}},
                              {"elsewhere", 1, 600, 2, "H100-80GB", "", {}, {}, {}, {}}};
  const auto never = [](const job_spec& job, std::uint32_t) {
    return job.name == "fixed" ? std::numeric_limits<double>::infinity() : 2.0;
  };
  const auto always = [](const job_spec&, std::uint32_t) { return 3.0; };
  const auto jobs = loaded(formats::assign(rows, "frenzy", 1, c, never, always));
  REQUIRE(jobs.size() == 2);
  CHECK(jobs[0].spec.model.name == "llama-1.3b");
  CHECK(jobs[0].spec.global_batch == 4);
  CHECK(jobs[0].spec.iterations == 200);
  CHECK(jobs[0].spec.limits.required_gpu_type.empty());
  CHECK(jobs[1].spec.limits.required_gpu_type == "H100-80GB");
  rows[0].duration_s = 0;
  const auto refused = formats::assign(rows, "frenzy", 1, c, never, always);
  REQUIRE_FALSE(refused);
  CHECK(test::has_facts(refused.error().text, {"job fixed", "no duration_s"}));
}

TEST_CASE("a row's own names are kept, and unknown GPU types and models are refused") {
  const auto c = loaded(formats::load_cluster(test::shipped / "clusters/frenzy-sim.yaml"));
  std::vector<trace_row> rows{{"r", 0, 600, 2, "RTX6000", "llama-1.3b", 4, 77, 9000, {"photo"}}};
  const auto job = loaded(formats::assign(rows, "frenzy", 1, c, seconds))[0].spec;
  CHECK(job.model.name == "llama-1.3b");
  CHECK(job.request.type == "RTX6000");
  CHECK(job.global_batch == 4);
  CHECK(job.iterations == 77);
  CHECK(job.limits.deadline_s == 9000);
  rows[0].gpu_type = "H100-80GB";
  CHECK_FALSE(formats::assign(rows, "frenzy", 1, c, seconds));
  rows[0].gpu_type = "";
  rows[0].model = "../../etc/passwd";
  CHECK_FALSE(formats::assign(rows, "frenzy", 1, c, seconds));
  const auto unknown = formats::assign(rows, "frenzi", 1, c, seconds);
  REQUIRE_FALSE(unknown);
  CHECK(troupe::test::has_facts(unknown.error().text, {"'frenzi'", "'frenzy'"}));
}

TEST_CASE("the TITAN workload describes data, and a tenth of its jobs opts out of merging") {
  const auto rows = loaded(formats::load_trace(test::shipped / "traces/philly-day.csv"));
  const auto c = loaded(formats::load_cluster(test::shipped / "clusters/titan.yaml"));
  int out = 0;
  for (const auto& [submit_s, job] : loaded(formats::assign(rows, "titan", 1, c, seconds))) {
    CHECK(job.merging.dataset_card.size() == 3);
    CHECK(job.priority == (job.merging.allowed ? 0 : -1));
    out += !job.merging.allowed;
  }
  CHECK(out > 20);
  CHECK(out < 80);
}

TEST_CASE("jobs of a trace with cards keep their number of GPUs and their consent to merging") {
  const auto c = loaded(formats::load_cluster(test::shipped / "clusters/titan.yaml"));
  std::vector<trace_row> rows(20);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].job_id = "tune-" + std::to_string(i);
    rows[i].duration_s = 600;
    rows[i].dataset_card = {"classification", "cars", "street"};
    rows[i].merge = i % 2 == 0;
  }
  const auto jobs = loaded(formats::assign(rows, "titan", 1, c, seconds));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(jobs[i].spec.request.gpus == 1);
    CHECK(jobs[i].spec.merging.dataset_card == rows[i].dataset_card);
    CHECK(jobs[i].spec.merging.allowed == rows[i].merge);
    CHECK(jobs[i].spec.priority == (rows[i].merge ? 0 : -1));
  }
}
