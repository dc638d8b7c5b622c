#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "harness/files.hpp"

using namespace troupe;
using test::loaded;
using test::temporary;
namespace fs = std::filesystem;

// Files of jobs that serve models or lend bubbles to them, and of clusters with fronts.

namespace {

const std::string tiny_config =
    R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512,
        "vocab_size": 256})";

/// A job next to the model's folder `models/tiny`.
expected<job_spec> job_of(const std::string& text, std::vector<std::string>* notices = nullptr) {
  temporary("serving/models/tiny/config.json", tiny_config);
  temporary("serving/models/empty/README.md", "nothing\n");
  temporary("serving/models/seer/config.json",
            R"({"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1,
                "num_attention_heads": 1, "max_position_embeddings": 8, "vocab_size": 9})");
  return formats::load_job(temporary("serving/job.yaml", text), {}, notices);
}

expected<job_spec> decoder_of(const std::string& keys, const std::string& more = "") {
  return job_of("name: j\n" + more + "serve: {model: models/tiny" + keys + "}\n");
}

expected<job_spec> lender_of(const std::string& keys, const std::string& device = "cpu") {
  return job_of(
      "name: j\nmodel: {name: m, family: gpt, hidden: 8, layers: 2, heads: 2, sequence: 4, "
      "vocabulary: 16}\nglobal_batch: 2\niterations: 5\n"
      "train: {device: " +
      device + ", data: text.txt}\npipeline:\n  stages: 2\n  bubbles: {model: models/tiny" + keys +
      "}\n");
}

std::string why(const expected<job_spec>& job) {
  return job ? "" : job.error().text;
}

bool has(const std::string& text, const std::string& words) {
  INFO("'" << words << "' in '" << text << "'");
  CHECK(text.find(words) != std::string::npos);
  return text.find(words) != std::string::npos;
}

expected<cluster> cluster_of(const std::string& fronts) {
  return formats::load_cluster(temporary(
      "serving/cluster.yaml",
      "name: c\ndatacenters:\n"
      "  - {name: east, nodes: [{name: a, gpu: T4, gpus: 1, count: 2, intra: pcie3, inter: "
      "eth10}]}\n"
      "  - {name: west, nodes: [{name: b, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}]}\n"
      "fronts:\n" +
          fronts));
}

std::string refusal(const std::string& fronts) {
  const auto c = cluster_of(fronts);
  return c ? "" : c.error().text;
}

}  // namespace

TEST_CASE("a job that serves a model has its folder, its shape and what its file says") {
  const auto job = loaded(
      decoder_of(", name: other, random_weights: 7, kv_gb: 0.5, context: 256, max_running: 8, "
                 "max_sequences: 9, prefill: decoder, ttft_s: 0.5, threads: 3",
                 "priority: 3\ngpu_type: A40\nmax_restarts: 1\n"));
  REQUIRE(job.serve);
  const auto& s = *job.serve;
  CHECK(s.model.name == "other");
  CHECK(fs::path{s.model.folder}.is_absolute());
  CHECK(fs::exists(fs::path{s.model.folder} / "config.json"));
  CHECK(s.model.random_weights == 7u);
  CHECK(s.model.shape.hidden == 64);
  CHECK(s.model.shape.sequence == 512);
  CHECK(s.kv_gb == 0.5);
  CHECK(s.context == 256);
  CHECK(s.max_running == 8);
  CHECK(s.max_sequences == 9);
  CHECK_FALSE(s.bubbles);
  CHECK(s.fallback);
  CHECK(s.ttft_s == 0.5);
  CHECK(s.threads == 3u);
  CHECK(job.model.name == "other");
  CHECK(job.model.layers == 2);
  CHECK(job.priority == 3);
  CHECK(job.limits.required_gpu_type == "A40");
  CHECK(job.limits.max_restarts == 1);
}

TEST_CASE("renamed keys of a serve section are read under their old names, with a notice") {
  std::vector<std::string> notices;
  const auto job = job_of(
      "name: j\nserve: {model: models/tiny, most_running: 8, most_sequences: 9}\n", &notices);
  REQUIRE(job);
  CHECK(job->serve->max_running == 8);
  CHECK(job->serve->max_sequences == 9);
  REQUIRE(notices.size() == 2);
  has(notices[0], "serve: 'most_running' is now 'max_running'; the old name is read until");
  has(notices[1], "serve: 'most_sequences' is now 'max_sequences'");
  has(why(decoder_of(", most_running: 5000")), "serve.max_running: found '5000'");
  has(why(decoder_of(", most_running: 8, max_running: 8")), "unknown key 'most_running'");
}

TEST_CASE("what a serve section does not say has defaults, and its name is the folder's") {
  const auto s = *loaded(decoder_of("")).serve;
  CHECK(s.model.name == "tiny");
  CHECK_FALSE(s.model.random_weights);
  CHECK(s.kv_gb == 1);
  CHECK(s.context == 0);
  CHECK(s.max_running == 64);
  CHECK(s.max_sequences == 256);
  CHECK(s.bubbles);
  CHECK(s.fallback);
  CHECK_FALSE(s.threads);
  CHECK(loaded(decoder_of(", max_running: 300")).serve->max_sequences == 300);
  CHECK_FALSE(loaded(decoder_of(", fallback: none")).serve->fallback);
  // A shipped model by its name.
  CHECK(loaded(job_of("name: j\nserve: {model: scribe}\n")).serve->model.shape.vocabulary == 256);
}

TEST_CASE("a wrong serve section is refused with file, line, what was found and what would do") {
  const auto serve = [](const std::string& model) {
    return why(job_of("name: j\nserve:\n  kv_gb: 1\n  model: " + model + "\n"));
  };
  has(serve("models/missing"), "job.yaml:4: serve.model: no folder 'models/missing'");
  has(serve("models/scribes"), "did you mean the shipped 'scribe'?");
  has(serve("models/empty"), "no config.json in 'models/empty'");
  has(serve("models/tiny/config.json"), "is a file, expected a model's folder");
  has(serve("meta-llama/Llama-3.2-1B"), "if it is a Hugging Face hub id, fetch");
  has(serve("models/seer"), "job.yaml:4: serve.model: 'seer' is of family bert");
  has(why(job_of("name: j\nserve: {kv_gb: 1}\n")), "serve: missing key 'model'");
  has(why(decoder_of(", kv_gb: 0")), "job.yaml:2: serve.kv_gb: found '0', expected");
  has(why(decoder_of(", kv_gb: 1e-4")), "job.yaml:2: serve.kv_gb: found 0.0001, expected at least");
  has(why(decoder_of(", context: 600")), "serve.context: found 600, expected");
  has(why(decoder_of(", prefil: bubbles")), "did you mean 'prefill'?");
  has(why(decoder_of(", prefill: bubble")), "did you mean 'bubbles'?");
  has(why(decoder_of(", prefill: decoder, fallback: none")), "serve.fallback: without prefill");
  has(why(decoder_of(", max_running: 8, max_sequences: 4")), "serve.max_sequences: found 4");
  has(why(decoder_of("", "model: scribe\n")), "names it inside serve");
  for (const std::string key : {"global_batch: 1", "iterations: 1", "command: [sh]", "slo_s: 1",
                                "deadline_s: 1", "train: {device: sim}", "lora: {rank: 1}"})
    has(why(decoder_of("", key + "\n")), "not for a job that serves a model");
  has(why(decoder_of("", "priorty: 1\n")), "did you mean 'priority'?");
}

TEST_CASE("a training says how it lends its bubbles") {
  const auto b = *loaded(lender_of(", name: n, memory_gb: 0.25, depth: 2, rule: look-ahead, "
                                   "look_ahead: 4, chunk: 128, op_ms: 1, guard_ms: 0, "
                                   "delay_budget: 0.01"))
                      .pipeline.bubbles;
  CHECK(b.model.name == "n");
  CHECK(fs::exists(fs::path{b.model.folder} / "config.json"));
  CHECK(b.model.shape.layers == 2);
  CHECK(b.memory_gb == 0.25);
  CHECK(b.depth == 2);
  CHECK(b.rule == "look-ahead");
  CHECK(b.look_ahead == 4);
  CHECK(b.chunk == 128);
  CHECK(b.op_ms == 1);
  CHECK(b.guard_ms == 0);
  CHECK(b.delay_budget == 0.01);
  CHECK(loaded(lender_of("")).pipeline.bubbles->rule == "resumable");
  has(why(lender_of(", rule: resumeable")), "did you mean 'resumable'?");
  has(why(lender_of(", memory_gb: -1")), "job.yaml:8: pipeline.bubbles.memory_gb: found '-1'");
  has(why(lender_of(", look_ahed: 1")), "did you mean 'look_ahead'?");
}

TEST_CASE("simulated guests need only the model's shape") {
  temporary("serving/models/shape.yaml",
            "{name: shape, family: llama, hidden: 32, layers: 2, heads: 2, sequence: 64, "
            "vocabulary: 16}");
  const auto text = [](const std::string& device) {
    return "name: j\nmodel: {name: m, family: gpt, hidden: 8, layers: 2, heads: 2, sequence: 4, "
           "vocabulary: 16}\nglobal_batch: 2\niterations: 5\ntrain: {data: text.txt, device: " +
           device + "}\npipeline: {stages: 2, bubbles: {model: models/shape.yaml}}\n";
  };
  const auto b = *loaded(job_of(text("sim"))).pipeline.bubbles;
  CHECK(b.model.name == "shape");
  CHECK(b.model.folder.empty());
  CHECK(b.model.shape.hidden == 32);
  has(why(job_of(text("cpu"))), "is a file, expected a model's folder");
}

TEST_CASE("a cluster has its fronts, in the file's order") {
  const auto c =
      loaded(cluster_of("  - {name: f1, datacenter: west, http: \"127.0.0.1:8000\"}\n"
                        "  - {name: f2, datacenter: east}\n"));
  REQUIRE(c.fronts.size() == 2);
  CHECK(c.fronts[0] == front{"f1", 1, "127.0.0.1:8000"});
  CHECK(c.fronts[1] == front{"f2", 0, ""});
  CHECK(loaded(cluster_of("  - {name: f, datacenter: east, http: \"[::1]:80\"}\n")).fronts.size() ==
        1);
}

TEST_CASE("a wrong front is refused with its line and the nearest name") {
  has(refusal("  - {name: a-0, datacenter: east}\n"),
      "cluster.yaml:6: fronts[0].name: duplicate name 'a-0': this front is named like");
  has(refusal("  - {name: east, datacenter: east}\n"), "duplicate name 'east'");
  has(refusal("  - {name: controller, datacenter: east}\n"), "'controller' is reserved");
  has(refusal("  - {name: f, datacenter: east}\n  - {name: f, datacenter: west}\n"),
      "cluster.yaml:7: fronts[1].name: duplicate name 'f'");
  has(refusal("  - {name: f, datacenter: eats}\n"), "did you mean 'east'?");
  has(refusal("  - {name: f}\n"), "missing key 'datacenter'");
  has(refusal("  - {name: f, datacenter: east, htp: \"x:1\"}\n"), "did you mean 'http'?");
  for (const std::string http : {"8000", ":8000", "host", "host:0", "host:65536", "host:1.5",
                                 "http://host:80", "a b:80", "host:"})
    has(refusal("  - {name: f, datacenter: east, http: \"" + http + "\"}\n"),
        "expected an address and a port such as 127.0.0.1:8000");
}

TEST_CASE("the shipped serving cluster has a front, and the shipped decoder fits its nodes") {
  const auto c = loaded(formats::load_cluster(test::shipped / "clusters/serving.yaml"));
  CHECK(c.fronts.size() == 1);
  CHECK(c.nodes.size() == 4);
  const auto job = loaded(formats::load_job(test::shipped / "jobs/serve-scribe.yaml"));
  CHECK(job.serve->model.name == "scribe");
  CHECK(fs::exists(fs::path{job.serve->model.folder} / "model.safetensors"));
}

TEST_CASE(
    "a decoder's adapters are read with a hash of their files, and written as they are read") {
  temporary("serving/sql/adapter_config.json", "{}");
  temporary("serving/sql/adapter_model.safetensors", "sql");
  temporary("serving/letters/adapter_config.json", "{}");
  temporary("serving/letters/adapter_model.safetensors", "letters");
  const auto job = decoder_of(", adapters: [{name: sql, folder: sql}, letters=letters]");
  REQUIRE(job);
  REQUIRE(job->serve->adapters);
  const auto& all = *job->serve->adapters;
  REQUIRE(all.size() == 2);
  CHECK(all[0].name == "sql");
  CHECK(all[1].name == "letters");
  CHECK(all[0].folder.ends_with("/serving/sql"));
  CHECK(all[0].hash != all[1].hash);
  const auto again =
      formats::load_job(temporary("serving/again.yaml", formats::job_text(*job)), {}, nullptr);
  REQUIRE(again);
  CHECK(*again == *job);
  CHECK_FALSE(decoder_of("")->serve->adapters);
  const auto refused = [](const std::string& list) {
    return why(decoder_of(", adapters: [" + list + "]"));
  };
  CHECK(has(refused("sql"), "found 'sql', expected NAME=FOLDER"));
  CHECK(has(refused("{name: sql}"), "missing key 'folder'"));
  CHECK(has(refused("a=absent"), "the adapter 'a': "));
  CHECK(has(refused("a=sql, a=letters"), "found the name 'a' twice"));
  CHECK(has(refused("tiny=sql"), "found the name 'tiny' twice"));
  CHECK(has(refused("'a b=sql'"), "found the name 'a b', expected"));
}
