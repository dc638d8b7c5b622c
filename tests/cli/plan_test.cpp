#include <catch2/catch.hpp>

#include "cli/program.hpp"

using namespace troupe::test;
using nlohmann::json;

namespace {

// The example of Frenzy's paper: GPT2-7B at batch 2 on nodes of four A100-40GB.
const char* const paper_cluster = R"(
name: paper
datacenters:
  - name: dc1
    nodes:
      - {name: a, gpu: A100-40GB, gpus: 4, count: 2, intra: nvlink, inter: ib100}
)";

const char* const small_cluster = R"(
name: small
datacenters:
  - name: dc1
    nodes:
      - {name: t, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}
)";

json find_plan(const json& plans, int data, int tensor) {
  for (const auto& p : plans)
    if (p["data_parallel"] == data && p["tensor_parallel"] == tensor) return p;
  return {};
}

}  // namespace

TEST_CASE("plan gives the paper's eight GPUs for GPT2-7B at batch 2, and its bytes") {
  const scratch dir;
  const auto cluster = dir.write("paper.yaml", paper_cluster);
  const auto r = troupe::test::troupe(
      {"plan", shipped("jobs/gpt2-7b.yaml"), "--cluster", cluster, "--policy", "frenzy", "--json"});
  REQUIRE(r.status == 0);
  const auto d = r.document();
  CHECK(d["policy"] == "frenzy");
  CHECK(d["job"] == "gpt2-7b");
  CHECK(d["feasible"] == true);
  CHECK(d["reason"].is_null());
  const auto chosen = d["plans"][d["chosen"].get<std::size_t>()];
  CHECK(chosen["data_parallel"] == 2);
  CHECK(chosen["tensor_parallel"] == 4);
  CHECK(chosen["gpus"] == 8);
  CHECK(chosen["bytes_per_gpu"].get<double>() / 1e9 == Approx(36.74).margin(0.005));
  CHECK(chosen["samples_per_s"].get<double>() > 0);
  CHECK(chosen["gpu_types"] == json{"A100-40GB"});
  CHECK(find_plan(d["plans"], 1, 4).is_null());  // 40.23 GB do not fit 40
  std::uint32_t gpus = 0;
  for (const auto& share : d["allocation"]) {
    CHECK(share["gpu"] == "A100-40GB");
    gpus += share["gpus"].get<std::uint32_t>();
  }
  CHECK(gpus == 8);
}

TEST_CASE("plan gives 40.23 GB for 1-way data and 4-way tensor parallelism where that fits") {
  const auto r = troupe::test::troupe({"plan", shipped("jobs/gpt2-7b.yaml"), "--cluster",
                                       shipped("clusters/frenzy-testbed.yaml"), "--json"});
  REQUIRE(r.status == 0);
  const auto p = find_plan(r.document()["plans"], 1, 4);
  REQUIRE_FALSE(p.is_null());
  CHECK(p["bytes_per_gpu"].get<double>() / 1e9 == Approx(40.23).margin(0.005));
}

TEST_CASE("plan of a training on device cuda has the engine's memory, and MARP's beside it") {
  const scratch dir;
  const auto planned = [&](const std::string& device, bool as_json) {
    const auto job =
        dir.write("job.yaml",
                  "name: on-gpu\nmodel: gpt2-124m\nglobal_batch: 16\niterations: 10\n"
                  "train: {data: text, device: " +
                      device + "}\npipeline: {stages: 1, data_parallel: 1, microbatches: 1}\n");
    std::vector<std::string> line{"plan", job, "--cluster",
                                  shipped("clusters/frenzy-testbed.yaml")};
    if (as_json) line.push_back("--json");
    const auto r = troupe::test::troupe(line);
    REQUIRE(r.status == 0);
    return r;
  };
  const auto p = planned("cuda", true).document()["plan"];
  CHECK(p["bytes_per_gpu"].get<double>() / 1e9 == Approx(9.81 + 1.41).margin(0.01));
  CHECK(p["marp_bytes_per_gpu"].get<double>() / 1e9 == Approx(19.73).margin(0.005));
  CHECK(planned("cuda", false).out.find("MARP's formula predicts 19.73 GB/GPU") !=
        std::string::npos);
  const auto other = planned("cpu", true).document()["plan"];
  CHECK(other["bytes_per_gpu"].get<double>() / 1e9 == Approx(19.73).margin(0.005));
  CHECK(other["marp_bytes_per_gpu"].is_null());
  CHECK(planned("cpu", false).out.find("MARP") == std::string::npos);
}

TEST_CASE("plan refuses a job that no GPU of the cluster can hold, with the reason") {
  const scratch dir;
  const auto cluster = dir.write("small.yaml", small_cluster);
  const auto job = shipped("jobs/gpt2-7b.yaml");
  const auto people = troupe::test::troupe({"plan", job, "--cluster", cluster});
  CHECK(people.status == 1);
  CHECK(people.err.find("GB") != std::string::npos);
  const auto programs = troupe::test::troupe({"plan", job, "--cluster", cluster, "--json"});
  CHECK(programs.status == 1);
  const auto d = programs.document();
  CHECK(d["feasible"] == false);
  CHECK(d["chosen"].is_null());
  CHECK(d["allocation"].empty());
  CHECK(people.err == "troupe: " + d["reason"].get<std::string>() + "\n");
}

TEST_CASE("plan for a baseline warns that its choice would run out of memory") {
  const auto r =
      troupe::test::troupe({"plan", shipped("jobs/gpt2-7b.yaml"), "--cluster",
                            shipped("clusters/frenzy-testbed.yaml"), "--policy", "fcfs", "--json"});
  CHECK(r.status == 1);
  CHECK(r.document()["feasible"] == false);
  CHECK(r.err.find("out of memory") != std::string::npos);
}

TEST_CASE("plan ranks an elastic program by its job file's rates, and by GPU types it may have") {
  const scratch where;
  const auto plan_of = [&](const std::string& elastic) {
    const auto job = where.write("job.yaml",
                                 "name: one\nmodel: gpt2-350m\nglobal_batch: 8\niterations: 9\n"
                                 "command: [\"true\"]\nelastic: " +
                                     elastic);
    return troupe::test::troupe(
        {"plan", job, "--cluster", shipped("clusters/demo.yaml"), "--policy", "frenzy", "--json"});
  };
  const auto r = plan_of("{rates: [{gpu: V100-32GB, gpus: 1, samples_per_s: 400}]}\n");
  INFO(r.out << r.err);
  REQUIRE(r.status == 0);
  const auto d = r.document();
  for (const auto& p : d["plans"]) CHECK(p["gpu_types"].size() == 1);
  const auto known = std::ranges::find_if(d["plans"], [](const json& p) {
    return p["gpus"] == 1 && p["gpu_types"] == json::array({"V100-32GB"});
  });
  REQUIRE(known != d["plans"].end());
  CHECK((*known)["samples_per_s"] == 400);
  const auto v100 = plan_of(
                        "{types: [V100-32GB], rates: [{gpu: V100-32GB, gpus: 1, "
                        "samples_per_s: 400}]}\n")
                        .document();
  for (const auto& p : v100["plans"]) CHECK(p["gpu_types"] == json::array({"V100-32GB"}));
  CHECK(v100["allocation"][0]["node"] == "e2");
  CHECK(v100["estimate"]["samples_per_s"] == 400);
  CHECK(v100["estimate"]["iteration_s"] == 0.02);
  const auto none = plan_of("{gpus: [20, 24]}\n");
  CHECK(none.status == 1);
  CHECK_THAT(none.document()["reason"].get<std::string>(),
             Catch::Contains("`elastic` allows none"));
  CHECK(plan_of("{types: [T4, A30]}\n").document()["reason"] ==
        "the cluster has no T4, A30 (elastic.types); it has A100-40GB, A100-80GB, V100-32GB, "
        "RTX2080Ti");
}

TEST_CASE("without --json, plan prints a table, and nothing on standard error") {
  const auto r = troupe::test::troupe(
      {"plan", shipped("jobs/gpt2-7b.yaml"), "--cluster", shipped("clusters/frenzy-testbed.yaml")});
  CHECK(r.status == 0);
  CHECK(r.out.find("36.74") != std::string::npos);
  CHECK(r.out.find("Runs on ") != std::string::npos);
  CHECK(r.err.empty());
}

TEST_CASE("bad usage has exit status 2 and names the closest known word") {
  const auto job = shipped("jobs/gpt2-7b.yaml");
  const auto cluster = shipped("clusters/frenzy-testbed.yaml");
  const auto verb = troupe::test::troupe({"plam"});
  CHECK(verb.status == 2);
  CHECK(verb.err == "troupe: unknown verb 'plam'; did you mean 'plan'?\n");
  // Other schedulers' commands have no close word here.
  for (const auto& [word, here] : {std::pair{"scancel", "troupe cancel"},
                                   {"sbatch", "troupe submit"},
                                   {"squeue", "troupe queue"},
                                   {"hold", "troupe suspend"}}) {
    const auto other = troupe::test::troupe({word});
    CHECK(other.status == 2);
    CHECK_THAT(other.err, Catch::Contains(here));
  }
  const auto policy =
      troupe::test::troupe({"plan", job, "--cluster", cluster, "--policy", "frenzi"});
  CHECK(policy.status == 2);
  CHECK(policy.err.starts_with("troupe: no policy 'frenzi'; did you mean 'frenzy'?"));
  CHECK(troupe::test::troupe({}).status == 2);
  CHECK(troupe::test::troupe({"plan", job}).status == 2);
  CHECK(troupe::test::troupe({"plan", job, "--cluster", cluster, "--fast"}).status == 2);
  const auto as_json = troupe::test::troupe({"plan", "--json"});
  CHECK(as_json.status == 2);
  CHECK(as_json.document().contains("error"));
}

TEST_CASE("every verb has help") {
  const auto all = troupe::test::troupe({"--help"});
  CHECK(all.status == 0);
  for (const auto* verb :
       {"demo", "up", "submit", "queue", "status", "explain", "logs", "cancel", "plan", "whatif",
        "simulate", "check", "controller", "gateway", "node"}) {
    CHECK(all.out.find(verb) != std::string::npos);
    const auto r = troupe::test::troupe({verb, "--help"});
    CHECK(r.status == 0);
    CHECK(r.out.find("--json") != std::string::npos);
  }
}

TEST_CASE("check says what a job's work is") {
  const auto says = [](const std::string& job) {
    return troupe::test::troupe({"check", shipped("jobs/" + job)}).out;
  };
  CHECK(says("hello.yaml").find("runs ") != std::string::npos);
  CHECK(says("train-two-stages.yaml").find("a training") != std::string::npos);
  CHECK(says("figure6.yaml").find("in slots") != std::string::npos);
  CHECK(says("gpt2-7b.yaml").find("simulated work") != std::string::npos);
}

TEST_CASE("check names the kind of every shipped file") {
  const auto r = troupe::test::troupe({"check", shipped("gpus.yaml"), shipped("jobs/gpt2-7b.yaml"),
                                       shipped("models/gpt2-7b.yaml"),
                                       shipped("clusters/frenzy-testbed.yaml"), "--json"});
  REQUIRE(r.status == 0);
  const auto files = r.document()["files"];
  REQUIRE(files.size() == 4);
  CHECK(files[0]["kind"] == "catalogue");
  CHECK(files[1]["kind"] == "job");
  CHECK(files[2]["kind"] == "model");
  CHECK(files[3]["kind"] == "cluster");
  for (const auto& f : files) CHECK(f["valid"] == true);
}

TEST_CASE("check continues after a bad file and exits with 2") {
  const scratch dir;
  const auto bad = dir.write("bad.yaml", "name: x\nglobal_batch: 2\n");
  const auto r = troupe::test::troupe({"check", bad, shipped("jobs/gpt2-7b.yaml"), "--json"});
  CHECK(r.status == 2);
  const auto files = r.document()["files"];
  CHECK(files[0]["valid"] == false);
  CHECK(files[0]["error"].get<std::string>().find("bad.yaml") != std::string::npos);
  CHECK(files[1]["valid"] == true);
}

TEST_CASE("a plan of stages of several GPU types is feasible where each stage fits its own type") {
  for (const char* policy : {"troupe", "frenzy"}) {
    const auto r =
        troupe::test::troupe({"plan", shipped("jobs/llama-7b-slo.yaml"), "--cluster",
                              shipped("clusters/espresso.yaml"), "--policy", policy, "--json"});
    INFO(policy << ": " << r.out << r.err);
    CHECK(r.status == 0);
    CHECK(r.document()["feasible"] == true);
  }
}

TEST_CASE("plan says one speed and one price of the plan that it would run") {
  const scratch dir;
  // Pipelines, whose schedule is simulated once they are placed; and two types, of which one is
  // slower.
  const auto cluster = dir.write("mixed.yaml", R"(
name: mixed
datacenters:
  - name: dc1
    nodes:
      - {name: a, gpu: A100-40GB, gpus: 4, count: 1, intra: nvlink, inter: ib100}
      - {name: v, gpu: V100-32GB, gpus: 4, count: 1, intra: nvlink, inter: ib100}
)");
  for (const std::string keys : {"", "objective: fastest\n", "pipeline: {stages: 2}\n"}) {
    INFO(keys);
    const auto job = dir.write(
        "job.yaml", "name: j\nmodel: gpt2-350m\nglobal_batch: 16\niterations: 10\n" + keys);
    for (const std::string policy : {"frenzy", "troupe"}) {
      const auto d =
          troupe::test::troupe({"plan", job, "--cluster", cluster, "--policy", policy, "--json"})
              .document();
      REQUIRE(d["feasible"] == true);
      for (const std::string key : {"samples_per_s", "cost_per_hour"}) {
        CHECK(d["plan"][key] == d["estimate"][key]);
        if (!d["chosen"].is_null())
          CHECK(d["plans"][d["chosen"].get<std::size_t>()][key] == d["estimate"][key]);
      }
    }
  }
}

TEST_CASE("plan shows the micro-batches of a job whose batch does not fit at once") {
  const scratch dir;
  const auto cluster = dir.write("paper.yaml", paper_cluster);
  const auto plan_of = [&](const std::string& keys, const std::vector<std::string>& more) {
    const auto job = dir.write(
        "job.yaml", "name: j\nmodel: gpt2-2.7b\nglobal_batch: 512\niterations: 10\n" + keys);
    std::vector<std::string> all{"plan", job, "--cluster", cluster};
    all.insert(all.end(), more.begin(), more.end());
    return troupe::test::troupe(all);
  };
  for (const std::string policy : {"frenzy", "troupe", "fcfs"}) {
    INFO(policy);
    const auto r = plan_of("precision: mixed\ngpus: 8\n", {"--policy", policy, "--json"});
    REQUIRE(r.status == 0);
    const auto p = r.document()["plan"];
    CHECK(p["data_parallel"].get<int>() * p["microbatches"].get<int>() *
              p["rows_per_microbatch"].get<int>() ==
          512);
  }
  const auto command = plan_of("command: [python3, train.py]\n", {"--policy", "frenzy"});
  CHECK(command.status == 1);
  CHECK(command.err.find("its batch of 512 is the reason: with ") != std::string::npos);
  // Where a policy starts a program that would run out of memory, it does not "run".
  const auto fcfs = plan_of("command: [python3, train.py]\ngpus: 1\n", {"--policy", "fcfs"});
  CHECK(fcfs.status == 1);
  CHECK(fcfs.out.find("Runs on ") == std::string::npos);
}

TEST_CASE("plan --space gives the space's best plan, with a bound, and refuses other spaces") {
  const scratch dir;
  const auto cluster = dir.write("two.yaml", R"(
name: two
datacenters:
  - name: dc1
    nodes:
      - {name: v, gpu: V100-16GB, gpus: 4, count: 4, intra: nvlink, inter: eth25}
      - {name: a, gpu: A100-40GB, gpus: 4, count: 2, intra: nvlink, inter: eth25}
)");
  const auto job =
      dir.write("job.yaml", "name: j\nmodel: gpt2-350m\nglobal_batch: 64\niterations: 10\n");
  const std::vector<std::string> asked{"plan",        job,       "--cluster",    cluster,
                                       "--objective", "fastest", "--time-limit", "0.1",
                                       "--json",      "--space"};
  const auto in = [&](const std::string& space) {
    auto words = asked;
    words.push_back(space);
    return troupe::test::troupe(words);
  };
  double alike_s = 0;
  for (const auto* space : {"alike", "full", "sailor"}) {
    const auto r = in(space);
    INFO(r.out << r.err);
    REQUIRE(r.status == 0);
    const auto d = r.document();
    CHECK(d["space"] == space);
    CHECK(d["plan"]["samples_per_s"].get<double>() ==
          Approx(d["estimate"]["samples_per_s"].get<double>()).epsilon(1e-9));
    CHECK(d["gap"].get<double>() >= 0);
    CHECK(d["gap"].get<double>() <= 1);
    CHECK(d["bound"].get<double>() <= d["estimate"]["closed_form_s"].get<double>());
    CHECK(d["search_cpu_s"].get<double>() > 0);
    CHECK(d["bound_cpu_s"].get<double>() > 0);
    std::uint32_t gpus = 0;
    for (const auto& share : d["allocation"]) gpus += share["gpus"].get<std::uint32_t>();
    CHECK(gpus == d["plan"]["gpus"]);
    const auto s = d["estimate"]["closed_form_s"].get<double>();
    if (alike_s == 0) alike_s = s;
    if (d["space"] == "full") CHECK(s <= alike_s * (1 + 1e-9));
  }
  const auto refused = in("wide");
  CHECK(refused.status == 2);
  CHECK(refused.document()["error"].get<std::string>().starts_with(
      "--space: found 'wide', expected one of full, alike"));
}

TEST_CASE("plan --space plans a training unless its job file fixes the cut") {
  const auto r =
      troupe::test::troupe({"plan", shipped("jobs/train-uneven.yaml"), "--cluster",
                            shipped("clusters/uneven.yaml"), "--space", "full", "--json"});
  CHECK(r.status == 1);
  CHECK(r.document()["reason"].get<std::string>().find("fixes cut, groups") != std::string::npos);
}

TEST_CASE("a plan of groups over datacenters has the same seconds when estimate reads it") {
  const scratch dir;
  const auto cluster = dir.write("three.yaml", R"(
name: three
datacenters:
  - name: north
    nodes:
      - {name: n, gpu: A100-40GB, gpus: 4, count: 1, intra: nvlink, inter: eth25}
  - name: south
    nodes:
      - {name: s, gpu: A100-40GB, gpus: 4, count: 2, intra: nvlink, inter: eth25}
  - name: west
    nodes:
      - {name: w, gpu: V100-16GB, gpus: 4, count: 3, intra: nvlink, inter: eth25}
wan:
  - {between: [north, south], rtt_ms: 1, node_gbps: 100, connection_gbps: 0}
  - {between: [north, west], rtt_ms: 30, node_gbps: 5, connection_gbps: 0}
  - {between: [south, west], rtt_ms: 30, node_gbps: 5, connection_gbps: 0}
)");
  const auto job =
      dir.write("job.yaml", "name: j\nmodel: gpt2-350m\nglobal_batch: 960\niterations: 10\n");
  for (const auto* space : {"alike", "full"}) {
    const auto r =
        troupe::test::troupe({"plan", job, "--cluster", cluster, "--objective", "fastest",
                              "--time-limit", "0.1", "--space", space, "--json"});
    INFO(r.out << r.err);
    REQUIRE(r.status == 0);
    const auto d = r.document();
    for (const auto& p : d["plans"]) {
      const auto file = dir.write("plan.json", p.dump());
      const auto again =
          troupe::test::troupe({"estimate", job, "--cluster", cluster, "--groups", file, "--json"});
      INFO(p.dump(1) << again.out << again.err);
      REQUIRE(again.status == 0);
      CHECK(again.document()["samples_per_s"].get<double>() ==
            Approx(p["samples_per_s"].get<double>()).epsilon(1e-9));
      CHECK(again.document()["cost_per_hour"].get<double>() ==
            Approx(p["cost_per_hour"].get<double>()).epsilon(1e-9));
    }
    REQUIRE(d["plan"].contains("groups"));
    std::uint32_t samples = 0;
    for (const auto& g : d["plan"]["groups"]) {
      samples += g["pipelines"].get<std::uint32_t>() * g["microbatches"].get<std::uint32_t>();
      for (const auto& s : g["stages"]) CHECK(s["datacenter"].is_string());
    }
    CHECK(samples * d["plan"]["rows_per_microbatch"].get<std::uint32_t>() == 960);
  }
  const auto shown = troupe::test::troupe({"plan", job, "--cluster", cluster, "--objective",
                                           "fastest", "--time-limit", "0.1", "--space", "alike"});
  CHECK(shown.out.find(" pipelines in ") != std::string::npos);
  CHECK(shown.out.find(" micro-batches each: A100-40GB x ") != std::string::npos);
}
