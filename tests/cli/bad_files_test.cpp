#include <catch2/catch.hpp>

#include "cli/program.hpp"

using namespace troupe::test;

// Each bad file goes through `troupe plan` (as a job, or as its cluster) and through `troupe
// check`. Both must end with 2, and name the file, the line and what is wrong.

namespace {

struct sample {
  const char* what;
  std::string text;
  std::string place;    // what follows the file's name: ":3: global_batch", or ""
  std::string mention;  // text that the sentence must also contain
};

const std::string model_map =
    "model: {name: m, family: gpt, hidden: 64, layers: 2, heads: 4, sequence: 32, vocabulary: "
    "100}\n";

/// A job whose third line is this.
std::string job_with(const std::string& line) {
  return "name: j\n" + model_map + line + "\niterations: 1\n";
}

/// A cluster with these node groups from line 5 on.
std::string cluster_with(const std::string& nodes, const std::string& rest = {}) {
  return "name: c\ndatacenters:\n  - name: dc1\n    nodes:\n" + nodes + rest;
}

const std::string good_node = "      - {name: a, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}\n";

std::string deep(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']') + "\n";
}

const std::vector<sample> bad_jobs = {
    {"a negative number", job_with("global_batch: -2"), ":3: global_batch", "-2"},
    {"a huge number", job_with("global_batch: 99999999999999999999"), ":3: global_batch", "99999"},
    {"a fraction for a whole number", job_with("global_batch: 1.5"), ":3: global_batch", "1.5"},
    {"text for a number", job_with("global_batch: two"), ":3: global_batch", "two"},
    {"not a number at all", job_with("global_batch: 1\nslo_s: .nan"), ":4: slo_s", "nan"},
    {"an unknown key", job_with("globl_batch: 2"), ":3", "'globl_batch'"},
    {"an unknown key that is not needed", job_with("global_batch: 1\niteratons: 2"), ":4",
     "did you mean 'iterations'"},
    {"a command without words", job_with("global_batch: 1\ncommand: []"), ":4: command",
     "empty list"},
    {"a duplicate key", job_with("global_batch: 2\nglobal_batch: 4"), ":4", "global_batch"},
    {"a key that is missing", "name: j\nglobal_batch: 2\n", "", "model"},
    {"a model file that is not there", "name: j\nmodel: nowhere.yaml\nglobal_batch: 2\n",
     ":2: model", "nowhere.yaml"},
    {"an unknown GPU", job_with("global_batch: 1\ngpu_type: A100-40G"), ":4: gpu_type",
     "did you mean 'A100-40GB'"},
    {"an unknown word", job_with("global_batch: 1\nobjective: fast"), ":4: objective", "fastest"},
    {"heads that do not divide",
     "name: j\nmodel: {name: m, family: gpt, hidden: 64, layers: 2, heads: 5, sequence: 32, "
     "vocabulary: 9}\nglobal_batch: 1\n",
     ":2: model", "heads"},
    {"a list for a map", "- name: j\n- global_batch: 2\n", ":1", "list"},
    {"broken YAML", "name: [j\nglobal_batch: 2\n", ":", "YAML"},
    {"two documents", job_with("global_batch: 1") + "---\nname: k\n", ":", "document"},
    {"aliases that multiply", "name: &a [x, x]\nmodel: [*a, *a]\nglobal_batch: 1\n", ":1", ""},
    {"nesting without end", deep(5000), ":1", "deep"},
    {"binary",
     std::string{"\x7f"
                 "ELF\x02\x01\x00\x00\xff\xfe\x00",
                 11},
     "", "text"},
    {"an empty file", "", "", "empty"},
};

const std::vector<sample> bad_clusters = {
    {"an unknown GPU",
     cluster_with("      - {name: a, gpu: A100-40G, gpus: 1, intra: pcie3, inter: "
                  "eth10}\n"),
     ":5: datacenters[0].nodes[0].gpu", "did you mean 'A100-40GB'"},
    {"an unknown link",
     cluster_with("      - {name: a, gpu: T4, gpus: 1, intra: pcie9, inter: "
                  "eth10}\n"),
     ":5: datacenters[0].nodes[0].intra", "pcie9"},
    {"a duplicate name", cluster_with(good_node + good_node), ":6: datacenters[0].nodes[1]", "'a'"},
    {"a node without GPUs",
     cluster_with("      - {name: a, gpu: T4, gpus: 0, intra: pcie3, inter: "
                  "eth10}\n"),
     ":5: datacenters[0].nodes[0].gpus", "0"},
    {"a datacenter without nodes", "name: c\ndatacenters:\n  - {name: dc1, nodes: []}\n",
     ":3: datacenters[0].nodes", ""},
    {"a WAN to nowhere",
     cluster_with(good_node,
                  "wan:\n  - {between: [dc1, dc9], rtt_ms: 1, node_gbps: 1, connection_gbps: 1}\n"),
     ":7: wan[0].between", "dc9"},
    {"a misspelled key", "name: c\ndatacentres: []\n", ":2", "'datacenters'"},
};

void must_refuse(const sample& s, const std::string& file,
                 const std::vector<std::string>& command) {
  const auto r = troupe::test::troupe(command);
  INFO(s.what << ": " << command[0] << " said: " << r.err << r.out);
  CHECK(r.status == 2);
  CHECK(r.out.empty());
  CHECK(r.err.find(file + s.place) != std::string::npos);
  CHECK(r.err.find(s.mention) != std::string::npos);
  CHECK(r.err.find('\n') == r.err.size() - 1);  // one sentence
}

}  // namespace

TEST_CASE("every kind of bad job file is refused with file, place and reason") {
  const scratch dir;
  for (const auto& s : bad_jobs) {
    const auto file = dir.write("bad.yaml", s.text);
    must_refuse(s, file, {"plan", file, "--cluster", shipped("clusters/frenzy-testbed.yaml")});
    must_refuse(s, file, {"check", "--as", "job", file});
  }
}

TEST_CASE("every kind of bad cluster file is refused with file, place and reason") {
  const scratch dir;
  for (const auto& s : bad_clusters) {
    const auto file = dir.write("bad.yaml", s.text);
    must_refuse(s, file, {"plan", shipped("jobs/gpt2-7b.yaml"), "--cluster", file});
    must_refuse(s, file, {"check", "--as", "cluster", file});
  }
}

TEST_CASE("a missing file, or one that is not a regular file, is refused by its name") {
  const scratch dir;
  const auto cluster = shipped("clusters/frenzy-testbed.yaml");
  for (const auto& file : {dir.path("gone.yaml"), dir.path()}) {
    must_refuse({"no file", "", "", ""}, file, {"plan", file, "--cluster", cluster});
    must_refuse({"no file", "", "", ""}, file, {"check", file});
  }
}

TEST_CASE("a truncated Hugging Face file is refused with its place") {
  const scratch dir;
  const auto file = dir.write("config.json", "{\"model_type\": \"gpt2\",\n \"n_embd\": 64,\n");
  must_refuse({"truncated JSON", "", ":", "JSON"}, file, {"check", file});
}

TEST_CASE("a bad catalogue is refused through the cluster that needs it") {
  const scratch dir;
  const auto catalogue = dir.write("gpus.yaml", "T4: {memory_gb: -16, fp16_tflops: 65}\n");
  const auto cluster = dir.write("cluster.yaml", cluster_with(good_node));
  must_refuse({"negative memory", "", ":1: T4.memory_gb", "-16"}, catalogue,
              {"plan", shipped("jobs/gpt2-7b.yaml"), "--cluster", cluster});
}

TEST_CASE("a file of unrecognized kind is refused with what was expected") {
  const scratch dir;
  const auto file = dir.write("what.yaml", "colour: blue\n");
  must_refuse({"no kind", "", ":1", "cluster"}, file, {"check", file});
}
