#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "harness/files.hpp"
#include "harness/source_dir.hpp"
#include "messages/domain/work_kind.hpp"

using namespace troupe;
using test::loaded;
using test::temporary;

namespace {
const std::string tiny =
    "{name: tiny, family: gpt, hidden: 8, layers: 2, heads: 2, sequence: 4, vocabulary: 16}";
}

TEST_CASE("a job has everything that its file says") {
  temporary("jobs/models/tiny.yaml", tiny);
  const auto job = loaded(formats::load_job(temporary("jobs/all.yaml", R"(
name: all
model: models/tiny.yaml
global_batch: 8
iterations: 100
microbatches: 4
slo_s: 5500
deadline_s: 3.5e3
budget: 12.5
priority: -3
gpus: 4
gpu_type: A40
dataset_card: [photo, animals]
merge: false
merge_kind: adapters
merge_across_owners: true
command: [sh, -c, "exit 0"]
environment: {A: "1", B_2: two}
working_directory: /srv/data
objective: cheapest
)")));
  CHECK(job.name == "all");
  CHECK(job.model.hidden == 8);
  CHECK(job.global_batch == 8);
  CHECK(job.iterations == 100);
  CHECK(job.microbatches == 4u);
  CHECK(job.limits.slo_s == 5500.0);
  CHECK(job.limits.deadline_s == 3500.0);
  CHECK(job.limits.budget == 12.5);
  CHECK(job.priority == -3);
  CHECK(job.request.gpus == 4);
  CHECK(job.request.type == "A40");
  CHECK(job.merging.dataset_card == std::vector<std::string>{"photo", "animals"});
  CHECK_FALSE(job.merging.allowed);
  CHECK(job.merging.kind == merge_kind::adapters);
  CHECK(job.merging.across_owners == true);
  CHECK(job.program.command == std::vector<std::string>{"sh", "-c", "exit 0"});
  CHECK(job.program.environment.at("B_2") == "two");
  CHECK(job.program.working_directory == "/srv/data");
  CHECK(job.objective == "cheapest");
}

TEST_CASE("a program's gpus are exact, other jobs' a bound, and max_gpus bounds both") {
  const auto load = [](const std::string& keys) {
    return formats::load_job(temporary("jobs/g.yaml", "name: j\n" + keys));
  };
  const std::string program = "command: [nvidia-smi]\n";
  const std::string simulated = "model: gpt2-124m\nglobal_batch: 8\niterations: 5\n";
  auto job = loaded(load(program));
  CHECK(facts_of(job).exact_gpus);
  CHECK(job.request.gpus == 1);
  CHECK(job.global_batch == 1);
  CHECK(job.assumed.model);
  CHECK(job.model == loaded(load(simulated)).model);
  CHECK(facts_of(job).has_known_memory);
  CHECK_FALSE(facts_of(job).has_known_length);

  job = loaded(load(program + "gpus: 6\n"));
  CHECK(job.request.exact);
  CHECK(job.request.gpus == 6);
  CHECK_FALSE(job.limits.max_gpus);
  CHECK_FALSE(facts_of(job).has_known_memory);
  CHECK(facts_of(loaded(load(program + "gpus: 6\nmemory_gb: 30\n"))).has_known_memory);
  CHECK(facts_of(loaded(load(program + "memory_gb: 30\n"))).exact_gpus);

  job = loaded(load(program + "model: gpt2-124m\nmax_gpus: 3\niterations: 7\n"));
  CHECK_FALSE(facts_of(job).exact_gpus);
  CHECK(job.limits.max_gpus == 3u);
  CHECK(facts_of(job).has_known_memory);
  CHECK(facts_of(job).has_known_length);

  job = loaded(load(simulated + "gpus: 4\n"));
  CHECK_FALSE(facts_of(job).exact_gpus);
  CHECK(job.limits.max_gpus == 4u);
  CHECK(loaded(load(simulated + "gpus: 2\nmax_gpus: 4\n")).limits.max_gpus == 2u);

  for (const auto& kind : {program, simulated}) {
    const auto bad = load(kind + "gpus: 4\nmax_gpus: 3\n");
    REQUIRE_FALSE(bad);
    CHECK_THAT(bad.error().text, Catch::Contains("gpus") &&
                                     Catch::Contains("found 4, expected at most max_gpus (3)"));
  }
}

TEST_CASE("a job's model may be inline, a shipped model's name, or a path in the shipped tree") {
  const std::string rest = "\nname: j\nglobal_batch: 2\niterations: 5\n";
  const auto with = [&](const std::string& m) {
    return loaded(formats::load_job(temporary("jobs/m.yaml", "model: " + m + rest))).model;
  };
  CHECK(with(tiny).layers == 2);
  CHECK(with("gpt2-7b").hidden == 4096);
  CHECK(with("configs/models/gpt2-7b.yaml") == with("gpt2-7b"));
}

TEST_CASE("the keys for a program's memory are read, and invalid ones are refused by their key") {
  const std::string rest = "name: j\nmodel: " + tiny + "\nglobal_batch: 2\niterations: 5\n";
  const auto load = [&](const std::string& keys) {
    return formats::load_job(temporary("jobs/memory.yaml", rest + keys));
  };
  CHECK_FALSE(loaded(load("")).memory);
  const auto o =
      *loaded(load("zero: 3\noptimizer: sgd\nprecision: bf16\nmicro_batch: 2\n"
                   "activation_checkpointing: full\nlora: {rank: 8, targets: attention}\n"))
           .memory;
  CHECK(o.zero == 3);
  CHECK(o.optimizer == "sgd");
  CHECK(o.precision == "bf16");
  CHECK(o.checkpointing == "full");
  CHECK(o.micro_batch == 2);
  CHECK(o.lora_rank == 8);
  CHECK(o.lora_targets == "attention");
  CHECK(loaded(load("fsdp: shard_grad_op\n")).memory->zero == 2);
  CHECK(loaded(load("memory_gb: 30\n")).memory->gb == 30);
  for (const std::string key : {"zero: 4", "optimizer: adamm", "precision: fp4", "memory_gb: 0",
                                "lora: {rank: 0}", "micro_batch: 0", "fsdp: full_shard\nzero: 1"}) {
    const auto bad = load(key + "\n");
    INFO(key);
    REQUIRE_FALSE(bad);
    CHECK(bad.error().text.find(key.substr(0, key.find(':'))) != std::string::npos);
  }
  CHECK(load("zero: 1\npipeline: {stages: 2}\n"));  // of a program's description
  CHECK_FALSE(load("zero: 1\ntrain: {data: t}\n"));
}

TEST_CASE("only a job with a command may omit iterations") {
  const std::string rest = "\nname: j\nglobal_batch: 2\nmodel: " + tiny + "\n";
  CHECK(loaded(formats::load_job(temporary("jobs/i.yaml", "command: [true]" + rest))).iterations ==
        1);
  const auto none = formats::load_job(temporary("jobs/i.yaml", rest));
  REQUIRE_FALSE(none);
  CHECK(none.error().text.ends_with("i.yaml:2: missing key 'iterations'"));
}

TEST_CASE("a training job has everything that its file says, with absolute paths") {
  const auto file =
      temporary("jobs/train.yaml", "name: j\nglobal_batch: 8\niterations: 5\nmodel: " + tiny + R"(
train:
  data: near.txt
  vocabulary: /v
  seed: 7
  learning_rate: 1e-3
  weight_decay: 0
  schedule: atlas
  checkpoint: saved/here
  checkpoint_every: 10
  device: cpu
  replan_every: 20
pipeline: {stages: 2, data_parallel: 2, microbatches: 4, stages_per_datacenter: 1, max_in_flight: 3,
           connections: 8, recompute: false}
)");
  temporary("jobs/near.txt", "text");
  const auto job = loaded(formats::load_job(file));
  const auto folder = std::filesystem::absolute(file).parent_path();
  REQUIRE(job.train);
  training want;
  want.data = (folder / "near.txt").string();
  want.vocabulary = "/v";
  want.seed = 7;
  want.learning_rate = 1e-3;
  want.weight_decay = 0;
  want.schedule = "atlas";
  want.checkpoint = (folder / "saved/here").string();
  want.checkpoint_every = 10;
  want.device = "cpu";
  want.replan_every = 20;
  CHECK(*job.train == want);
  CHECK(job.pipeline == pipeline_wish{2, 2, 4, 1, 3, 8, 0, false});
  CHECK(job.microbatches == 4u);
  CHECK_FALSE(job.slots);
}

TEST_CASE("recompute is true, false or layers, and a program's memory keys may go with stages") {
  const auto pipeline_of = [](const std::string& lines) {
    return loaded(formats::load_job(temporary(
                      "recompute.yaml",
                      "name: j\nmodel: gpt2-124m\nglobal_batch: 8\niterations: 1\n" + lines)))
        .pipeline;
  };
  CHECK(pipeline_of("pipeline: {recompute: true}\n") == pipeline_wish{});
  CHECK_FALSE(pipeline_of("pipeline: {recompute: false}\n").recompute);
  const auto layers = pipeline_of("pipeline: {recompute: layers}\nkernels: flash\n");
  CHECK((layers.recompute && recomputes_layers(layers)));
  CHECK(pipeline_of("precision: bf16\nzero: 1\nactivation_checkpointing: full\n"
                    "pipeline: {stages: 2, virtual_stages: 3}\n")
            .virtual_stages == 3);
  const auto described = loaded(formats::load_job(
      temporary("fp8.yaml",
                "name: j\nmodel: gpt2-124m\nglobal_batch: 8\niterations: 1\nprecision: fp8\n"
                "chunked_loss: true\n"
                "pipeline: {data_parallel: 4, context_parallel: 2, overlap: true}\n")));
  CHECK((is_fp8(*described.memory) && *described.memory->chunked_loss));
  CHECK(context_parallel_of(described.pipeline) == 2);
  CHECK(described.pipeline.overlap == true);
  CHECK(recomputes_layers(
      pipeline_of("train: {device: sim}\npipeline: {recompute: layers}\nkernels: sdpa\n")));
}

TEST_CASE("a cut is in layers or half layers, and sets the number of stages") {
  const auto job = loaded(formats::load_job(
      temporary("jobs/cut.yaml", "name: j\nglobal_batch: 8\niterations: 5\nmodel: " + tiny +
                                     "\npipeline: {cut: [0.5, 1.5]}\n")));
  CHECK(job.pipeline.stages == 2);
  CHECK(job.pipeline.cut == std::vector<std::uint32_t>{1, 3});
}

TEST_CASE("data is also looked for beside the job, and among the shipped data") {
  const auto with = [&](const std::string& data) {
    const auto file =
        temporary("jobs/data.yaml", "name: j\nglobal_batch: 8\niterations: 5\nmodel: " + tiny +
                                        "\ntrain: {data: " + data + "}\n");
    return loaded(formats::load_job(file)).train->data;
  };
  CHECK(with("later.txt").ends_with("jobs/later.txt"));
  CHECK(std::filesystem::path{with("later.txt")}.is_absolute());
  CHECK(with("configs/data/founding.txt") ==
        (std::filesystem::path{troupe::test::source_dir()} / "configs/data/founding.txt").string());
}

TEST_CASE("a pipeline study in slots needs no model, and a simulated device no data") {
  const auto job = loaded(formats::load_job(temporary("jobs/slots.yaml", R"(
name: study
slots: {wan: 3, lan: 0.5}
pipeline: {stages: 6, microbatches: 4}
)")));
  CHECK(job.slots == slot_costs{1, 1, 2, 0.5, 3});
  CHECK(job.iterations == 1);
  CHECK(job.pipeline.stages == 6);
  const auto sim = loaded(formats::load_job(
      temporary("jobs/sim.yaml",
                "name: s\nmodel: gpt-a\nglobal_batch: 4\niterations: 1\ntrain: {device: sim}\n")));
  CHECK(sim.train->data.empty());
}

TEST_CASE("a cluster file's links, settings and WAN are read completely") {
  const auto c = loaded(formats::load_cluster(temporary("c.yaml", R"(
name: two
controller: tcp://10.0.0.1:7000
datacenters:
  - name: a
    gateway: tcp://10.0.0.2:7001
    nodes:
      - {name: x, gpu: T4, gpus: 2, count: 2, intra: pcie3,
         inter: {gbps: 2.5, latency_us: 50}, address: [10.0.0.3, x1.example]}
      - {name: y, gpu: K80, gpus: 1, intra: pcie3, inter: eth10, address: 10.0.0.4}
  - name: b
    nodes: [{name: z, gpu: T4, gpus: 4, count: 1, intra: pcie4, inter: eth25, emulate_speed: 0.25}]
wan: [{between: [b, a], rtt_ms: 40, node_gbps: 5, connection_gbps: 0.293}]
settings: {heartbeat_s: 0.5, lease_s: 3, memory_headroom: 0.05}
gpus: {K80: {price_per_hour: 0.1, efficiency: 0.61, quota: 8}}
)")));
  CHECK(c.controller == "tcp://10.0.0.1:7000");
  CHECK(c.datacenters[0].gateway == "tcp://10.0.0.2:7001");
  REQUIRE(c.nodes.size() == 4);
  CHECK(c.nodes[1].name == "x-1");
  CHECK(c.nodes[1].address == "x1.example");
  CHECK(c.nodes[2].name == "y");
  CHECK(c.nodes[2].address == "10.0.0.4");
  CHECK(c.nodes[3].address.empty());
  CHECK(c.nodes[3].name == "z");
  CHECK(c.nodes[3].datacenter == 1);
  CHECK(c.nodes[3].gpu == 0);
  CHECK(c.nodes[3].emulate_speed == 0.25);
  CHECK(c.nodes[0].emulate_speed == 1);
  CHECK(c.nodes[0].inter == troupe::link{"", 2.5, 50});
  CHECK(c.gpus[1].price_per_hour == 0.1);
  CHECK(c.gpus[1].efficiency == 0.61);
  CHECK(c.gpus[1].quota == 8);
  CHECK(c.wan[0].a == 1);
  CHECK(c.wan[0].b == 0);
  CHECK(c.settings.heartbeat_s == 0.5);
  CHECK(c.settings.restart_s == 30);
}

TEST_CASE("a link's rates by size, by flow and by number of GPUs are read completely") {
  const auto c = loaded(formats::load_cluster(temporary("rates.yaml", R"(
name: rates
datacenters:
  - name: a
    nodes:
      - name: x
        gpu: T4
        gpus: 8
        intra: {gbps: 252, latency_us: 7, group_rates: [[2, 160, 2.5], [8, 12]]}
        inter: {latency_us: 50, rates: [[65536, 16.93], [131072, 22.76]], flow_gbps: 5}
  - name: b
    nodes: [{name: z, gpu: T4, gpus: 4, intra: pcie4, inter: eth25}]
wan:
  - between: [b, a]
    rtt_ms: 1
    node_gbps: 48
    connection_gbps: 0
    rates: [[65536, 18.37]]
    flow_rates: [[65536, 7.449], [131072, 7.866]]
)")));
  const auto& x = c.nodes[0];
  CHECK(x.intra.group_rates == std::vector<group_rate>{{2, 160, 2.5}, {8, 12, 7}});
  CHECK_FALSE(x.intra.has_rates());
  CHECK(x.inter.gbps == 22.76);  // of the fastest size, as it is not named
  CHECK(x.inter.rates == std::vector<link_rate>{{65536, 16.93}, {131072, 22.76}});
  CHECK(x.inter.flow_rates == std::vector<link_rate>{{1, 5}});
  CHECK(c.wan[0].rates == std::vector<link_rate>{{65536, 18.37}});
  CHECK(c.wan[0].flow_rates == std::vector<link_rate>{{65536, 7.449}, {131072, 7.866}});
  CHECK_FALSE(c.nodes[1].inter.has_rates());
}

TEST_CASE("a group's consecutive nodes share an NVLink domain, and no others do") {
  const auto c = loaded(formats::load_cluster(temporary("racks.yaml", R"(
name: racks
datacenters:
  - name: a
    nodes:
      - {name: x, gpu: GB200, gpus: 4, count: 3, intra: nvlink5, inter: ib400, nvlink_domain: 2}
      - {name: y, gpu: GB200, gpus: 4, intra: nvlink5, inter: ib400}
      - {name: z, gpu: GB200, gpus: 4, intra: nvlink5, inter: ib400, nvlink_domain: 2}
)")));
  std::vector<std::optional<std::uint32_t>> domains;
  for (const auto& n : c.nodes) domains.push_back(n.nvlink_domain);
  CHECK(domains == std::vector<std::optional<std::uint32_t>>{0, 0, 1, std::nullopt, 2});
}

TEST_CASE("a catalogue near the cluster file overrides the shipped one") {
  temporary("tree/gpus.yaml",
            "Mine: {memory_gb: 1, fp16_tflops: 1, fp32_tflops: 1, memory_gbytes_s: 1}");
  const auto file =
      temporary("tree/clusters/deep/c.yaml",
                "{name: c, datacenters: [{name: d, nodes: [{name: n, gpu: Mine, gpus: 1, "
                "intra: pcie3, inter: eth10}]}]}");
  const auto mine = loaded(formats::load_cluster(file)).gpus[0];
  CHECK(mine.efficiency == 0.45);
  CHECK(mine.fp32_efficiency == 0.75);
  CHECK(mine.tf32_tflops == 0);
  CHECK(mine.kernel_us == default_kernel_us);
}

TEST_CASE("a job may describe its program's kernels, and a GPU type its kernel losses") {
  const auto job = temporary("kernels.yaml",
                             "name: j\nmodel: gpt2-124m\nglobal_batch: 8\niterations: 1\n"
                             "kernels: flash\nprecision: tf32\n");
  const auto j = loaded(formats::load_job(job));
  CHECK(j.kernels == "flash");
  CHECK(j.memory->precision == "tf32");
  const auto gpus = temporary("kernel-gpus.yaml",
                              "X: {memory_gb: 1, fp16_tflops: 4, fp32_tflops: 1, tf32_tflops: 2, "
                              "memory_gbytes_s: 1, fp32_efficiency: 0.5, kernel_us: 0}");
  const auto x = loaded(formats::load_catalogue(gpus))[0];
  CHECK(x.tf32_tflops == 2);
  CHECK(x.fp32_efficiency == 0.5);
  CHECK(x.kernel_us == 0);
}

TEST_CASE("a fault scenario is read completely, and unknown hosts are refused by name") {
  const auto plan = loaded(formats::load_faults(temporary("f.yaml", R"(
name: f
from_s: 10
until_s: 20
loss: 0.5
partitions: [{a: [north], from_s: 1, until_s: 2}]
crashes: [{host: controller, at_s: 5, down_s: 1}]
slow_nodes: [{node: n7, factor: 2, from_s: 0, until_s: 9}]
)")));
  CHECK(plan.loss == 0.5);
  CHECK(plan.partitions[0].b.empty());
  CHECK(plan.slow_nodes[0].factor == 2);
  const auto demo = loaded(formats::load_cluster(std::filesystem::path{troupe::test::source_dir()} /
                                                 "configs/clusters/demo.yaml"));
  const auto checked = formats::check_faults(plan, demo, "f.yaml");
  REQUIRE_FALSE(checked);
  CHECK(checked.error().text.find(
            "slow_nodes[0].node: the cluster demo has no 'n7'; did you mean 'n1'?") !=
        std::string::npos);
}
