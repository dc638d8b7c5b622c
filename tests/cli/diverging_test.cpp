#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "cli/program.hpp"
#include "gpu/model/safetensors.hpp"
#include "harness/stored_values.hpp"

// Trainings whose numbers become NaN or infinite.

using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

/// A job with learning rate 100, which overflows within a few iterations.
std::string diverging(const scratch& dir, const std::string& pipeline, const std::string& rate) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "A wheel turned under the bridge, and the water with it.\n";
  dir.write("text.txt", text);
  return dir.write("job.yaml",
                   "name: diverging\n"
                   "model: {name: tiny, family: gpt, hidden: 16, layers: 2, heads: 2, "
                   "sequence: 16, vocabulary: 256}\n"
                   "global_batch: 4\niterations: 60\n"
                   "train: {data: text.txt, seed: 1, learning_rate: " +
                       rate +
                       ", weight_decay: 0, checkpoint: saved, checkpoint_every: 1}\n"
                       "pipeline: {" +
                       pipeline + "}\n");
}

/// The number of all files of checkpoints, each of which has finite numbers only.
int checked_files(const fs::path& folder) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator{folder}) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto s = troupe::gpu::safetensors::open(entry.path());
    REQUIRE(s);
    for (const auto& [name, tensor] : s->tensors()) {
      std::vector<float> values((tensor.end - tensor.begin) / sizeof(float));
      const auto ok = s->read(tensor, values);
      INFO((ok ? "" : ok.error().text));
      CHECK(ok);
    }
    ++files;
  }
  return files;
}

}  // namespace

TEST_CASE("a training that diverges ends with its iteration, and leaves sound checkpoints") {
  for (const std::string pipeline : {"stages: 1, microbatches: 2", "stages: 2, microbatches: 2",
                                     "stages: 1, data_parallel: 2, microbatches: 1"}) {
    const scratch dir;
    const auto job = diverging(dir, pipeline, "100");
    const auto r = troupe::test::troupe({"train", job, "--world", "local"}, dir.path());
    INFO(pipeline << ": " << r.out << r.err);
    CHECK(r.status == 1);
    CHECK_THAT(r.err, Catch::Contains("iteration ") && Catch::Contains("expected") &&
                          Catch::Contains("finite number"));
    checked_files(dir.path("saved"));
    std::ifstream in{dir.path("saved/curve.csv")};
    const std::string curve{std::istreambuf_iterator<char>{in}, {}};
    CHECK(curve.find("nan") == std::string::npos);
    CHECK(curve.find("inf") == std::string::npos);
  }
}

TEST_CASE("export refuses a checkpoint with a number that is not finite, by its tensor") {
  const scratch dir;
  const auto job = diverging(dir, "stages: 1, microbatches: 2", "1e-3");
  REQUIRE(troupe::test::troupe({"train", job, "--world", "local", "--iterations", "2"}, dir.path())
              .status == 0);
  const auto exported = [&](const std::string& to) {
    return troupe::test::troupe({"export", "saved", to}, dir.path());
  };
  CHECK(exported("sound").status == 0);
  for (const auto& entry : fs::directory_iterator{dir.path("saved/iteration-000002")})
    if (entry.path().extension() == ".safetensors")
      overwrite_values(entry.path(), "h.1.mlp.c_fc.bias", 3, 1,
                       std::numeric_limits<float>::quiet_NaN());
  const auto r = exported("damaged");
  CHECK(r.status != 0);
  CHECK_THAT(r.err, Catch::Contains("'h.1.mlp.c_fc.bias': found nan at value 3"));
  CHECK_FALSE(fs::exists(dir.path("damaged/model.safetensors")));
}
