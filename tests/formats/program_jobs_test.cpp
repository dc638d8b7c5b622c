#include <catch2/catch.hpp>
#include <fstream>

#include "formats/load/load.hpp"
#include "harness/scratch.hpp"
#include "messages/admission/admission.hpp"
#include "messages/base/refuse.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const char* const job_file = R"(
name: gpt
global_batch: 16
iterations: 20
train: {program: gpt.py, arguments: {layers: 4, lr: 3e-4, text: "7", tied: true}, device: cpu}
pipeline: {stages: 2, microbatches: 4, cut: [1, 2]}
)";

model three_layers() {
  model m;
  m.name = "gpt";
  m.family = "layers";
  m.layers = 3;
  m.tied_head = false;
  for (const auto* name : {"0-Embedding", "1-Block", "2-Head"})
    m.operators.push_back({name, 1e6, 100, 64, 256, 800, false});
  m.operators[2].glued = true;
  m.operators[2].output_bytes = 0;
  return m;
}

/// Job files in a folder with the program.
struct folder : scratch {
  folder() { write("gpt.py", "def model(): ..."); }

  expected<job_spec> load(const std::string& text,
                          const formats::program_description& describe) const {
    return formats::load_job(write("job.yaml", text), {}, nullptr, describe);
  }
  std::string refusal(const std::string& text) const {
    const auto job = load(text, [](layer_file&) -> expected<model> { return three_layers(); });
    REQUIRE(!job);
    return job.error().text;
  }
};

}  // namespace

TEST_CASE("a job of a program gets the model that its file makes") {
  const folder here;
  const auto job = here.load(job_file, [](layer_file& p) -> expected<model> {
    p.sha256 = "abc";
    auto m = three_layers();
    m.operators[2].glued = false;
    return m;
  });
  REQUIRE(job);
  const auto& p = *job->train->program;
  CHECK(p.file == here.path("gpt.py"));
  CHECK(p.sha256 == "abc");
  CHECK(p.arguments == R"({"layers":4,"lr":0.0003,"text":"7","tied":true})");
  CHECK(job->model.operators.size() == 3);
  CHECK(job->pipeline.cut == std::vector<std::uint32_t>{1, 2});
}

TEST_CASE("a program's job and model are read as they are written") {
  const folder here;
  auto described = three_layers();
  described.operators[2].glued = false;
  const auto job = here.load(job_file, [&](layer_file&) -> expected<model> { return described; });
  REQUIRE(job);
  const auto again = formats::load_job(here.write("again.yaml", formats::job_text(*job)));
  REQUIRE(again);
  CHECK(*again == *job);
  const auto m = formats::load_model(here.write("model.yaml", formats::model_text(three_layers())));
  REQUIRE(m);
  CHECK(*m == three_layers());
}

TEST_CASE("a program may recompute layer by layer, which the built-in trainer cannot") {
  const folder here;
  auto described = three_layers();
  described.operators[2].glued = false;
  const std::string text =
      "{name: a, global_batch: 4, iterations: 4, train: {program: gpt.py, device: cpu}, "
      "pipeline: {stages: 2, recompute: layers}}";
  const auto job = here.load(text, [&](layer_file&) -> expected<model> { return described; });
  REQUIRE(job);
  CHECK(recomputes_layers(job->pipeline));
  const auto again = formats::load_job(here.write("again.yaml", formats::job_text(*job)));
  REQUIRE(again);
  CHECK(*again == *job);
}

TEST_CASE("what a program's file has itself is refused in its job") {
  const folder here;
  for (const auto* key :
       {"data: a.txt", "vocabulary: v", "learning_rate: 0.1", "weight_decay: 0.1"}) {
    const std::string word{key};
    const auto text =
        here.refusal("{name: a, global_batch: 4, iterations: 4, train: {program: gpt.py, " + word +
                     "}, pipeline: {stages: 1}}");
    INFO(text);
    CHECK(text.find("train." + word.substr(0, word.find(':'))) != std::string::npos);
    CHECK(text.find("found with program") != std::string::npos);
  }
  CHECK(
      here.refusal(
              "{name: a, global_batch: 4, iterations: 4, train: {program: gpt.py, arguments: [1]}}")
          .find("expected a map") != std::string::npos);
  CHECK(here.refusal("{name: a, global_batch: 4, iterations: 4, model: gpt2-124m, train: {program: "
                     "gpt.py}}")
            .find("family layers") != std::string::npos);
  CHECK(here.refusal("{name: a, global_batch: 4, iterations: 4, train: {program: gpt.py}, "
                     "pipeline: {cut: [2, 1]}}")
            .find("shares a parameter") != std::string::npos);
}

TEST_CASE("without a description a program's job needs a model file, and a refusal is its reason") {
  const folder here;
  const auto none = formats::load_job(here.write("job.yaml", job_file));
  REQUIRE(!none);
  CHECK(none.error().text.find("troupe describe PROGRAM --out FILE") != std::string::npos);
  const auto refused = here.load(job_file, [](layer_file&) -> expected<model> {
    return refuse(reason::kind::invalid, "layer 1 (Block): None");
  });
  REQUIRE(!refused);
  CHECK(refused.error().text == "layer 1 (Block): None");
}

TEST_CASE("gradients of a program are summed by the hosts or by torch") {
  const folder here;
  const auto load = [&](const std::string& who) {
    std::string text = job_file;
    const std::string key = "train: {";
    text.insert(text.find(key) + key.size(), "gradients: " + who + ", ");
    return here.load(text, [](layer_file&) -> expected<model> { return three_layers(); });
  };
  const auto job = load("torch");
  REQUIRE(job);
  CHECK(job->train->program->gradients == "torch");
  CHECK(sums_on_devices(*job->train, "cpu"));
  CHECK_FALSE(sums_on_devices(*load("host")->train, "cuda"));
  const auto bad = load("nccl");
  REQUIRE(!bad);
  CHECK(bad.error().text.find("gradients") != std::string::npos);
  CHECK(bad.error().text.find("torch") != std::string::npos);
}
