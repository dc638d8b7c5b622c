#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "formats/load/load.hpp"
#include "harness/scratch.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

using json = nlohmann::json;

model two_layers() {
  model m;
  m.name = "base";
  m.family = "layers";
  m.layers = 2;
  m.tied_head = false;
  for (const auto* name : {"0-Embedding", "1-Head"})
    m.operators.push_back({name, 1e6, 100, 64, 256, 800, false});
  m.operators[1].output_bytes = 0;
  return m;
}

/// A folder that is a model's by its config.json, and a file of examples.
struct tuning_folder : scratch {
  tuning_folder() {
    std::filesystem::create_directory(path("base"));
    write("base/config.json", "{}");
    write("data.jsonl", "{}\n");
  }

  expected<job_spec> load(const std::string& train, const std::string& rest = {}) const {
    return formats::load_job(
        write("job.yaml", "{name: a, train: {device: cpu, " + train + "}" + rest + "}"), {},
        nullptr, complete);
  }
  std::string refusal(const std::string& train, const std::string& rest = {}) const {
    const auto job = load(train, rest);
    return job ? "none" : job.error().text;
  }

  /// As who reads the folder completes its arguments.
  static expected<model> complete(layer_file& p) {
    auto a = json::parse(p.arguments);
    if (a.at("global_batch") == 0) a["global_batch"] = 4;
    if (a.at("iterations") == 0) a["iterations"] = 7;
    a["rows"] = 9;
    p.arguments = a.dump();
    return two_layers();
  }
};

constexpr const char* both = "base: base, data: data.jsonl";

}  // namespace

TEST_CASE(
    "a training of a model folder has a program without a file, whose arguments are its keys") {
  const tuning_folder here;
  const auto job = here.load(std::string{both} + ", packing: true, betas: [0.8, 0.95], threads: 2");
  REQUIRE(job);
  const auto& p = *job->train->program;
  CHECK(p.file.empty());
  CHECK(p.threads == 2);
  CHECK(job->train->data.empty());
  CHECK(job->global_batch == 4);
  CHECK(job->iterations == 7);
  const auto a = json::parse(p.arguments);
  CHECK(a.at("base") == here.path("base"));
  CHECK(a.at("data") == here.path("data.jsonl"));
  CHECK(a.at("hash") != 0);
  CHECK(a.at("packing") == true);
  CHECK(a.at("beta_1") == 0.8);
  CHECK(a.at("beta_2") == 0.95);
  CHECK(a.at("rows") == 9);
  CHECK(a.at("adapter_rank") == 0);
  for (const auto* meanwhile : {"global_batch", "iterations", "seed"})
    CHECK(!a.contains(meanwhile));
}

TEST_CASE("numbers that a job of a folder has are kept, and adapters learn at ten times the rate") {
  const tuning_folder here;
  const auto rate_of = [&](const std::string& more) {
    const auto job = here.load(both + more, ", global_batch: 8, iterations: 30");
    REQUIRE(job);
    CHECK(job->global_batch == 8);
    CHECK(job->iterations == 30);
    return json::parse(job->train->program->arguments).at("learning_rate").get<double>();
  };
  CHECK(rate_of("") == 2e-5);
  CHECK(rate_of(", adapter: {rank: 4}") == 2e-4);
  CHECK(rate_of(", adapter: {rank: 4}, learning_rate: 0.5") == 0.5);
}

TEST_CASE("a job of a folder is read as it is written") {
  const tuning_folder here;
  const auto job = here.load(std::string{both} +
                                 ", adapter: {rank: 4, targets: attention}, held_out: 0.5, "
                                 "evaluate_every: 3, target_loss: 2.5, sequence: 64",
                             ", global_batch: 8, iterations: 30, pipeline: {stages: 2}");
  REQUIRE(job);
  const auto again = formats::load_job(here.write("again.yaml", formats::job_text(*job)), {},
                                       nullptr, tuning_folder::complete);
  REQUIRE(again);
  CHECK(*again == *job);
  CHECK(again->train->target_loss == 2.5);
}

TEST_CASE("keys of a folder's job that exclude each other are refused, and values out of range") {
  const tuning_folder here;
  const auto with = [&](const std::string& more) { return here.refusal(both + more); };
  CHECK(with("") == "none");
  CHECK(with(", program: a.py").find("train.program: found with base") != std::string::npos);
  CHECK(with(", arguments: {a: 1}").find("train.arguments: found with base") != std::string::npos);
  CHECK(with(", vocabulary: v").find("train.vocabulary: found with base") != std::string::npos);
  CHECK(with(", held_out: 0.1, eval_data: data.jsonl").find("held_out") != std::string::npos);
  CHECK(with(", evaluate_every: 3").find("without held_out or eval_data") != std::string::npos);
  CHECK(with(", frozen_layers: 1, adapter: {}").find("frozen_layers") != std::string::npos);
  CHECK(with(", target_loss: 2").find("train.target_loss: found without held_out") !=
        std::string::npos);
  CHECK(with(", held_out: 0.5, target_loss: 2").find("with evaluate_every 0, expected 1") !=
        std::string::npos);
  CHECK(with(", held_out: 0.5, evaluate_every: 3, target_loss: 0").find("target_loss") !=
        std::string::npos);
  CHECK(with(", held_out: 0.5, evaluate_every: 3, target_loss: 2") == "none");
  CHECK(with(", betas: [0.9]").find("expected two") != std::string::npos);
  CHECK(with(", betas: [0.9, 1]").find("betas") != std::string::npos);
  CHECK(with(", decay: none").find("decay") != std::string::npos);
  CHECK(with(", adapter: {rank: 0}").find("rank") != std::string::npos);
  CHECK(with(", warm_up: 0.1").find("warm_up") != std::string::npos);
  CHECK(here.refusal("base: base").find("missing key 'data'") != std::string::npos);
  CHECK(here.refusal("base: none, data: data.jsonl").find("config.json") != std::string::npos);
  CHECK(here.refusal(both, ", model: gpt2-124m").find("found with train.base") !=
        std::string::npos);
}
