// The key `groups` of a job's pipeline: read, written, and refused by file and by admission alike.
#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "harness/scratch.hpp"
#include "messages/admission/admission.hpp"

using namespace troupe;
using Catch::Matchers::Contains;

namespace {

std::string job_with(const std::string& groups, const std::string& more = "",
                     const std::string& batch = "8") {
  return "name: j\nmodel: {name: m, family: gpt, hidden: 64, layers: 2, heads: 4, sequence: 32, "
         "vocabulary: 100}\nglobal_batch: " +
         batch + "\niterations: 1\ntrain: {device: sim}\npipeline: {" + more + "groups: [" +
         groups + "]}\n";
}

std::string group(int pipelines, int microbatches, const std::string& stages) {
  return "{pipelines: " + std::to_string(pipelines) +
         ", microbatches: " + std::to_string(microbatches) + ", stages: [" + stages + "]}";
}

const std::string west = "{gpu: T4, pieces: 3, datacenter: west}, {gpu: L4, pieces: 1}",
                  east =
                      "{gpu: T4, pieces: 3, datacenter: east, held: 2}, "
                      "{gpu: L4, pieces: 1, tensor_parallel: 2}";

expected<job_spec> job_of(const std::string& text) {
  const troupe::test::scratch room;
  return formats::load_job(room.write("job.yaml", text));
}

/// The sentence by which a file is refused, after its line.
std::string refusal(const std::string& text) {
  const auto read = job_of(text);
  return read ? "" : read.error().text;
}

}  // namespace

TEST_CASE("a job's groups name their types, datacenters and shares, and are written as read") {
  const auto text = job_with(group(1, 2, west) + ", " + group(2, 1, east));
  const auto job = job_of(text);
  if (!job) FAIL(job.error().text);
  REQUIRE(job->pipeline.groups);
  const std::vector<chosen_group> wanted{{1, 2, {{"T4", 3, {}, "west", {}}, {"L4", 1, {}, {}, {}}}},
                                         {2, 1, {{"T4", 3, {}, "east", 2}, {"L4", 1, 2, {}, {}}}}};
  CHECK(*job->pipeline.groups == wanted);
  CHECK(microbatches_of(wanted) == 4);
  const auto again = job_of(formats::job_text(*job));
  if (!again) FAIL(again.error().text);
  CHECK(again->pipeline == job->pipeline);
}

TEST_CASE("groups that contradict each other, the model or the batch are refused with the reason") {
  const auto two = group(1, 2, west) + ", " + group(2, 1, east);
  CHECK(refusal(job_with(two)).empty());
  CHECK(refusal(job_with(two, "rows: 2, ")).empty());
  CHECK_THAT(refusal(job_with(two, "rows: 1, ")),
             Contains("4 micro-batches of 1 rows are 4 samples, expected global_batch (8)"));
  CHECK_THAT(refusal(job_with(two, "", "6")), Contains("4 micro-batches must divide global_batch"));
  for (const auto* other : {"stages: 2, ", "cut: [1, 1], ", "data_parallel: 3, ",
                            "microbatches: 2, ", "stages_per_datacenter: 1, ",
                            "tensor_parallel: 2, ", "virtual_stages: 2, ", "context_parallel: 1, "})
    CHECK_THAT(refusal(job_with(two, other)),
               Contains("pipeline") &&
                   Contains(std::string{other}.substr(0, std::string{other}.find(':'))));
  CHECK_THAT(refusal(job_with("")), Contains("groups"));
  CHECK_THAT(refusal(job_with(group(1, 2, west) + ", " +
                              group(1, 2, "{gpu: T4, pieces: 2}, {gpu: T4, pieces: 2}"))),
             Contains("1: its stages are cut at other places"));
  CHECK_THAT(refusal(job_with(group(1, 4, "{gpu: T4, pieces: 3}"))), Contains("cut covers 3"));
  CHECK_THAT(refusal(job_with(group(1, 4, "{gpu: T4, pieces: 4}, {gpu: T4, pieces: 0}"))),
             Contains("has no sublayers"));
  CHECK_THAT(refusal(job_with(group(1, 4, "{gpu: T4, pieces: 4, tensor_parallel: 3}"))),
             Contains("tensor_parallel (3)"));
  CHECK_THAT(refusal(job_with(group(0, 4, "{gpu: T4, pieces: 4}"))), Contains("pipelines"));
  CHECK_THAT(refusal(job_with(group(1, 4, "{pieces: 4}"))), Contains("gpu"));
  CHECK_THAT(refusal("name: j\nslots: {wan: 3}\npipeline: {stages: 2, microbatches: 4, groups: [" +
                     group(1, 4, "{gpu: T4, pieces: 4}") + "]}\n"),
             Contains("groups apply to a model"));
}

TEST_CASE("groups of clients that read no file have the same bounds") {
  auto job = *job_of(job_with(group(1, 2, west) + ", " + group(2, 1, east)));
  CHECK(admission::admit(job));
  const auto refused = [&](auto&& spoil) {
    auto bad = job;
    spoil(*bad.pipeline.groups);
    return !admission::admit(bad);
  };
  CHECK(refused([](auto& g) { g.clear(); }));
  CHECK(refused([](auto& g) { g[0].pipelines = 0; }));
  CHECK(refused([](auto& g) { g[0].microbatches = 0; }));
  CHECK(refused([](auto& g) { g[0].pipelines = 4'000'000'000U; }));
  CHECK(refused([](auto& g) { g[0].stages.clear(); }));
  CHECK(refused([](auto& g) { g[0].stages[0].pieces = 4'000'000'000U; }));
  CHECK(refused([](auto& g) { g[0].stages[0].tensor_parallel = 0; }));
  CHECK(refused([](auto& g) { g[0].stages[0].held = 0; }));
  CHECK(refused([](auto& g) {
    for (auto& x : g) x.stages.clear();
  }));
}
