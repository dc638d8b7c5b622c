#include <catch2/catch.hpp>

#include <fstream>

#include "cli/program.hpp"

using namespace troupe::test;

TEST_CASE("whatif fills datacenters in order and names the best number of cells") {
  const auto r = troupe::test::troupe({"whatif", shipped("jobs/atlas-sixty.yaml"), "--cluster",
                                       shipped("clusters/atlas-sim.yaml"), "--json"});
  REQUIRE(r.status == 0);
  const auto d = r.document();
  CHECK(d["communication_to_compute"] == 2);
  CHECK(d["pipelines_per_cell"] == 2);
  REQUIRE(d["rows"].size() == 25);
  const auto& first = d["rows"][0];
  CHECK(first["dp_cells"] == 1);
  CHECK(first["data_parallel"] == 2);
  CHECK(first["partitions"]["dc1"] == 60);
  CHECK(first["gpus"] == 120);
  CHECK(first["pipeline_s"] == 414);
  CHECK(first["allreduce_s"] == 0);
  CHECK(first["throughput"].get<double>() == Approx(2 / 414.0));
  CHECK(first["cost_per_hour"].get<double>() > 0);
  CHECK(first["traffic_per_iteration"] == 0);
  CHECK(d["traffic_is_priced"] == false);
  // All GPUs, as the paper found; 425 slots is least progress first over five datacenters.
  CHECK(d["best"] == 25);
  CHECK(d["rows"][24]["iteration_s"] == 425);
  CHECK(d["rows"][24]["gpus"] == 3000);
  CHECK(d["simulated"] == true);
  CHECK(d["seconds"].get<double>() < 5);  // 0.1 on an idle machine
  CHECK(!d["orders"].empty());
}

TEST_CASE("whatif takes a model, an order of datacenters, and a batch shared by all pipelines") {
  const std::vector<std::string> base{"whatif", shipped("jobs/atlas-gpt-a.yaml"), "--cluster",
                                      shipped("clusters/atlas-testbed.yaml"), "--json"};
  const auto d = troupe::test::troupe(base).document();
  CHECK(d["stages"] == 6);
  CHECK(d["communication_to_compute"].get<double>() > 1);
  auto ordered = base;
  ordered.insert(ordered.end(), {"--order", "dc3,dc1,dc2"});
  CHECK(troupe::test::troupe(ordered).document()["order"] == nlohmann::json{"dc3", "dc1", "dc2"});
  auto fixed = base;
  fixed.push_back("--fixed-batch");
  const auto f = troupe::test::troupe(fixed);
  REQUIRE(f.status == 0);
  const auto document = f.document();
  for (const auto& row : document["rows"])
    CHECK(row["samples_per_s"].get<double>() * row["iteration_s"].get<double>() ==
          Approx(8));  // the job's global batch
}

TEST_CASE("whatif lists no numbers of pipelines that do not fit or divide the batch") {
  const scratch dir;
  const std::string job = dir / "job.yaml", cluster = dir / "cluster.yaml";
  std::ofstream{job} << "name: p\nmodel: gpt2-350m\nglobal_batch: 16\niterations: 1\n"
                     << "pipeline: {rows: 1}\n";
  std::ofstream{cluster} << "name: six\ndatacenters:\n  - name: here\n    nodes:\n"
                         << "      - {name: n, gpu: A100-40GB, gpus: 1, count: 6, intra: nvlink, "
                         << "inter: {gbps: 100, latency_us: 5}}\n";
  const std::vector<std::string> asked{"whatif",   job, "--cluster",    cluster,
                                       "--stages", "1", "--fixed-batch"};
  auto as_json = asked;
  as_json.push_back("--json");
  const auto d = troupe::test::troupe(as_json).document();
  std::vector<int> pipelines;
  for (const auto& row : d["rows"]) pipelines.push_back(row["data_parallel"].get<int>());
  CHECK(pipelines == std::vector{1, 2, 4});
  CHECK(d["rows_left_out"] == 3);
  const auto people = troupe::test::troupe(asked);
  CHECK(people.status == 0);
  CHECK(people.out.find("does not fit") == std::string::npos);
  CHECK(people.out.find("3 other numbers of cells do not fit the memory, or divide the batch") !=
        std::string::npos);
}

TEST_CASE("whatif prints a table, refuses with a reason, and names the closest datacenter") {
  const auto cluster = shipped("clusters/atlas-testbed.yaml");
  const auto people =
      troupe::test::troupe({"whatif", shipped("jobs/figure6.yaml"), "--cluster", cluster});
  CHECK(people.status == 0);
  CHECK(people.out.find("dc1 2, dc2 2, dc3 2") != std::string::npos);
  CHECK(people.out.find("Best: ") != std::string::npos);
  CHECK(people.err.empty());
  const auto no =
      troupe::test::troupe({"whatif", shipped("jobs/atlas-sixty.yaml"), "--cluster", cluster});
  CHECK(no.status == 1);
  CHECK(no.err.find("no pipeline of 60 stages fits on the 12 GPUs") != std::string::npos);
  const auto bad = troupe::test::troupe(
      {"whatif", shipped("jobs/figure6.yaml"), "--cluster", cluster, "--order", "dc1,dc9"});
  CHECK(bad.status == 2);
  CHECK(bad.err.find("no datacenter 'dc9'; did you mean 'dc1'?") != std::string::npos);
}
