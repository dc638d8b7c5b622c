#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "formats/load/load.hpp"
#include "harness/files.hpp"

using namespace troupe;
using test::loaded;
namespace fs = std::filesystem;

namespace {

/// Every shipped file of a folder, in order.
std::vector<fs::path> files(const char* folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator{test::shipped / folder})
    out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

std::size_t gpus_of(const cluster& c) {
  std::size_t n = 0;
  for (const auto& node : c.nodes) n += node.gpus;
  return n;
}

}  // namespace

TEST_CASE("the catalogue's figures agree with each other and with the GPUs' names") {
  const auto types = loaded(formats::load_catalogue(test::shipped / "gpus.yaml"));
  CHECK(types.size() >= 30);
  for (const auto& t : types) {
    INFO(t.name);
    CHECK(t.source.find("price: ") != std::string::npos);
    CHECK(t.price_per_hour > 0);
    CHECK(t.fp16_tflops >= t.fp32_tflops);
    if (t.name.ends_with("GB"))
      CHECK(t.memory_gb == std::stod(t.name.substr(t.name.rfind('-') + 1)));
    // TF32 came with Ampere, which is 8.0; AMD's have no CUDA.
    REQUIRE(t.compute_capability);
    CHECK((*t.compute_capability == 0) == (t.source.find("NVIDIA") == std::string::npos));
    if (*t.compute_capability > 0) CHECK((*t.compute_capability >= 8) == (t.tf32_tflops > 0));
    CHECK(t.tf32_tflops <= t.fp16_tflops);
    // FP8 came with Ada and Hopper, at twice the rate of half precision.
    if (*t.compute_capability > 0)
      CHECK((*t.compute_capability >= 8.9) == t.fp8_tflops.has_value());
    if (t.fp8_tflops) CHECK(*t.fp8_tflops / t.fp16_tflops == Approx(2).epsilon(0.03));
  }
}

TEST_CASE("every shipped cluster loads") {
  for (const auto& file : files("clusters")) {
    INFO(file);
    const auto c = loaded(formats::load_cluster(file));
    CHECK(c.name == file.stem().string());
  }
}

TEST_CASE("every shipped model loads") {
  for (const auto& file : files("models")) {
    INFO(file);
    // A folder has the weights, too.
    const auto about = fs::is_directory(file) ? file / "config.json" : file;
    CHECK(loaded(formats::load_model(about)).name == file.stem().string());
  }
}

TEST_CASE("every shipped job loads, its GPU type from the catalogue") {
  const auto types = loaded(formats::load_catalogue(test::shipped / "gpus.yaml"));
  std::size_t of_folders = 0;
  for (const auto& file : files("jobs")) {
    INFO(file);
    const auto job = formats::load_job(file, types);
    // The model of a fine-tuning is its folder's, which the package reads.
    if (!job && job.error().text.find("reads it from train.base") != std::string::npos)
      ++of_folders;
    else
      CHECK(loaded(job).name == file.stem().string());
  }
  CHECK(of_folders == 4);
}

TEST_CASE("every shipped fault scenario loads, and names hosts of the demo cluster only") {
  const auto demo = loaded(formats::load_cluster(test::shipped / "clusters/demo.yaml"));
  for (const auto& file : files("faults")) {
    INFO(file);
    const auto plan = loaded(formats::load_faults(file));
    CHECK(plan.name == file.stem().string());
    const auto good = formats::check_faults(plan, demo, file.string());
    CHECK((good ? "" : good.error().text) == "");
  }
}

TEST_CASE("the papers' clusters have the papers' GPUs") {
  const std::pair<const char*, std::size_t> sizes[] = {
      {"frenzy-testbed", 11}, {"frenzy-sim", 44}, {"crius-testbed", 64}, {"crius-sim", 1280},
      {"espresso", 56},       {"titan", 64},      {"atlas-testbed", 12}, {"atlas-sim", 3000},
      {"philly", 1024},       {"demo", 24}};
  for (const auto& [name, gpus] : sizes) {
    INFO(name);
    const auto c =
        loaded(formats::load_cluster(test::shipped / "clusters" / (std::string{name} + ".yaml")));
    CHECK(gpus_of(c) == gpus);
  }
}

TEST_CASE("Crius's models have the parameters of its Table 2") {
  const std::pair<const char*, double> sizes[] = {{"wide-resnet-0.5b", 0.5}, {"wide-resnet-1b", 1},
                                                  {"wide-resnet-2b", 2},     {"wide-resnet-4b", 4},
                                                  {"wide-resnet-6.8b", 6.8}, {"moe-0.69b", 0.69},
                                                  {"moe-1.3b", 1.3},         {"moe-2.4b", 2.4},
                                                  {"moe-10b", 10},           {"moe-27b", 27}};
  for (const auto& [name, billions] : sizes) {
    INFO(name);
    double sum = 0;
    for (const auto& op :
         loaded(formats::load_model(test::shipped / "models" / (std::string{name} + ".yaml")))
             .operators)
      sum += op.parameters;
    CHECK(sum / 1e9 == Approx(billions).epsilon(0.04));
  }
}
