#include <catch2/catch.hpp>

#include <fstream>

#include "cli/program.hpp"

// `troupe estimate` of programs that are described by their job files.

using namespace troupe::test;
using nlohmann::json;

namespace {

/// Two nodes of four A100, over 8 Gbit/s.
json estimate_of(const std::string& keys, const std::vector<std::string>& more) {
  const scratch dir;
  const std::string job = dir / "job.yaml", cluster = dir / "cluster.yaml";
  std::ofstream{job} << "name: p\nmodel: gpt2-2.7b\nglobal_batch: 64\niterations: 1\n"
                     << "microbatches: 8\n"
                     << keys;
  std::ofstream{cluster} << "name: two\ndatacenters:\n  - name: here\n    nodes:\n"
                         << "      - {name: n, gpu: A100-40GB, gpus: 4, count: 2, intra: nvlink, "
                         << "inter: {gbps: 8, latency_us: 5}}\n";
  std::vector<std::string> all{"estimate", job, "--cluster", cluster, "--json"};
  all.insert(all.end(), more.begin(), more.end());
  const auto r = troupe::test::troupe(all);
  INFO(r.out << r.err);
  REQUIRE_FALSE(r.out.empty());
  return r.document();
}

const std::vector<std::string> two_stages{
    "--stages", "A100-40GB:16,A100-40GB:16", "--data-parallel", "2", "--tensor-parallel", "2"};

}  // namespace

TEST_CASE("estimate counts precision, ZeRO, checkpointing and kernels in a program's stages") {
  const auto memory = [](const std::string& keys) {
    return estimate_of(keys, two_stages)["stages"][0]["memory_bytes"].get<double>();
  };
  const auto time = [](const std::string& keys) {
    return estimate_of(keys, two_stages)["iteration_s"].get<double>();
  };
  const std::string mixed = "precision: mixed\n";
  CHECK(memory(mixed + "zero: 1\n") < 0.95 * memory(mixed));
  CHECK(memory("precision: fp32\n") > memory(mixed));
  CHECK(memory(mixed + "activation_checkpointing: full\n") < memory(mixed));
  CHECK(time(mixed + "activation_checkpointing: full\n") > 1.025 * time(mixed));
  CHECK(memory(mixed + "kernels: flash\n") < memory(mixed + "kernels: sdpa\n"));
  CHECK(memory(mixed + "kernels: sdpa\n") < memory(mixed));
  CHECK(time(mixed + "kernels: flash\n") < time(mixed + "kernels: sdpa\n"));
}

TEST_CASE("estimate gives the closed form of interleaved stages") {
  const auto one = estimate_of("precision: mixed\n", two_stages);
  const auto two = estimate_of("precision: mixed\npipeline: {virtual_stages: 2}\n", two_stages);
  CHECK(two["iteration_s"] == two["closed_form_s"]);
  CHECK(two["iteration_s"] != one["closed_form_s"]);
}

TEST_CASE("replicas of a program's only stage are estimated as replicas without stages") {
  const std::vector<std::string> one_stage{"--stages", "A100-40GB:32", "--data-parallel", "8"};
  const auto program = estimate_of("zero: 3\nkernels: flash\nmicro_batch: 1\n", one_stage);
  CHECK(program["pipeline_s"] == 0);
  // In each of 8 micro-batches eight GPUs send 1.5 times 2 bytes a parameter, twice, over 1 GB/s.
  const double sums_s = 2 * 7.0 / 8 * 1.5 * 2 * 2.65e9 / 1e9;
  CHECK(program["iteration_s"].get<double>() == Approx(8 * sums_s).epsilon(0.02));
  CHECK(program["schedule"] == "megatron");
}

TEST_CASE(
    "estimate counts groups of pipelines that divide each sequence, and says when they overlap") {
  const std::vector<std::string> stages{"--stages", "A100-40GB:16,A100-40GB:16",
                                        "--tensor-parallel", "2"};
  const auto alone = estimate_of("precision: mixed\nkernels: flash\n", stages);
  const auto shared =
      estimate_of("precision: mixed\nkernels: flash\npipeline: {context_parallel: 2}\n", stages);
  CHECK(shared["data_parallel"] == 1);
  CHECK(shared["context_parallel"] == 2);
  CHECK(shared["stages"][0]["nodes"].size() == 2);
  CHECK(shared["microbatches"] == alone["microbatches"]);
  CHECK(shared["stages"][0]["forward_s"].get<double>() <
        0.7 * alone["stages"][0]["forward_s"].get<double>());
  CHECK(shared["stages"][0]["memory_bytes"].get<double>() <
        alone["stages"][0]["memory_bytes"].get<double>());
  const auto beside = estimate_of(
      "precision: mixed\nkernels: flash\npipeline: {context_parallel: 2, overlap: true}\n", stages);
  CHECK(beside["iteration_s"].get<double>() < shared["iteration_s"].get<double>());
  CHECK(beside["iteration_s"] == beside["closed_form_s"]);
}

TEST_CASE("stages of a job without a trainer send as a program's do, not while they compute") {
  const std::vector<std::string> stages{"--stages", "A100-40GB:16,A100-40GB:16"};
  const auto of = [&](const std::string& keys) { return estimate_of(keys, stages); };
  const std::string cut = "pipeline: {recompute: false}\n";
  const auto described = of(cut), declared = of(cut + "precision: mixed\n");
  CHECK(described["schedule"] == "megatron");
  CHECK(described["iteration_s"] == declared["iteration_s"]);
  // The built-in trainer's messages are on their way while its stages compute.
  const auto trained = of(cut + "train: {device: sim, schedule: megatron}\n");
  constexpr double launch_s = 70e-6;
  const auto forward_s = [](const json& e) { return e["stages"][0]["forward_s"].get<double>(); };
  CHECK(forward_s(described) - forward_s(trained) > launch_s);
  CHECK(described["iteration_s"].get<double>() > trained["iteration_s"].get<double>());
}

TEST_CASE("an only stage that GPUs share is estimated with and without memory keys alike") {
  const std::vector<std::string> shared{"--stages", "A100-40GB:32",      "--data-parallel",
                                        "2",        "--tensor-parallel", "4"};
  const std::string cut = "pipeline: {recompute: false}\n";
  CHECK(estimate_of(cut, shared)["iteration_s"] ==
        estimate_of(cut + "precision: mixed\n", shared)["iteration_s"]);
}

TEST_CASE("estimate times groups of pipelines from a file, and shows each with its stages") {
  const scratch dir;
  const std::string job = dir / "job.yaml", cluster = dir / "cluster.yaml",
                    groups = dir / "groups.json";
  std::ofstream{job} << "name: p\nmodel: gpt2-124m\nglobal_batch: 10\niterations: 1\n"
                     << "train: {data: none, schedule: megatron}\n";
  const auto write_cluster = [&](const std::string& price) {
    std::ofstream{cluster}
        << "name: two\ndatacenters:\n"
        << "  - name: west\n    nodes: [{name: w, gpu: A100-40GB, gpus: 2, intra: pcie4, inter: "
           "eth100}]\n"
        << "  - name: north\n    nodes: [{name: n, gpu: A40, gpus: 4, intra: pcie4, inter: "
           "eth100}]\n"
        << "wan: [{between: [west, north], rtt_ms: 20, node_gbps: 2, connection_gbps: 2" << price
        << "}]\n";
  };
  write_cluster("");
  const auto stages = [](const std::string& gpu, const std::string& place) {
    const auto one = R"({"gpu": ")" + gpu + R"(", "pieces": 12, "datacenter": ")" + place + R"("})";
    return "[" + one + ", " + one + "]";
  };
  std::ofstream{groups} << R"({"rows_per_microbatch": 2, "groups": [)"
                        << R"({"pipelines": 1, "microbatches": 3, "stages": )"
                        << stages("A100-40GB", "west")
                        << R"(}, {"pipelines": 2, "microbatches": 1, "stages": )"
                        << stages("A40", "north") << "}]}";
  const std::vector<std::string> arguments{"estimate", job,        "--cluster",
                                           cluster,    "--groups", groups};
  auto with_json = arguments;
  with_json.emplace_back("--json");
  const auto r = troupe::test::troupe(with_json);
  INFO(r.out << r.err);
  REQUIRE_FALSE(r.out.empty());
  const auto d = r.document();
  CHECK(d["data_parallel"] == 3);
  REQUIRE(d["groups"].size() == 2);
  CHECK(d["groups"][1]["pipelines"] == 2);
  CHECK(d["groups"][1]["stages"][0]["gpu"] == "A40");
  CHECK(d["groups"][1]["stages"][1]["datacenter"] == "north");
  CHECK(d["groups"][1]["stages"][1]["nodes"].size() == 2);
  CHECK(d["stages"] == d["groups"][0]["stages"]);
  CHECK(d["iteration_s"].get<double>() > 2 * 0.010);
  const auto shown = troupe::test::troupe(arguments);
  CHECK(shown.out.find("2 pipelines, 1 micro-batch each") != std::string::npos);
  CHECK(shown.out.find("north") != std::string::npos);
  // Sums cross once in each direction; they cost what the cluster file says.
  CHECK(shown.out.find("between datacenters, which is not priced") != std::string::npos);
  CHECK(d["traffic_is_priced"] == false);
  CHECK(d["traffic_per_iteration"] == 0);
  REQUIRE(d["traffic"].size() == 2);
  CHECK(d["traffic"][0]["from"] == "west");
  CHECK(d["traffic"][0]["bytes"] == d["traffic"][1]["bytes"]);
  write_cluster(", price_per_gb: 0.5, price_per_gb_back: 0.25");
  const auto priced = troupe::test::troupe(with_json).document();
  CHECK(priced["traffic"] == d["traffic"]);
  CHECK(priced["traffic_per_iteration"].get<double>() ==
        Approx(0.75e-9 * d["traffic"][0]["bytes"].get<double>()));
  CHECK(priced["cost_per_iteration"].get<double>() ==
        Approx(d["cost_per_iteration"].get<double>() +
               priced["traffic_per_iteration"].get<double>()));
  CHECK(troupe::test::troupe({"check", cluster}).out.find("priced traffic") != std::string::npos);
  auto both = arguments;
  both.insert(both.end(), {"--stages", "A40:12"});
  CHECK(troupe::test::troupe(both).err.find("--groups") != std::string::npos);
}
