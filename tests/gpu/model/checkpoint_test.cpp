#include "gpu/model/checkpoint.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <limits>

#include "gpu/pipeline.hpp"
#include "harness/files.hpp"
#include "harness/stored_values.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;
using sublayers = std::vector<std::uint32_t>;

std::vector<std::string> files_of(const pipeline& p) {
  std::vector<std::string> names;
  for (const auto& s : p.specs) names.push_back(stage_file(s));
  return names;
}

std::string text_of(const fs::path& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

}  // namespace

TEST_CASE("a checkpoint of p stages continues with q stages without any difference") {
  const auto kind = GENERATE(from_range(devices()));
  const bool tied = GENERATE(true, false);
  const auto from = GENERATE(sublayers{12}, sublayers{3, 4, 5}),
             to = GENERATE(sublayers{12}, sublayers{8, 4}, sublayers{5, 7});
  CAPTURE(kind.name, tied, from, to);
  const auto m = small_model(tied);
  const auto root = fresh_path("checkpoint");
  pipeline first{kind, m, from}, next{kind, m, to};
  for (std::uint64_t i = 0; i < 2; ++i) first.learn(lessons(m, 2, 2, i));
  const auto directory = checkpoint_directory(root, 2);
  first.save(directory.string());
  CHECK_FALSE(newest_checkpoint(root));  // not before its index is there
  CHECK(write_index(directory, m, 2, files_of(first)));
  const auto found = newest_checkpoint(root);
  REQUIRE(found);
  CHECK(found->iteration == 2);
  next.load(found->directory.string());
  if (kind.tolerance == 0) CHECK(next.weights() == first.weights());
  const auto all = lessons(m, 2, 2, 2);
  const auto a = first.learn(all), b = next.learn(all);
  if (kind.tolerance == 0) {
    CHECK(a.losses == b.losses);
    CHECK(first.weights() == next.weights());  // moments and step came along
  }
}

TEST_CASE("the newest checkpoint is the one with the largest number") {
  const auto root = fresh_path("several");
  for (const auto* name : {"iteration-000009", "iteration-000100", "iteration-2000000", "other"}) {
    fs::create_directories(root / name);
    std::ofstream{root / name / "model.safetensors.index.json"} << "{}";
  }
  fs::create_directories(root / "iteration-9000000");  // no index
  REQUIRE(newest_checkpoint(root));
  CHECK(newest_checkpoint(root)->iteration == 2000000);
  CHECK_FALSE(newest_checkpoint(root / "nowhere"));
}

TEST_CASE("an index is not written while a stage's file is missing") {
  const auto kind = devices()[0];
  const auto m = small_model();
  const auto directory = fresh_path("missing");
  pipeline p{kind, m, {4, 8}};
  p.save(directory.string());
  CHECK_THAT(write_index(directory, m, 0, {stage_file(p.specs[0])}).error().text,
             Catch::Contains("no stage saved 'h.2.ln_1.weight'"));
  CHECK_THAT(write_index(directory, m, 5, files_of(p)).error().text,
             Catch::Contains("not of iteration 5"));
  fs::remove(directory / stage_file(p.specs[1]));
  CHECK_THAT(write_index(directory, m, 0, files_of(p)).error().text,
             Catch::Contains("cannot be opened"));
}

TEST_CASE("GPT-2's tensor names and shapes are Hugging Face's, with or without prefix") {
  const auto kind = GENERATE(from_range(devices()));
  const auto m = small_model();
  const auto directory = fresh_path("named");
  pipeline p{kind, m, {12}};
  p.learn(lessons(m, 2, 1, 1));
  p.save(directory.string());
  const auto file = directory / "model.safetensors";
  CHECK(export_weights(directory, m, file));
  const auto s = loaded(safetensors::open(file));
  CHECK(s.tensors().size() == 2 + 6 * 12 + 2);
  const std::string t = "transformer.";
  CHECK(s.find(t + "h.5.mlp.c_proj.weight")->shape == std::vector<std::uint64_t>{96, 24});
  CHECK(s.find(t + "h.0.attn.c_attn.weight")->shape == std::vector<std::uint64_t>{24, 72});
  CHECK(s.find(t + "wte.weight")->shape == std::vector<std::uint64_t>{37, 24});
  CHECK(s.find("lm_head.weight") == nullptr);
  CHECK(s.find("adam.m/wte.weight") == nullptr);

  std::vector<tensor_to_store> renamed;
  std::vector<std::vector<float>> values;
  for (const auto& [name, about] : s.tensors()) {
    auto& v = values.emplace_back((about.end - about.begin) / sizeof(float));
    s.read(about, v);
    renamed.push_back({name.substr(t.size()), about.shape, {}});
  }
  for (std::size_t i = 0; i < renamed.size(); ++i) renamed[i].values = values[i];
  const auto other = temporary_folder() / "plain.safetensors";
  CHECK(write_safetensors(other, renamed, {}));
  pipeline plain{kind, m, {6, 6}}, prefixed{kind, m, {4, 8}};
  prefixed.load(file.string());
  plain.load(other.string());
  CHECK(plain.weights() == p.weights());
  CHECK(prefixed.weights() == p.weights());
}

TEST_CASE("a checkpoint of another model is refused with a sentence") {
  const auto kind = GENERATE(from_range(devices()));
  auto m = small_model();
  const auto directory = fresh_path("other");
  pipeline p{kind, m, {12}};
  p.save(directory.string());
  const auto refused = [&](const model& wrong) {
    stage_spec s = p.specs[0];
    s.model = wrong;
    s.sublayers = 2 * wrong.layers;
    auto d = kind.make(s);
    REQUIRE(d);
    return refusal(**d, {gpu::operations::load{directory.string()}});
  };
  auto wrong = m;
  wrong.vocabulary = 38;
  CHECK_THAT(refused(wrong), Catch::Contains("'wte.weight' is [37, 24]") &&
                                 Catch::Contains("[38, 24] in the model"));
  wrong = m;
  wrong.layers = 7;
  CHECK_THAT(refused(wrong), Catch::Contains("'h.6.ln_1.weight' is not in"));
  wrong = m;
  wrong.sequence = 10;  // shorter: the first positions are taken
  CHECK(refused(wrong) == "");
  auto d = kind.make(p.specs[0]);
  CHECK_THAT(refusal(**d, {gpu::operations::load{"/nowhere"}}),
             Catch::Contains("cannot be opened"));
  CHECK_THAT(refusal(**d, {gpu::operations::load{fresh_path("empty").string()}}),
             Catch::Contains("cannot be opened"));
  fs::create_directories(fresh_path("empty"));
  CHECK_THAT(refusal(**d, {gpu::operations::load{(temporary_folder() / "empty").string()}}),
             Catch::Contains("no checkpoint"));
}

TEST_CASE("files of different iterations are refused as a checkpoint") {
  const auto kind = devices()[0];
  const auto m = small_model();
  const auto directory = fresh_path("mixed");
  pipeline p{kind, m, {6, 6}};
  p.save(directory.string());
  const auto old = text_of(directory / stage_file(p.specs[0]));
  p.learn(lessons(m, 2, 1, 1));
  p.save(directory.string());
  std::ofstream{directory / stage_file(p.specs[0]), std::ios::binary} << old;
  const auto c = checkpoint::open(directory);
  REQUIRE_FALSE(c);
  CHECK_THAT(c.error().text, Catch::Contains("different iterations: 0 and 1"));
}

TEST_CASE("a stage whose values are not finite saves nothing, and says which and when") {
  constexpr float infinity = std::numeric_limits<float>::infinity(),
                  nan = std::numeric_limits<float>::quiet_NaN();
  const auto spec = test::whole_model(small_model());
  const auto parameters = parameters_of(spec);
  const auto& p = parameters.at(1);
  const std::vector<float> good(p.values(), 1.0f);
  const auto directory = fresh_path("diverged");
  CHECK(save_stage(directory, spec, 5, {{&p, good, good, good}}));
  fs::remove_all(directory);
  auto bad = good;
  bad.back() = nan;
  const auto at = fmt::format(" at value {}, expected finite numbers", bad.size() - 1);
  const auto refused = [&](const saved_values& v) {
    const auto ok = save_stage(directory, spec, 5, {v});
    CHECK_FALSE(fs::exists(directory));
    return ok ? std::string{} : ok.error().text;
  };
  const auto sentence =
      "iteration 5: '{}" + p.name + "': found {}" + at + "; no checkpoint is written";
  CHECK(refused({&p, bad, good, good}) == fmt::format(fmt::runtime(sentence), "", "nan"));
  CHECK(refused({&p, good, bad, good}) == fmt::format(fmt::runtime(sentence), "adam.m/", "nan"));
  bad.back() = infinity;
  CHECK(refused({&p, good, good, bad}) == fmt::format(fmt::runtime(sentence), "adam.v/", "inf"));
}

TEST_CASE("a device that has diverged saves no checkpoint, and loads none with such a number") {
  const auto kind = GENERATE(from_range(devices()));
  const auto m = small_model();
  const auto directory = fresh_path("diverging");
  pipeline_options how;
  how.learning_rate = 1e38;
  pipeline p{kind, m, {12}, how}, sound{kind, m, {12}};
  for (std::uint64_t i = 0; i < 5; ++i) p.learn(lessons(m, 2, 1, i));
  auto d = kind.make(p.specs[0]);
  REQUIRE(d);
  CHECK_THAT(p.refused_save(directory.string()),
             Catch::Contains("iteration 5: '") && Catch::Contains("expected finite numbers"));
  CHECK_FALSE(fs::exists(directory));
  sound.save(directory.string());
  const auto file = directory / stage_file(sound.specs[0]);
  overwrite_values(file, "h.3.ln_2.weight", 0, 1, std::numeric_limits<float>::quiet_NaN());
  CHECK_THAT(refusal(**d, {gpu::operations::load{directory.string()}}),
             Catch::Contains(file.string() + ": 'h.3.ln_2.weight': found nan at value 0"));
  CHECK_THAT(export_weights(directory, m, directory / "out.safetensors").error().text,
             Catch::Contains("'h.3.ln_2.weight': found nan at value 0"));
  CHECK_FALSE(fs::exists(directory / "out.safetensors"));
}
