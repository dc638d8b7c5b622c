#include <catch2/catch.hpp>

#include "cli/program.hpp"
#include "cli/reports/training_result.hpp"

// Sentences about what newcomers type, and results that they read.

using namespace troupe::test;
using Catch::Contains;

namespace {

/// A training of a program on two CPUs: 4 iterations of 16 samples, 50 ms each.
troupe::cli::training_result trained_program() {
  troupe::cli::training_result t;
  t.world = "local";
  t.job.name = "mlp";
  t.job.global_batch = 16;
  t.job.train.emplace().program.emplace();
  auto& r = t.report;
  r.device = "cpu";
  r.stages = 2;
  r.pipelines = 1;
  r.microbatches = 4;
  for (int i = 0; i < 4; ++i) {
    auto& x = r.iterations.emplace_back();
    x.begin_s = 0.05 * i;
    x.end_s = 0.05 * (i + 1);
    x.loss = 2;
  }
  r.program.emplace().peak_bytes = {272'000'000, 271'000'000};
  r.program->engine = "PyTorch 2.6";
  t.predicted_bytes = 6.22e6;
  return t;
}

}  // namespace

TEST_CASE("a training whose samples have no tokens ends with samples a second") {
  auto t = trained_program();
  CHECK_THAT(text_of(t), Contains("\n320 samples/s\n") && !Contains("tokens/s"));
  CHECK(document_of(t).at("samples_per_s").get<double>() == Approx(320));
  CHECK(document_of(t).at("tokens_per_s") == 0);
  t.report.tokens_per_s = 16867.2;
  CHECK_THAT(text_of(t), Contains("\n16,867 tokens/s\n") && !Contains("samples/s"));
  t = trained_program();
  t.job.global_batch = 1;
  CHECK_THAT(text_of(t), Contains("\n20 samples/s\n"));
}

TEST_CASE("peaks of memory on a CPU are those of the process, and say so beside the prediction") {
  auto t = trained_program();
  CHECK_THAT(text_of(t), Contains("peak memory by stage 272 MB, 271 MB, PyTorch's own included; "
                                  "predicted 6.22 MB at most for the model alone\n"));
  t.report.device = "cuda";
  CHECK_THAT(text_of(t),
             Contains("peak memory by stage 272 MB, 271 MB; predicted 6.22 MB at most\n"));
}

TEST_CASE("a program or a script in a job file's place gets what to type instead") {
  const scratch dir;
  const auto program = dir.write("mlp.py", "import torch\n\ndef model():\n  return [\n");
  for (const auto* verb : {"submit", "train", "check"}) {
    INFO(verb);
    const auto r = troupe::test::troupe({verb, program});
    CHECK(r.status == 2);
    CHECK_THAT(r.err, Contains("mlp.py: found a Python program, expected a job file: `train: "
                               "{program: mlp.py}`"));
  }
  const auto script = dir.write("job.sh", "python3 train.py\n");
  CHECK_THAT(troupe::test::troupe({"submit", script}).err,
             Contains("job.sh: found a script, expected a job file; `troupe submit -- sh "));
  const auto named = dir.write("nightly", "#!/bin/sh\npython3 train.py\n");
  CHECK_THAT(troupe::test::troupe({"submit", named}).err, Contains("nightly: found a script"));
}

TEST_CASE("check warns of a training's files that are not here, and of a batch too small to grow") {
  const scratch dir;
  const auto warned = [&](const std::string& text) {
    const auto r = troupe::test::troupe({"check", dir.write("job.yaml", text)});
    INFO(r.out);
    CHECK(r.status == 0);
    return r.err;
  };
  const std::string training = "name: t\nmodel: gpt2-124m\nglobal_batch: 4\niterations: 2\n";
  CHECK_THAT(warned(training + "train: {data: nowhere.txt}\n"),
             Contains("warning: data: ") && Contains("nowhere.txt is not on this machine"));
  dir.write("here.txt", "text\n");
  CHECK(warned(training + "train: {data: here.txt}\n") == "");
  CHECK(warned(training + "train: {device: sim}\n") == "");

  const std::string program = "name: e\ncommand: [python3, e.py]\n";
  const auto elastic = warned(program + "gpus: 1\nelastic: {gpus: [1, 4]}\n");
  CHECK_THAT(elastic,
             Contains("elastic: 1 to 4 GPUs, but an iteration has 1 sample (global_batch is "
                      "not given), and every GPU needs one"));
  // It names GPUs, so they are not what is missing.
  CHECK_THAT(elastic, Contains("no model or memory_gb: planned as gpt2-124m") &&
                          Contains("on 1 to 4 GPUs") && !Contains("model, gpus"));
  CHECK_THAT(warned(program + "global_batch: 8\nelastic: {gpus: [1, 4]}\n"),
             !Contains("every GPU needs one"));
  CHECK_THAT(warned(program + "elastic: {gpus: [1, 4], layouts: any}\n"),
             !Contains("every GPU needs one"));
  CHECK_THAT(warned(program), Contains("no model, gpus or memory_gb: planned as gpt2-124m"));
}

TEST_CASE("an unknown model's name is answered with those that are shipped") {
  const scratch dir;
  const auto job = dir.write("job.yaml", "name: t\nmodel: gpt3\nglobal_batch: 4\niterations: 2\n");
  CHECK_THAT(troupe::test::troupe({"check", job}).err,
             Contains("no model 'gpt3'") && Contains("shipped models: ") && Contains("gpt2-124m"));
}
