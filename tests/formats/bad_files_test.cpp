#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "harness/files.hpp"

using namespace troupe;
using test::temporary;
namespace fs = std::filesystem;

namespace {

enum class sort { catalogue, cluster, model, job, faults };

struct bad_file {
  const char* what;
  sort of;
  std::string text;
  std::string words;  // what the sentence must have after the file's name
};

template <class T>
std::string sentence(const expected<T>& e) {
  return e ? "" : e.error().text;
}

std::string load(sort of, const fs::path& file) {
  switch (of) {
    case sort::catalogue:
      return sentence(formats::load_catalogue(file));
    case sort::cluster:
      return sentence(formats::load_cluster(file));
    case sort::model:
      return sentence(formats::load_model(file));
    case sort::job: {
      const std::vector<gpu_type> two{{.name = "A40", .source = ""},
                                      {.name = "A100-40GB", .source = ""}};
      return sentence(formats::load_job(file, two));
    }
    case sort::faults:
      return sentence(formats::load_faults(file));
  }
  return "";
}

/// A good cluster with one text in it replaced.
std::string cluster_with(const std::string& from, const std::string& to) {
  std::string text =
      "name: c\n"
      "datacenters:\n"
      "  - name: dc1\n"
      "    nodes:\n"
      "      - {name: a, gpu: A100-40GB, gpus: 2, count: 2, intra: pcie4, inter: ib100}\n"
      "      - name: b\n"
      "        gpu: A40\n"
      "        gpus: 4\n"
      "        intra: pcie4\n"
      "        inter: ib100\n"
      "  - name: dc2\n"
      "    nodes: [{name: d, gpu: A40, gpus: 1, intra: pcie4, inter: {gbps: 2.5, latency_us: "
      "50}}]\n"
      "wan:\n"
      "  - {between: [dc1, dc2], rtt_ms: 40, node_gbps: 5, connection_gbps: 0.293}\n"
      "settings: {heartbeat_s: 1, lease_s: 30}\n"
      "gpus: {A40: {price_per_hour: 1}}\n";
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

const std::string good_model =
    "name: m\nfamily: gpt\nhidden: 64\nlayers: 2\nheads: 4\nsequence: 16\nvocabulary: 100\n";

std::string model_with(const std::string& from, const std::string& to) {
  auto text = good_model;
  return text.replace(text.find(from), from.size(), to);
}

std::string job_with(const std::string& more) {
  return "name: j\nmodel: gpt2-124m\nglobal_batch: 8\niterations: 5\n" + more;
}

std::string deep(std::size_t levels) {
  return "name: " + std::string(levels, '[') + std::string(levels, ']') + "\n";
}

const std::string gpu = "X: {memory_gb: 1, fp16_tflops: 1, fp32_tflops: 1, memory_gbytes_s: 1";

const std::vector<bad_file>& bad_files() {
  static const std::vector<bad_file> all{
      // Files that are refused before any parser reads them.
      {"empty", sort::cluster, "", ": the file is empty"},
      {"blank", sort::model, "  \n\n", ": the file is empty"},
      {"only a comment", sort::job, "# nothing\n", ": the file is empty"},
      {"binary", sort::cluster,
       std::string("name: x\n\x7f"
                   "ELF\x02\0\0",
                   15),
       ":2: is not a text file"},
      {"not UTF-8", sort::job, "name: \xff\xfe\n", ": is not a text file"},
      {"too large", sort::model, std::string(17u << 20, 'x'), ": larger than 16 MB; not read"},
      // YAML that is wrong or more than we take.
      {"YAML syntax", sort::cluster, "name: c\ndatacenters: [\n", ":3: not valid YAML"},
      {"tab as indentation", sort::job, "name: j\nmodel:\n\t- x\n",
       ":3: not valid YAML: the line is indented with a tab, expected spaces"},
      {"a line too deep", sort::job, "name: j\n\n# why\n  model: gpt2-124m\n",
       ":4: not valid YAML: the line is indented by 2, expected 0 as the key above it"},
      {"a colon in a text", sort::job, "name: j\nmodel: gpt2: small\n",
       ":2: not valid YAML: found ': ' twice in a line, expected once"},
      {"a line that belongs nowhere", sort::job, "name: j\ntrain:\n    seed: 1\n  data: x\n",
       ":4: not valid YAML: the line is indented by 2"},
      {"duplicate key", sort::model, good_model + "layers: 3\n", ":8: duplicate key 'layers'"},
      {"too deep", sort::job, deep(40), ":1: nested deeper than 32 levels"},
      {"much too deep", sort::job, deep(100'000), ":1: n"},
      {"an alias bomb", sort::job, "a: &a [x, x]\nb: &b [*a, *a]\nname: *b\n",
       ":1: anchors and aliases (& and *) are not supported"},
      {"a tag", sort::job, "name: !!binary aGVsbG8=\n", ":1: tags (!) are not supported"},
      {"two documents", sort::model, good_model + "---\n" + good_model, ":8: second document"},
      {"a list at the top", sort::cluster, "- name: c\n",
       ":1: found a list, expected a map of keys"},
      // Keys.
      {"unknown key", sort::job, job_with("itterations: 6\n"),
       ":5: unknown key 'itterations'; did you mean 'iterations'?"},
      {"unknown key inside", sort::cluster, cluster_with("gpus: 4", "gpu_count: 4"),
       ":6: datacenters[0].nodes[1]: missing key 'gpus'"},
      {"a required key misspelt", sort::cluster, cluster_with("gpus: 4", "gpuss: 4"),
       ":8: datacenters[0].nodes[1]: missing key 'gpus'; did you misspell it as 'gpuss'?"},
      {"missing key", sort::cluster, cluster_with("name: c\n", ""), ":1: missing key 'name'"},
      {"several missing keys", sort::cluster,
       "name: c\ndatacenters: [{name: d, nodes: [{name: n}]}]\n",
       ":2: datacenters[0].nodes[0]: missing key 'gpu', and 'gpus'"},
      {"a key without a value", sort::model, model_with("hidden: 64", "hidden:"),
       ":3: hidden: found nothing, expected a value"},
      // Numbers.
      {"negative", sort::model, model_with("layers: 2", "layers: -2"),
       ":4: layers: found '-2', expected a whole number from 1 to 2000"},
      {"huge", sort::model, model_with("hidden: 64", "hidden: 1e30"), ":3: hidden: found '1e30'"},
      {"beyond a double", sort::job, job_with("slo_s: 1e999\n"), ":5: slo_s: found '1e999'"},
      {"NaN", sort::job, job_with("deadline_s: .nan\n"),
       ":5: deadline_s: found '.nan', expected a number above 0"},
      {"infinite", sort::job, job_with("budget: inf\n"),
       ":5: budget: found 'inf', expected a number above 0"},
      {"text for a number", sort::job, job_with("priority: high\n"),
       ":5: priority: found 'high', expected a whole"},
      {"quoted number", sort::model, model_with("heads: 4", "heads: '4'"),
       ":5: heads: found the text '4', expected a whole number"},
      {"a fraction", sort::job, job_with("gpus: 1.5\n"),
       ":5: gpus: found '1.5', expected a whole number"},
      {"a text for a list", sort::job, "name: j\ncommand: python3 train.py\n",
       ":2: command: found 'python3 train.py', expected a list such as [python3, train.py]"},
      {"a list for a number", sort::job, job_with("gpus: [1]\n"), ":5: gpus: found a list"},
      {"hexadecimal", sort::job, job_with("gpus: 0x10\n"), ":5: gpus: found '0x10'"},
      {"zero GPUs", sort::cluster, cluster_with("gpus: 4", "gpus: 0"),
       ":8: datacenters[0].nodes[1].gpus: found '0', expected a whole number from 1 to 1024"},
      {"too many nodes", sort::cluster, cluster_with("count: 2", "count: 4000000000"),
       ":5: datacenters[0].nodes[0].count: found '4000000000'"},
      {"yes for true", sort::job, job_with("merge: maybe\n"),
       ":5: merge: found 'maybe', expected true or false"},
      {"an unknown kind of merging", sort::job, job_with("merge_kind: weights\n"),
       ":5: merge_kind: found 'weights', expected one of shared, adapters"},
      {"a word for true", sort::job, job_with("merge_across_owners: all\n"),
       ":5: merge_across_owners: found 'all', expected true or false"},
      // Names.
      {"unknown GPU", sort::cluster, cluster_with("gpu: A100-40GB", "gpu: A100-40G"),
       ":5: datacenters[0].nodes[0].gpu: unknown GPU 'A100-40G'; did you mean 'A100-40GB'?"},
      {"unknown link", sort::cluster, cluster_with("inter: ib100\n", "inter: ib1000\n"),
       ":10: datacenters[0].nodes[1].inter: unknown link 'ib1000'; did you mean 'ib100'?"},
      {"a link of no speed", sort::cluster, cluster_with("gbps: 2.5", "gbps: 0"),
       ":12: datacenters[1].nodes[0].inter.gbps: found '0', expected a number above 0"},
      {"a rate for fewer bytes", sort::cluster,
       cluster_with("latency_us: 50", "latency_us: 50, rates: [[65536, 1], [4096, 2]]"),
       ":12: datacenters[1].nodes[0].inter.rates[1]: found 4096 bytes after 65536, expected "
       "increasing numbers"},
      {"a rate of nothing", sort::cluster,
       cluster_with("latency_us: 50", "latency_us: 50, rates: [[65536, 0]]"),
       ":12: datacenters[1].nodes[0].inter.rates[0]: found 0 Gbit/s, expected more than 0"},
      {"a rate of half a byte", sort::cluster,
       cluster_with("latency_us: 50", "latency_us: 50, flow_rates: [[0.5, 1]]"),
       ":12: datacenters[1].nodes[0].inter.flow_rates[0]: found 0.5 bytes, expected a whole "
       "number"},
      {"a rate without bytes", sort::cluster,
       cluster_with("latency_us: 50", "latency_us: 50, rates: [3]"),
       ":12: datacenters[1].nodes[0].inter.rates[0]: found '3', expected [bytes, gbps]"},
      {"no rates", sort::cluster, cluster_with("latency_us: 50", "latency_us: 50, rates: []"),
       ":12: datacenters[1].nodes[0].inter.rates: "},
      {"two rates of a flow", sort::cluster,
       cluster_with("latency_us: 50", "latency_us: 50, flow_gbps: 1, flow_rates: [[1, 1]]"),
       ":12: datacenters[1].nodes[0].inter.flow_gbps: found flow_gbps and flow_rates, expected "
       "one"},
      {"a flow of no speed", sort::cluster,
       cluster_with("latency_us: 50", "latency_us: 50, flow_gbps: 0"),
       ":12: datacenters[1].nodes[0].inter.flow_gbps: found '0', expected a number above 0"},
      {"groups between nodes", sort::cluster,
       cluster_with("latency_us: 50", "latency_us: 50, group_rates: [[2, 1]]"),
       ":12: datacenters[1].nodes[0].inter: unknown key 'group_rates'"},
      {"a group of one", sort::cluster,
       cluster_with("        intra: pcie4\n",
                    "        intra: {gbps: 1, latency_us: 1, group_rates: [[1, 5]]}\n"),
       ":9: datacenters[0].nodes[1].intra.group_rates[0]: found 1 GPUs, expected a whole number "
       "from 2 to 1024"},
      {"a group's latency of minutes", sort::cluster,
       cluster_with("        intra: pcie4\n",
                    "        intra: {gbps: 1, latency_us: 1, group_rates: [[2, 5, 1e8]]}\n"),
       ":9: datacenters[0].nodes[1].intra.group_rates[0]: found a latency of 1e+08 us"},
      {"WAN rates that fall in size", sort::cluster,
       cluster_with("connection_gbps: 0.293", "connection_gbps: 0.293, rates: [[8, 1], [8, 1]]"),
       ":14: wan[0].rates[1]: found 8 bytes after 8"},
      {"traffic that earns money", sort::cluster,
       cluster_with("connection_gbps: 0.293", "connection_gbps: 0.293, price_per_gb: -0.01"),
       ":14: wan[0].price_per_gb: found '-0.01', expected "},
      {"a price of traffic in words", sort::cluster,
       cluster_with("connection_gbps: 0.293", "connection_gbps: 0.293, price_per_gb_back: free"),
       ":14: wan[0].price_per_gb_back: found 'free', expected "},
      {"a price of traffic that is no number", sort::cluster,
       cluster_with("connection_gbps: 0.293", "connection_gbps: 0.293, price_per_gb: .nan"),
       ":14: wan[0].price_per_gb: found "},
      {"duplicate node", sort::cluster, cluster_with("name: b", "name: a-1"),
       ":6: datacenters[0].nodes[1].name: duplicate name 'a-1': this node is named like "
       "datacenters[0].nodes[0]"},
      {"duplicate datacenter", sort::cluster, cluster_with("name: dc2", "name: dc1"),
       ":11: datacenters[1].name: duplicate name 'dc1'"},
      {"a node called controller", sort::cluster, cluster_with("name: b", "name: controller"),
       ":6: datacenters[0].nodes[1].name: the name 'controller' is reserved"},
      {"a path as a name", sort::cluster, cluster_with("name: b", "name: ../b"),
       ":6: datacenters[0].nodes[1].name: "},
      {"WAN to nowhere", sort::cluster, cluster_with("[dc1, dc2]", "[dc1, dc3]"),
       ":14: wan[0].between: unknown datacenter 'dc3'; did you mean 'dc1'?"},
      {"WAN to itself", sort::cluster, cluster_with("[dc1, dc2]", "[dc1, dc1]"),
       ":14: wan[0].between: 'dc1' twice"},
      {"WAN of three", sort::cluster, cluster_with("[dc1, dc2]", "[dc1, dc2, dc1]"),
       ":14: wan[0].between: found 3"},
      {"a connection faster than its node", sort::cluster,
       cluster_with("node_gbps: 5", "node_gbps: 0.1"),
       ":14: wan[0].connection_gbps: found 0.293, expected at most node_gbps (0.1)"},
      {"a price of a GPU that nobody has", sort::cluster,
       cluster_with("settings:", "prices: [{gpu: T4, per_hour: 1}]\nsettings:"),
       ":15: prices[0].gpu: no node of this cluster has GPU 'T4'"},
      {"a price in a datacenter that is not there", sort::cluster,
       cluster_with("settings:", "prices: [{gpu: A40, datacenter: dc3, per_hour: 1}]\nsettings:"),
       ":15: prices[0].datacenter: unknown datacenter 'dc3'"},
      {"a price twice", sort::cluster,
       cluster_with("settings:",
                    "prices: [{gpu: A40, per_hour: 1}, {gpu: A40, per_hour: 2}]\nsettings:"),
       ":15: prices[1].gpu: duplicate price of 'A40'"},
      {"spot instances without their interruptions", sort::cluster,
       cluster_with("settings:",
                    "prices: [{gpu: A40, per_hour: 1, spot: {per_hour: 0.5}}]\nsettings:"),
       ":15: prices[0].spot: missing key 'interruptions_per_hour'"},
      {"a lease shorter than two heartbeats", sort::cluster,
       cluster_with("lease_s: 30", "lease_s: 1.5"),
       ":15: settings.lease_s: found 1.5, expected at least twice heartbeat_s (1)"},
      {"unknown setting", sort::cluster, cluster_with("heartbeat_s: 1", "heartbeats: 1"),
       ":15: settings: unknown key 'heartbeats'; did you mean 'heartbeat_s'?"},
      {"an override for a GPU that is not there", sort::cluster,
       cluster_with("gpus: {A40", "gpus: {A30"),
       ":16: gpus: no node of this cluster has GPU 'A30'; did you mean 'A40'?"},
      {"no datacenters", sort::cluster, "name: c\ndatacenters: []\n",
       ":2: datacenters: found a list of 0"},
      {"an address without a port", sort::cluster,
       cluster_with("name: c\n", "name: c\ncontroller: tcp://here\n"),
       ":2: controller: found 'tcp://here', expected an address such as tcp://10.0.0.1:7000"},
      // Models and jobs.
      {"heads that do not divide", sort::model, model_with("heads: 4", "heads: 5"),
       ":5: heads: 5 heads do not divide hidden (64)"},
      {"unknown family", sort::model, model_with("family: gpt", "family: gtp"),
       ":2: family: found 'gtp', expected one"},
      {"a family without its operators", sort::model, "{name: m, family: moe}",
       ":1: missing key 'operators'"},
      {"duplicate operator", sort::model,
       "name: m\nfamily: moe\noperators:\n"
       "  - {name: a, flops: 1, parameters: 1, output_bytes: 1}\n"
       "  - {name: a, flops: 1, parameters: 1, output_bytes: 1}\n",
       ":5: operators[1].name: duplicate name 'a'"},
      {"missing model file", sort::job, "name: j\nmodel: gpt2-6b\nglobal_batch: 1\niterations: 1\n",
       ":2: model: no model 'gpt2-6b', neither next to this file nor in the current directory; did "
       "you mean the "
       "shipped 'gpt2-7b'?"},
      {"no model", sort::job, "name: j\nglobal_batch: 1\niterations: 1\n",
       ":1: missing key 'model'"},
      {"missing config.json", sort::job,
       "name: j\nmodel: {huggingface: nowhere}\nglobal_batch: 1\n",
       ":2: model.huggingface: no file 'nowhere'"},
      {"unknown GPU type", sort::job, job_with("gpu_type: a100-40gb\n"),
       ":5: gpu_type: unknown GPU 'a100-40gb'; did you mean 'A100-40GB'?"},
      {"a command that is no list", sort::job, job_with("command: python train.py\n"),
       ":5: command: found 'python train.py', expected a list such as [python, train.py]"},
      {"an address with a port", sort::cluster,
       cluster_with("gpus: 4", "gpus: 4\n        address: tcp://h"),
       ":9: datacenters[0].nodes[1].address: found 'tcp://h'"},
      {"too few addresses", sort::cluster, cluster_with("count: 2,", "count: 2, address: [h],"),
       ":5: datacenters[0].nodes[0].address: found 1, expected one for each of the 2 nodes"},
      {"a variable that Troupe sets", sort::job, job_with("environment: {RANK: \"1\"}\n"),
       ":5: environment: 'RANK' is set by Troupe"},
      {"a variable's name", sort::job, job_with("environment: {1A: x}\n"),
       ":5: environment: '1A' is not"},
      {"more microbatches than samples", sort::job, job_with("microbatches: 16\n"),
       ":5: microbatches: found 16, expected at most global_batch (8)"},
      {"unknown objective", sort::job, job_with("objective: fast\n"),
       ":5: objective: found 'fast', expected one of efficient, fastest, cheapest; did you mean "
       "'fastest'?"},
      {"a node that is emulated as standing still", sort::cluster,
       cluster_with("gpus: 4", "gpus: 4\n        emulate_speed: 0"),
       ":9: datacenters[0].nodes[1].emulate_speed: found '0', expected "},
      // Training and pipelines.
      {"a cut that is not the model", sort::job, job_with("pipeline: {cut: [100, 300]}\n"),
       ":5: pipeline: cut covers 800 sublayers"},
      {"a cut in thirds of layers", sort::job, job_with("pipeline: {cut: [0.3, 1.7]}\n"),
       ":5: pipeline.cut: found 0.3, expected layers, whole or halves"},
      {"a cut of other stages", sort::job, job_with("pipeline: {stages: 3, cut: [1, 1]}\n"),
       ":5: pipeline: cut has 2 stages, but stages is 3"},
      {"training without data", sort::job, job_with("train: {seed: 2}\n"),
       ":5: train: missing key 'data'"},
      {"an unknown schedule", sort::job, job_with("train: {data: t, schedule: atlass}\n"),
       ":5: train.schedule: found 'atlass', expected one of gpipe, megatron, varuna, "
       "varuna-forward-first, atlas, atlas-least-progress, best; did you mean 'atlas'?"},
      {"an unknown device", sort::job, job_with("train: {data: t, device: gpu}\n"),
       ":5: train.device: found 'gpu', expected one of sim, cpu, cuda"},
      {"an unknown key of training", sort::job, job_with("train: {data: t, sede: 1}\n"),
       ":5: train: unknown key 'sede'; did you mean 'seed'?"},
      {"no learning rate", sort::job, job_with("train: {data: t, learning_rate: 0}\n"),
       ":5: train.learning_rate: found '0', expected a number above 0 to 100"},
      {"an empty path", sort::job, job_with("train: {data: t, checkpoint: ''}\n"),
       ":5: train.checkpoint: found '', expected a path"},
      {"a checkpoint after no iteration", sort::job,
       job_with("train: {data: t, checkpoint_every: 0}\n"),
       ":5: train.checkpoint_every: found '0', expected a whole number from 1"},
      {"training and a command", sort::job, job_with("command: [x]\ntrain: {data: t}\n"),
       ":5: command: command excludes train"},
      {"training what is not GPT", sort::job,
       "name: j\nmodel: llama-7b\nglobal_batch: 8\niterations: 5\ntrain: {data: t}\n",
       ":5: train: 'llama-7b' is of family llama; the built-in trainer trains gpt"},
      {"more stages than attentions and MLPs", sort::job, job_with("pipeline: {stages: 25}\n"),
       ":5: pipeline: 25 stages are more than the 24 sublayers of 'gpt2-124m'"},
      {"a recompute that is neither", sort::job, job_with("pipeline: {recompute: maybe}\n"),
       ":5: pipeline.recompute: found 'maybe', expected true, false or layers"},
      {"layers to recompute of a training", sort::job,
       job_with("train: {data: t}\npipeline: {recompute: layers}\n"),
       ":6: pipeline: recompute: found layers, expected true or false: no device of the built-in "
       "trainer recomputes layer by layer"},
      {"layers to recompute of a study", sort::job,
       "name: j\nslots: {}\npipeline: {stages: 2, microbatches: 2, recompute: layers}\n",
       ":3: pipeline: recompute: found layers, expected true or false: a slots job has no layers"},
      {"flash kernels of a training", sort::job,
       job_with("kernels: flash\ntrain: {data: t, device: cuda}\n"),
       ":5: kernels: found flash, expected eager or fused: the built-in trainer's devices have "
       "kernels of their own"},
      {"8 bits of a training", sort::job, job_with("precision: fp8\ntrain: {data: t}\n"),
       ":5: precision: found fp8, expected mixed, bf16, fp32 or tf32: fp8 is for estimates and "
       "train.device: sim only"},
      {"8 bits of a program", sort::job, job_with("command: [a]\nprecision: fp8\n"),
       ":6: precision: found fp8, expected mixed, bf16, fp32 or tf32"},
      {"interleaved stages of a training", sort::job,
       job_with("train: {data: t}\npipeline: {virtual_stages: 2}\n"),
       ":6: pipeline: virtual_stages: for estimates"},
      {"shared sequences of a training", sort::job,
       job_with("train: {data: t}\npipeline: {context_parallel: 2}\n"),
       ":6: pipeline: context_parallel: for estimates"},
      {"shared sequences of a program", sort::job,
       job_with("command: [a]\npipeline: {context_parallel: 2}\n"),
       ":6: pipeline: context_parallel: for estimates"},
      {"overlap of a training", sort::job,
       job_with("train: {data: t}\npipeline: {overlap: true}\n"),
       ":6: pipeline: overlap: for "
       "estimates"},
      {"shared sequences of a study", sort::job,
       "name: j\nslots: {}\npipeline: {stages: 2, microbatches: 2, context_parallel: 2}\n",
       ":3: pipeline: context_parallel applies to a model, and a slots job has none"},
      {"pipelines that do not share sequences evenly", sort::job,
       job_with("pipeline: {data_parallel: 3, context_parallel: 2}\n"),
       ":5: pipeline: context_parallel (2) must divide data_parallel (3)"},
      {"no stages", sort::job, job_with("pipeline: {stages: 0}\n"),
       ":5: pipeline.stages: found '0', expected a whole number from 1"},
      {"pipelines that do not divide the batch", sort::job,
       job_with("pipeline: {data_parallel: 3}\n"),
       ":5: pipeline: 3 pipelines x 1 micro-batches must divide global_batch (8)"},
      {"more GPUs than heads to share", sort::job, job_with("pipeline: {tensor_parallel: 5}\n"),
       ":5: pipeline: tensor_parallel (5) must divide the head count (12), the count of key and "
       "value heads (12) and the MLP width (3072) of 'gpt2-124m'"},
      {"slots that are shared", sort::job,
       "name: j\nslots: {forward: 1}\npipeline: {stages: 2, microbatches: 4, tensor_parallel: 2}\n",
       ":3: pipeline: tensor_parallel applies to a model, and a slots job has none"},
      {"micro-batches said twice", sort::job,
       job_with("microbatches: 4\npipeline: {microbatches: 2}\n"),
       ":5: microbatches: found 4, but pipeline.microbatches is 2; give one of them"},
      {"slots without a pipeline", sort::job, "name: j\nslots: {forward: 1}\n",
       ":1: missing key 'pipeline'"},
      {"slots without a depth", sort::job,
       "name: j\nslots: {forward: 1}\npipeline: {microbatches: 4}\n",
       ":3: pipeline: missing key 'stages'"},
      {"a backward of no time", sort::job,
       "name: j\nslots: {backward: 0}\npipeline: {stages: 2, microbatches: 4}\n",
       ":2: slots.backward: found '0', expected a number above 0"},
      {"a transfer back in time", sort::job,
       "name: j\nslots: {wan: -1}\npipeline: {stages: 2, microbatches: 4}\n",
       ":2: slots.wan: found '-1', expected a number from 0"},
      {"slots and training", sort::job,
       job_with("slots: {wan: 1}\npipeline: {stages: 2, microbatches: 4}\ntrain: {data: t}\n"),
       ":5: slots: slots and train"},
      // Catalogue and faults.
      {"duplicate GPU", sort::catalogue, gpu + "}\n" + gpu + "}\n", ":2: duplicate key 'X'"},
      {"efficiency above one", sort::catalogue, gpu + ", efficiency: 45}\n",
       ":1: X.efficiency: found '45', expected a number above 0 to 1"},
      {"unknown kernels", sort::job, job_with("kernels: fast\n"), ":5: kernels: found 'fast'"},
      {"a GPU that is no map", sort::catalogue, "X: 5\n",
       ":1: X: found '5', expected a map of keys"},
      {"a probability above one", sort::faults, "name: f\nloss: 2\n",
       ":2: loss: found '2', expected a number from 0 to 1"},
      {"a window that ends before it starts", sort::faults, "name: f\nfrom_s: 9\nuntil_s: 3\n",
       ":3: until_s: found 3, expected more than from_s (9)"},
      {"crashes without an end", sort::faults, "name: f\nnode_crashes_per_hour: 1\n",
       ":1: mean_down_s: missing or 0"},
  };
  return all;
}

}  // namespace

TEST_CASE("every kind of bad file is refused with its name, the line and what is wrong") {
  for (const auto& bad : bad_files()) {
    const auto text = load(bad.of, temporary("bad/file.yaml", bad.text));
    INFO(bad.what << ": " << text);
    CHECK(text.find("bad/file.yaml" + bad.words) != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
  }
}

TEST_CASE("the valid texts that the bad files are derived from load") {
  CHECK(load(sort::cluster, temporary("good/c.yaml", cluster_with("", ""))) == "");
  CHECK(load(sort::model, temporary("good/m.yaml", good_model)) == "");
  CHECK(load(sort::job, temporary("good/j.yaml", job_with(""))) == "");
  CHECK(load(sort::catalogue, temporary("good/g.yaml", gpu + "}\n")) == "");
}

TEST_CASE("a path that is not a regular file is refused by its name") {
  const auto& folder = test::temporary_folder();
  CHECK(load(sort::job, folder / "none.yaml") ==
        (folder / "none.yaml").string() + ": no such file");
  CHECK(load(sort::job, folder) == folder.string() + ": is a directory; expected a file");
  CHECK(load(sort::job, "/dev/null") == "/dev/null: is not a regular file");
}

TEST_CASE("an error in a model's own file is reported with that file, not the job's") {
  temporary("bad/models/m.yaml", model_with("heads: 4", "heads: 5"));
  const auto text =
      load(sort::job, temporary("bad/j.yaml", "name: j\nmodel: models/m.yaml\nglobal_batch: 1\n"));
  CHECK(text.find("bad/models/m.yaml:5: heads: 5 heads do not divide") != std::string::npos);
}
