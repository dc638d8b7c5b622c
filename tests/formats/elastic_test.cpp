#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <vector>

#include "formats/load/load.hpp"
#include "formats/parse/value.hpp"
#include "harness/scratch.hpp"
#include "messages/admission/admission.hpp"
#include "messages/domain/work_kind.hpp"

using namespace troupe;
using Catch::Matchers::Contains;

namespace {

const std::string program =
    "name: j\nmodel: gpt2-124m\nglobal_batch: 8\ncommand: [python3, a.py]\n";

expected<job_spec> read(const std::string& text) {
  const test::scratch where;
  return formats::load_job(where.write("job.yaml", text));
}

std::string refused_elastic(const std::string& elastic) {
  const auto job = read(program + "elastic: " + elastic + "\n");
  return job ? "" : job.error().text;
}

std::string admitted(const std::function<void(job_spec&)>& change) {
  auto job = read(program + "elastic: {}\n");
  REQUIRE(job);
  change(*job);
  const auto ok = admission::admit(*job);
  return ok ? "" : ok.error().text;
}

}  // namespace

TEST_CASE("an elastic program without keys may be stopped, resized and moved") {
  const auto job = read(program + "elastic: {}\n");
  REQUIRE(job);
  REQUIRE(job->program.elastic);
  CHECK(*job->program.elastic == elastic{});
  CHECK(facts_of(*job).elastic);
  CHECK_FALSE(facts_of(*job).exact_gpus);
}

TEST_CASE("every key of elastic is read into its field") {
  const auto job = read(program +
                        "gpus: 2\nelastic: {gpus: [2, 8], types: [A100, T4], layouts: any, "
                        "grace_s: 60, checkpoint_every_s: 300, retries: 4, start_s: 12, save_s: 3, "
                        "rates: [{gpu: T4, gpus: 2, samples_per_s: 31.5}, {gpu: T4, gpus: 4, "
                        "data_parallel: 2, samples_per_s: 50}]}\n");
  REQUIRE(job);
  const auto& e = *job->program.elastic;
  CHECK(e.min_gpus == 2);
  CHECK(e.max_gpus == 8);
  CHECK(e.types == std::vector<std::string>{"A100", "T4"});
  CHECK(e.any_layout);
  CHECK(job->program.grace_s == 60);
  CHECK(e.checkpoint_every_s == 300);
  CHECK(e.retries == 4);
  CHECK(e.start_s == 12);
  CHECK(e.save_s == 3);
  REQUIRE(e.rates.size() == 2);
  CHECK(e.rates[0] == program_rate{"T4", 2, 0, 31.5});
  CHECK(e.rates[1] == program_rate{"T4", 4, 2, 50});
  CHECK(job->limits.max_gpus == 8);
  CHECK(job->request.gpus == 2);
  CHECK_FALSE(job->request.exact);
}

TEST_CASE("a program with the same GPUs in every attempt gets exactly its number") {
  const auto job = read(program + "gpus: 4\nelastic: {gpus: same, types: same}\n");
  REQUIRE(job);
  CHECK(facts_of(*job).exact_gpus);
  CHECK(job->program.elastic->same_types);
}

TEST_CASE("a range of GPUs begins with its smaller number, within max_gpus") {
  const auto job = read(program + "max_gpus: 4\nelastic: {gpus: [2, 8]}\n");
  REQUIRE(job);
  CHECK(job->limits.max_gpus == 4);
  CHECK(job->request.gpus == 2);
  CHECK_THAT(refused_elastic("{gpus: [8, 2]}"),
             Contains("job.yaml:5: elastic: gpus: found [8, 2]"));
}

TEST_CASE("invalid keys of elastic are refused with what was found and expected") {
  const std::pair<const char*, const char*> all[] = {
      {"{gpus: some}", "elastic.gpus: found 'some', expected same, any or [min, max]"},
      {"{gpus: [1]}", "expected same, any or [min, max]"},
      {"{gpus: [1.5, 2]}", "found 1.5, expected a whole number"},
      {"{types: []}", "expected same, any or a list of GPU types"},
      {"{types: [T4, T4]}", "types: found 'T4' twice"},
      {"{layouts: all}", "found 'all', expected one of data, any"},
      {"{retry: 1}", "unknown key 'retry'"},
      {"{rates: [{gpu: T4, gpus: 1}]}", "samples_per_s"},
      {"{rates: [{gpu: T4, gpus: 1, data_parallel: 2, samples_per_s: 1}]}",
       "data_parallel: found 2, expected at most gpus (1)"},
      {"{rates: [{gpu: T4, gpus: 1, samples_per_s: 1}, {gpu: T4, gpus: 1, samples_per_s: 2}]}",
       "rates: found 1 T4 with data_parallel 1 twice"}};
  for (const auto& [keys, text] : all) {
    INFO(keys);
    CHECK_THAT(refused_elastic(keys), Contains(text));
  }
  const auto twice = read(program + "grace_s: 5\nelastic: {grace_s: 6}\n");
  REQUIRE_FALSE(twice);
  CHECK_THAT(twice.error().text, Contains("give one of them"));
}

TEST_CASE("only programs are elastic, whoever submits them") {
  CHECK_THAT(admitted([](job_spec& j) { j.program.command.clear(); }),
             Contains("elastic: for programs"));
  CHECK_THAT(admitted([](job_spec& j) { j.program.elastic->max_gpus = 4; }),
             Contains("larger or missing"));
  CHECK_THAT(admitted([](job_spec& j) { j.program.elastic->min_gpus = 4; }),
             Contains("first number"));
  CHECK_THAT(admitted([](job_spec& j) { j.program.elastic->types.assign(2000, "T4"); }),
             Contains("found 2000 names, expected at most 1000"));
  CHECK_THAT(admitted([](job_spec& j) { j.program.elastic->rates.resize(2000); }),
             Contains("rates: found 2000, expected at most 1000"));
  CHECK_THAT(admitted([](job_spec& j) { j.program.elastic->rates.resize(1); }),
             Contains("rates: "));
  CHECK(admitted([](job_spec&) {}).empty());
}

TEST_CASE("the file that is written for a job reads as the same job") {
  const std::string work = "name: j\nmodel: gpt2-124m\nglobal_batch: 8\niterations: 9\n";
  const std::string files[] = {
      program,
      program + "elastic: {}\n",
      program +
          "gpus: 2\nelastic: {gpus: [2, 8], types: [A100, T4], layouts: any, grace_s: 60, "
          "checkpoint_every_s: 300, retries: 4, start_s: 0.1, save_s: 3, rates: [{gpu: T4, "
          "gpus: 4, data_parallel: 2, samples_per_s: 31.5}]}\n",
      program + "gpus: 4\nelastic: {gpus: same, types: same}\n",
      program + "elastic: {gpus: same}\n",
      program + "gpus: 3\nmax_gpus: 5\ngpu_type: T4\nenvironment: {A: \"x: 'y'\\n\\\"z\"}\n",
      "name: j\ncommand: ['true']\n",
      "name: j\ncommand: ['true']\nelastic: {gpus: [2, 4]}\n",
      program + "zero: 2\nmemory_gb: 12.5\noptimizer: sgd\nlora: {rank: 4, targets: all}\n",
      program + "zero: 0\n",
      program +
          "slo_s: 10\ndeadline_s: 20\nbudget: 0.25\npriority: -3\ntime_limit_s: 7\n"
          "rank_wait_s: 2\ngrace_s: 1\nobjective: cheapest\nkernels: flash\nmerge: false\n"
          "merge_kind: adapters\nmerge_across_owners: true\ndataset_card: [a, b]\n"
          "max_restarts: 2\nmicrobatches: 2\nworking_directory: /tmp\n",
      work,
      work + "gpus: 4\n",
      work + "max_gpus: 4\n",
      work +
          "train: {device: sim, seed: 7, learning_rate: 0.001, schedule: gpipe}\n"
          "pipeline: {cut: [6, 5.5, 0.5], microbatches: 2, recompute: layers}\n",
      work + "train: {device: sim}\npipeline: {stages: 2, recompute: false, rows: 2}\n",
      "name: s\nslots: {forward: 2, wan: 3.5}\npipeline: {stages: 2, microbatches: 4}\n",
      "name: d\nserve: {model: scribe, max_running: 512, prefill: decoder}\n"};
  for (const auto& text : files) {
    INFO(text);
    const auto job = read(text);
    if (!job) FAIL(job.error().text);
    const auto written = formats::job_text(*job);
    INFO(written);
    const auto again = read(written);
    if (!again) FAIL(again.error().text);
    CHECK(*again == *job);
  }
}
