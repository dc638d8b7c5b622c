#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "cli/program.hpp"

using namespace troupe::test;
using nlohmann::json;

namespace {

/// Jobs, a table and a cluster of one node with four GPUs.
class tuning_files {
 public:
  /// A job of `batch` times `iterations` samples.
  std::string job(const std::string& name, int iterations, const std::string& more = "") {
    return dir_.write(name + ".yaml",
                      fmt::format("name: {}\nmodel: vit-large-16\nglobal_batch: 64\n"
                                  "iterations: {}\n{}",
                                  name, iterations, more.empty() ? card : more));
  }
  std::string cluster(int gpus) {
    return dir_.write(
        fmt::format("{}-gpus.yaml", gpus),
        fmt::format("name: lab\nsettings: {{restart_s: 0}}\ndatacenters: [{{name: dc, nodes: "
                    "[{{name: a, gpu: V100-32GB, gpus: {}, intra: nvlink, inter: ib100}}]}}]\n",
                    gpus));
  }
  /// Rows on one GPU: seconds of an iteration by accumulation and batch.
  std::string table(const std::vector<std::tuple<int, int, double>>& rows) {
    std::string text;
    for (const auto& [accumulate, batch, seconds] : rows)
      text += fmt::format(
          R"({}{{"gpu": "V100-32GB", "model": "vit-large-16", "gpus": 1, "accumulate": {},
                 "batch": {}, "iteration_s": {}, "bytes_per_gpu": 1e9}})",
          text.empty() ? "" : ",", accumulate, batch, seconds);
    return dir_.write("lut.json", "{\"rows\": [" + text + "]}");
  }
  const scratch& dir() const { return dir_; }

  static constexpr const char* card = "dataset_card: [classification, animals, street]\n";

 private:
  scratch dir_;
};

result planned(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.begin(), "plan");
  words.insert(words.end(), more.begin(), more.end());
  return troupe::test::troupe(words);
}

json documented(std::vector<std::string> words, std::vector<std::string> more) {
  more.emplace_back("--json");
  const auto r = planned(std::move(words), more);
  INFO(r.err);
  REQUIRE(r.status == 0);
  return r.document();
}

json simulated(const std::vector<std::string>& more) {
  std::vector<std::string> words{"simulate", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const auto r = troupe::test::troupe(words);
  INFO(r.err);
  REQUIRE(r.status == 0);
  return r.document();
}

struct table_2_case {
  int a_min = 0, b_min = 0;
  double merged_min = 0, srtf_min = 0;
  bool merged = false;
};
constexpr table_2_case table_2[] = {
    {20, 20, 25.0, 30, true}, {10, 20, 20.7, 20, false}, {5, 100, 100.0, 55, false}};

}  // namespace

TEST_CASE("plan --paper has the merged times of TITAN's Table 2, and decides yes, no and no") {
  tuning_files files;
  const auto table = files.table({{1, 64, 1.0}});
  const std::vector<std::string> on{"--cluster", files.cluster(4), "--idle", "1",
                                    "--policy",  "titan",          "--lut",  table};
  for (const auto& c : table_2) {
    INFO(c.a_min << " and " << c.b_min << " min");
    const std::vector<std::string> jobs{files.job("a", 60 * c.a_min), files.job("b", 60 * c.b_min)};
    auto paper = on;
    paper.emplace_back("--paper");
    const auto d = documented(jobs, paper);
    REQUIRE(d["candidates"].size() == 1);
    const auto& k = d["candidates"][0];
    CHECK(k["jobs"] == json{"a", "b"});
    CHECK(k["duration_s"].get<double>() / 60 == Approx(c.merged_min).margin(0.05));
    CHECK(k["samples"].get<double>() == Approx(64 * k["duration_s"].get<double>()).epsilon(1e-3));
    CHECK(k["duration_ratio"].get<double>() == Approx(1.0 * c.b_min / c.a_min));
    REQUIRE(d["assignments"].size() == 1);
    const auto& first = d["assignments"][0];
    if (c.merged) {
      CHECK(first["jobs"] == json{"a", "b"});
      CHECK(first["merged"] == "shared");
      CHECK(first["weight"].get<double>() == Approx(1.5));
      CHECK(d["waiting"].empty());
    } else {
      CHECK(first["jobs"] == json{"a"});
      CHECK(first["merged"].is_null());
      CHECK(1 / first["progress_per_s"].get<double>() == Approx(60 * c.a_min));
      CHECK(d["waiting"][0]["job"] == "b");
    }
    CHECK(d["objective"] == d["bound"]);
    CHECK(d["gap"] == 0.0);
  }
  // Our own rules do not merge jobs of such different lengths, which include their starts.
  const auto d = documented({files.job("a", 300), files.job("b", 6000)}, on);
  CHECK(d["candidates"].empty());
  REQUIRE(d["rejected_pairs"].size() == 1);
  CHECK(d["rejected_pairs"][0]["jobs"] == json{"a", "b"});
  CHECK(d["rejected_pairs"][0]["why"] == "their durations have a ratio of 19.8, above 2.0");
}

TEST_CASE("srtf has the mean completion times of TITAN's Table 2") {
  tuning_files files;
  for (const auto& c : table_2) {
    INFO(c.a_min << " and " << c.b_min << " min");
    const auto trace = files.dir().write("two.csv", fmt::format("job_id,submit_s,duration_s,gpus\n"
                                                                "a,0,{},1\nb,0,{},1\n",
                                                                60 * c.a_min, 60 * c.b_min));
    const auto d = simulated({"--cluster", files.cluster(1), "--trace", trace, "--workload",
                              "as-is", "--policy", "srtf"});
    const auto& srtf = d["policies"][0];
    CHECK(srtf["average_jct_s"].get<double>() / 60 == Approx(c.srtf_min).margin(0.02));
    CHECK(srtf["merges"] == 0);
    CHECK(srtf["solve_ms"].is_null());
    CHECK(srtf["gap_max"].is_null());
    CHECK(srtf["jct_better_share"].is_null());
  }
}

TEST_CASE("plan of several jobs shows configurations, who waits, and which pairs stay apart") {
  tuning_files files;
  const std::vector<std::string> jobs{
      files.job("first", 1000), files.job("second", 1000),
      files.job("apart", 1000, std::string{tuning_files::card} + "merge: false\n"),
      files.job("bare", 2000, "priority: 0\n")};
  const auto table = files.table({{1, 64, 1.0}, {1, 256, 1.6}, {2, 128, 2.0}});
  const std::vector<std::string> on{"--cluster", files.cluster(4), "--policy", "titan"};
  auto measured = on;
  measured.insert(measured.end(), {"--lut", table, "--idle", "2"});
  const auto d = documented(jobs, measured);
  CHECK(d["policy"] == "titan");
  REQUIRE(d["assignments"].size() == 2);
  for (const auto& a : d["assignments"]) {
    CHECK(a["gpus"] == 1);
    CHECK(a["gpu"] == "V100-32GB");
    const auto& how = a["configuration"];
    CHECK(how["accumulate"] == 1);
    CHECK(how["frozen_layers"] == 0);
    CHECK(how["amp"] == false);
    CHECK(how["recompute"] == false);
    CHECK(how["plan"]["data_parallel"] == 1);
    // Twice the data allow a larger batch, of which there is a row.
    const bool merged = a["jobs"].size() == 2;
    CHECK(a["jobs"] == (merged ? json{"first", "second"} : json{"apart"}));
    CHECK(how["batch"] == (merged ? 256 : 128));
    CHECK(a["from"] == (merged ? "lut" : "interpolated"));
    CHECK(how["epochs"].get<double>() == Approx(merged ? 6.25 : 10));
  }
  REQUIRE(d["waiting"].size() == 1);
  CHECK(d["waiting"][0]["job"] == "bare");
  REQUIRE(d["candidates"].size() == 1);
  CHECK(d["candidates"][0]["jobs"] == json{"first", "second"});
  CHECK(d["candidates"][0]["similarity"] == 1.0);
  CHECK(d["rejected_pairs"].size() == 5);
  std::string reasons;
  for (const auto& pair : d["rejected_pairs"]) reasons += pair["why"].get<std::string>() + "\n";
  CHECK(reasons.find("job 3 has merge: false") != std::string::npos);
  CHECK(reasons.find("job 4 has no dataset_card") != std::string::npos);

  const auto by_cost = documented(jobs, on);
  CHECK(by_cost["assignments"][0]["from"] == "cost model");
  CHECK(by_cost["objective"].get<double>() <= by_cost["bound"].get<double>() * (1 + 1e-9));
  CHECK(by_cost["gap"].get<double>() <= 1e-4);
  auto alone = on;
  alone.back() = "titan-no-merger";
  const auto without = documented(jobs, alone);
  CHECK(without["candidates"].empty());
  CHECK(without["rejected_pairs"].empty());
  const auto people = planned(jobs, measured);
  CHECK(people.status == 0);
  for (const auto* words : {"4 waiting jobs on lab under titan", "first + second", "interpolated",
                            "has no dataset_card", "Objective "})
    CHECK_THAT(people.out, Catch::Contains(words));
}

TEST_CASE("what only titan can plan is refused under other policies, and for other jobs") {
  tuning_files files;
  const auto job = files.job("a", 100), other = files.job("b", 100);
  const auto table = files.table({{1, 64, 1.0}}), cluster = files.cluster(4);
  const auto training = files.dir().write(
      "t.yaml",
      "name: t\nmodel: gpt2-124m\nglobal_batch: 8\niterations: 1\ntrain: {device: sim}\n");
  const std::tuple<std::vector<std::string>, const char*, const char*> cases[] = {
      {{job, other}, "frenzy", "found frenzy, expected titan, titan-no-merger or titan-no-switch"},
      {{job, "--idle", "1"}, "frenzy", "several jobs, --idle, --lut and --paper are for"},
      {{job, "--lut", table}, "srtf", "found srtf, expected titan"},
      {{job, "--paper"}, "espresso", "found espresso, expected titan"},
      {{job, training}, "titan", "found 't', which runs as a pipeline"},
      {{job, "--idle", "5"}, "titan", "--idle: found 5, expected at most 4, the GPUs of 'lab'"},
      {{job, "--idle", "-1"}, "titan", "found '-1', expected a non-negative integer"},
      {{job, "--lut", "none.json"}, "titan", "none.json"},
      {{job, "--closed-form"}, "titan", "need --policy espresso"},
  };
  for (const auto& [words, policy, sentence] : cases) {
    const auto r = planned(words, {"--cluster", cluster, "--policy", policy});
    INFO(sentence << "\n" << r.err);
    CHECK(r.status == 2);
    CHECK(r.err.find(sentence) != std::string::npos);
  }
  // The other policies still plan a training under titan's name.
  const auto r = planned({training}, {"--cluster", cluster, "--policy", "titan", "--json"});
  CHECK(r.document()["job"] == "t");
}

TEST_CASE("a job that the cluster can never run is a failure of the plan, with its reason") {
  tuning_files files;
  const auto fits = files.job("fits", 100);
  const auto large = files.dir().write(
      "large.yaml", "name: large\nmodel: gpt2-7b\nglobal_batch: 64\niterations: 10\n");
  const auto r =
      planned({fits, large}, {"--cluster", files.cluster(1), "--policy", "titan", "--json"});
  CHECK(r.status == 1);
  const auto d = r.document();
  CHECK(d["assignments"][0]["jobs"] == json{"fits"});
  CHECK(d["waiting"][0]["job"] == "large");
  CHECK(r.err.find("large: no configuration of 'gpt2-7b' fits") != std::string::npos);
}

TEST_CASE("simulate shows merges, switches, solved programs, and jobs against a policy") {
  tuning_files files;
  const auto& dir = files.dir();
  const auto trace = dir.path("trace.csv");
  REQUIRE(troupe::test::troupe(
              {"trace", "make", "titan", "--jobs", "40", "--hours", "1", "--out", trace})
              .status == 0);
  const std::vector<std::string> words{"--cluster",  files.cluster(4), "--trace",  trace,
                                       "--workload", "titan",          "--policy", "srtf,titan",
                                       "--against",  "srtf",           "--out",    dir.path("out")};
  const auto d = simulated(words);
  CHECK(d["against"] == "srtf");
  const auto &srtf = d["policies"][0], &titan = d["policies"][1];
  CHECK(titan["finished"] == 40);
  CHECK(titan["merges"].get<int>() > 0);
  CHECK(titan["merged_jobs"].get<int>() >= 2 * titan["merges"].get<int>());
  CHECK(titan["switches"].get<int>() > 0);
  CHECK(titan["switch_s_total"].get<double>() > 0);
  CHECK(titan["solve_ms"]["mean"].get<double>() > 0);
  CHECK(titan["solve_ms"]["max"].get<double>() >= titan["solve_ms"]["mean"].get<double>());
  CHECK(titan["gap_max"].get<double>() >= 0);
  CHECK(titan["jct_better_share"].get<double>() > titan["jct_worse_share"].get<double>());
  CHECK(srtf["jct_better_share"] == 0.0);
  CHECK(srtf["jct_worse_share"] == 0.0);
  CHECK(srtf["solve_ms"].is_null());

  std::ifstream in{dir.path("out/jobs-titan.csv")};
  std::string line;
  std::getline(in, line);
  CHECK(line.ends_with(",nodes,reason,merged_with"));
  int merged = 0;
  while (std::getline(in, line)) merged += line.substr(line.rfind(',')).starts_with(",tune-");
  CHECK(merged == titan["merged_jobs"].get<int>());

  std::vector<std::string> table{"simulate"};
  table.insert(table.end(), words.begin(), words.end());
  const auto people = troupe::test::troupe(table);
  CHECK_THAT(people.out, Catch::Contains("merged jobs") && Catch::Contains("jobs against srtf") &&
                             Catch::Contains("10 % sooner"));
  table.insert(table.end(), {"--seeds", "1-2"});
  CHECK_THAT(troupe::test::troupe(table).out,
             Catch::Contains("merged jobs") && Catch::Contains("jobs against srtf"));
}

TEST_CASE("titan's options and measured rows change a simulation; bad ones are refused") {
  tuning_files files;
  const auto trace = files.dir().write("t.csv",
                                       "job_id,submit_s,duration_s,gpus,model,dataset_card\n"
                                       "a,0,1200,1,vit-large-16,x;y\nb,1,1200,1,vit-large-16,x;y\n"
                                       "c,2,1200,1,vit-large-16,x;y\n");
  const std::vector<std::string> on{"--cluster",  files.cluster(4), "--trace",  trace,
                                    "--workload", "titan",          "--policy", "titan,srtf"};
  const auto titan = [&](const std::vector<std::string>& more) {
    auto words = on;
    words.insert(words.end(), more.begin(), more.end());
    return simulated(words)["policies"][0];
  };
  const auto jct = [](const json& row) { return row["average_jct_s"].get<double>(); };
  const auto usual = titan({});
  CHECK(titan({"--policy-option", "titan.aging_s=14400"})["fingerprint"] == usual["fingerprint"]);
  CHECK(jct(titan({"--policy-option", "titan.start_s=1000"})) > jct(usual) + 500);
  // All GPUs for one job, or one for each.
  CHECK(jct(titan({"--policy-option", "titan.max_request_factor=1"})) > 1.1 * jct(usual));
  CHECK(titan({"--policy-option", "titan.similarity=1", "--policy-option",
               "titan.max_request_factor=1"})["fingerprint"] !=
        titan({"--policy-option", "titan.merge_exponent=1", "--policy-option",
               "titan.duration_ratio=1"})["fingerprint"]);
  const auto slow = files.table({{1, 64, 1e4}});
  CHECK(troupe::test::troupe({"check", slow}).out == slow + ": lookup-table of 1 row\n");
  CHECK(jct(titan({"--lut", slow})) > 10 * jct(usual));

  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--policy-option", "titan.duration_ratio=0.5"}, "found 0.5, expected a number from 1"},
      {{"--policy-option", "titan.max_nodes=1.5"}, "expected a whole number"},
      {{"--policy-option", "titan.age=1"}, "titan has no option 'age'; it has aging_s, lead"},
      {{"--policy-option", "titan-no-merger.gap=1"}, "titan-no-merger is not among the policies"},
      {{"--against", "sia"}, "--against: found 'sia', expected one of the policies: titan, srtf"},
      {{"--lut", trace}, "t.csv"},
  };
  for (const auto& [more, words] : cases) {
    std::vector<std::string> line{"simulate"};
    line.insert(line.end(), on.begin(), on.end());
    line.insert(line.end(), more.begin(), more.end());
    const auto r = troupe::test::troupe(line);
    INFO(words << "\n" << r.err);
    CHECK(r.status == 2);
    CHECK(r.err.find(words) != std::string::npos);
  }
  const auto without = troupe::test::troupe({"simulate", "--cluster", files.cluster(4), "--trace",
                                             trace, "--policy", "srtf,fcfs", "--lut", slow});
  CHECK(without.status == 2);
  CHECK(without.err.find("--lut: found the policies srtf, fcfs, expected one of titan") !=
        std::string::npos);
}

TEST_CASE("an iteration of merged trainings fills and drains their pipeline once") {
  const scratch dir;
  const auto study = [&](const std::string& name, int stages, int microbatches) {
    return dir.write(
        name + ".yaml",
        fmt::format("name: {}\nslots: {{forward: 1, recompute: 0, backward: 2, lan: 0, "
                    "wan: 0}}\niterations: 2\npipeline: {{stages: {}, data_parallel: "
                    "1, microbatches: {}, recompute: false}}\n",
                    name, stages, microbatches));
  };
  const auto slots = [](std::vector<std::string> words) {
    words.insert(words.begin(), "train");
    for (const auto* more : {"--schedule", "gpipe", "--json"}) words.emplace_back(more);
    const auto r = troupe::test::troupe(words);
    INFO(r.err);
    REQUIRE(r.status == 0);
    return r.document().at("slots").get<double>();
  };
  for (const int stages : {1, 2, 4})
    for (const int microbatches : {1, 3}) {
      CAPTURE(stages, microbatches);
      const auto a = study("a", stages, microbatches), b = study("b", stages, microbatches),
                 c = study("c", stages, microbatches);
      CHECK(slots({a}) == (microbatches + stages - 1) * 3);
      CHECK(slots({a, b, c, "--merge", "adapters"}) == (3 * microbatches + stages - 1) * 3);
    }
}

TEST_CASE("trainings of different shapes are not merged, and none without being asked to") {
  const scratch dir;
  const auto study = [&](int stages) {
    return dir.write(fmt::format("s{}.yaml", stages),
                     fmt::format("name: s{}\nslots: {{forward: 1}}\npipeline: {{stages: {}, "
                                 "microbatches: 2}}\n",
                                 stages, stages));
  };
  const auto two = study(2), three = study(3);
  const auto refused = troupe::test::troupe({"train", two, three, "--merge", "adapters"});
  CHECK(refused.status == 2);
  CHECK(refused.err.find("differ in `pipeline`") != std::string::npos);
  CHECK(troupe::test::troupe({"train", two, two}).status == 2);
}
