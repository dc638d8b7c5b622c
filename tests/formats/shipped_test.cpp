#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
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

TEST_CASE("the catalogue has every promised GPU, each with the source of its figures") {
  const auto types = loaded(formats::load_catalogue(test::shipped / "gpus.yaml"));
  for (const char* name :
       {"V100-16GB", "V100-32GB",   "P100-16GB", "K80",        "T4",         "RTX2080Ti",
        "RTX6000",   "RTX3090",     "RTX4090",   "A10",        "A30",        "A40",
        "A4000",     "A6000",       "L4",        "L40S",       "A100-40GB",  "A100-80GB",
        "A800-80GB", "H20-96GB",    "H100-80GB", "H200-141GB", "GH200-96GB", "B200-192GB",
        "MI250X",    "MI300X-192GB"}) {
    INFO(name);
    const auto at =
        std::find_if(types.begin(), types.end(), [&](auto& t) { return t.name == name; });
    REQUIRE(at != types.end());
    CHECK(at->source.size() > 10);
    CHECK(at->price_per_hour > 0);
    CHECK(at->fp16_tflops >= at->fp32_tflops);
  }
  for (const auto& t : types) {
    INFO(t.name);
    CHECK(t.source.size() > 10);
  }
  CHECK(types.size() == 30);
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
  for (const auto& file : files("jobs")) {
    INFO(file);
    CHECK(loaded(formats::load_job(file, types)).name == file.stem().string());
  }
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

TEST_CASE("the catalogue has the CUDA compute capability of every GPU") {
  const auto all = loaded(formats::load_catalogue(test::shipped / "gpus.yaml"));
  const std::map<std::string, double> some{
      {"K80", 3.7},       {"T4", 7.5},          {"A100-40GB", 8.0}, {"RTX4090", 8.9},
      {"H100-80GB", 9.0}, {"B200-192GB", 10.0}, {"MI300X-192GB", 0}};
  std::size_t found = 0;
  for (const auto& gpu : all) {
    INFO(gpu.name);
    REQUIRE(gpu.compute_capability);
    const auto it = some.find(gpu.name);
    if (it == some.end()) continue;
    CHECK(*gpu.compute_capability == it->second);
    ++found;
  }
  CHECK(found == some.size());
}

TEST_CASE("Espresso's cluster overrides price and efficiency and sets the user's quota") {
  const auto c = loaded(formats::load_cluster(test::shipped / "clusters/espresso.yaml"));
  REQUIRE(c.gpus.size() == 4);
  CHECK(c.gpus[0].name == "A6000");
  CHECK(c.gpus[0].price_per_hour == 6);
  CHECK(c.gpus[0].quota == 8);
  CHECK(c.gpus[3].efficiency == 0.55);
  CHECK(c.nodes[0].inter.gbps == 2.5);
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

TEST_CASE("Frenzy's simulated cluster is three times eight, twice eight and four GPUs") {
  const auto c = loaded(formats::load_cluster(test::shipped / "clusters/frenzy-sim.yaml"));
  REQUIRE(c.nodes.size() == 6);
  CHECK(gpus_of(c) == 44);
  CHECK(c.nodes[0].name == "rtx-0");
  CHECK(c.nodes[2].name == "rtx-2");
  CHECK(c.nodes[5].name == "quad");
  CHECK(c.gpus.size() == 3);
  CHECK(c.gpu_of(3).name == "A100-40GB");
  CHECK(c.nodes[3].intra.gbps == 2400);
}
