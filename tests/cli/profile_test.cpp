#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "cli/program.hpp"

using namespace troupe::test;
using Catch::Contains;
using nlohmann::json;

namespace {

const std::string tiny =
    "{name: tiny, family: gpt, hidden: 32, layers: 2, heads: 2, sequence: 16, vocabulary: 256}\n";
const std::string cluster =
    "name: near\n"
    "datacenters:\n"
    "  - name: here\n"
    "    nodes:\n"
    "      - {name: a, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}\n"
    "      - {name: b, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}\n";

std::string job(const std::string& model, int rows) {
  return "name: run\nmodel: " + model + "global_batch: " + std::to_string(4 * rows) +
         "\niterations: 3\ntrain: {device: sim}\n"
         "pipeline: {stages: 2, data_parallel: 1, microbatches: 4}\n";
}

result profiled(const scratch& in, std::vector<std::string> words = {}) {
  words.insert(words.begin(), {"profile", "--model", in.path("tiny.yaml"), "--rows", "1,2",
                               "--rounds", "3", "--out", in.path("p.yaml"), "--json"});
  return troupe::test::troupe(words);
}

}  // namespace

TEST_CASE("profile prints the documented keys, and check, plan and train read its file") {
  const scratch in;
  in.write("tiny.yaml", tiny);
  const auto r = profiled(in);
  INFO(r.err);
  REQUIRE(r.status == 0);
  const auto d = r.document();
  for (const auto* key : {"file", "device", "gpu_type", "kind", "driver", "runtime", "libraries",
                          "date", "busy", "clocks", "memory", "copies", "models"}) {
    INFO(key);
    CHECK(d.contains(key));
  }
  CHECK(d["kind"] == "cpu");
  CHECK(d["gpu_type"].is_null());
  CHECK(d["copies"]["to_device_gbytes_s"].is_null());
  CHECK(d["copies"]["all_reduce_gbytes_s"].is_null());
  CHECK(d["copies"]["all_reduces"].empty());
  CHECK_THAT(d["copies"]["all_reduce"].get<std::string>(), Contains("not measured"));
  REQUIRE(d["models"][0]["points"].size() == 2);
  for (const auto* part : {"attention", "mlp", "plain", "embedding", "head", "ends"})
    CHECK(d["models"][0]["points"][0][part].contains("backward_s"));
  const auto file = in.path("p.yaml");
  const auto checked = troupe::test::troupe({"check", file, "--json"});
  CHECK(checked.document()["files"][0]["kind"] == "profile");
  CHECK(checked.status == 0);

  in.write("c.yaml", cluster);
  in.write("job.yaml", job(tiny, 2));
  const auto plan = troupe::test::troupe(
      {"plan", in.path("job.yaml"), "--cluster", in.path("c.yaml"), "--profile", file, "--json"});
  REQUIRE(plan.status == 0);
  const auto estimate = plan.document()["estimate"];
  CHECK_THAT(estimate["from"].get<std::string>(), Contains("the profile of"));
  const auto train = troupe::test::troupe(
      {"train", in.path("job.yaml"), "--cluster", in.path("c.yaml"), "--profile", file, "--json"});
  INFO(train.err);
  REQUIRE(train.status == 0);
  // The head, the layers and the embedding of these sizes, and no others.
  const auto& two = d["models"][0]["points"][1];
  const auto stages = train.document()["stages"];
  double sum = 0, parts = two["embedding"]["backward_s"].get<double>() +
                          two["head"]["backward_s"].get<double>();
  for (const auto* part : {"attention", "mlp"}) parts += 2 * two[part]["backward_s"].get<double>();
  for (const auto& s : stages) sum += s["backward_s"].get<double>();
  CHECK(sum == Approx(parts).epsilon(1e-3));

  // A cluster that names it.
  in.write("named.yaml", cluster + "gpus: {T4: {profile: p.yaml}}\n");
  const auto named = troupe::test::troupe(
      {"plan", in.path("job.yaml"), "--cluster", in.path("named.yaml"), "--json"});
  CHECK(named.document()["estimate"] == estimate);
}

TEST_CASE(
    "a profile of another model is refused, and extrapolation beyond measured rows is marked") {
  const scratch in;
  in.write("tiny.yaml", tiny);
  in.write("c.yaml", cluster);
  REQUIRE(profiled(in).status == 0);
  const auto plan = [&](const std::string& text) {
    in.write("job.yaml", text);
    return troupe::test::troupe({"plan", in.path("job.yaml"), "--cluster", in.path("c.yaml"),
                                 "--profile", in.path("p.yaml"), "--json"});
  };
  auto other = tiny;
  const auto wrong = plan(job(other.replace(other.find("32"), 2, "64"), 2));
  CHECK(wrong.status == 2);
  CHECK_THAT(wrong.err, Contains("p.yaml: the profile of") && Contains("hidden 64"));
  const auto beyond = plan(job(tiny, 5));
  CHECK(beyond.status == 0);
  CHECK_THAT(beyond.document()["estimate"]["from"].get<std::string>(),
             Contains("extrapolated beyond the measured rows (5)"));
}

TEST_CASE("profile refuses a missing device with status 1, and bad usage with status 2") {
  const scratch in;
  in.write("tiny.yaml", tiny);
  const auto none = profiled(in, {"--device", "cuda", "--index", "999"});
  CHECK(none.status == 1);
  CHECK_THAT(none.err, Contains("CUDA"));
  CHECK_THAT(none.document()["error"].get<std::string>(), Contains("CUDA"));
  CHECK(profiled(in, {"--device", "tpu"}).status == 2);
  CHECK(profiled(in, {"--rows", "0"}).status == 2);
  CHECK(troupe::test::troupe({"profile", "--model", in.path("no.yaml")}).status == 2);
  CHECK_THAT(troupe::test::troupe({"profile", "--help"}).out, Contains("--sequence"));
}
