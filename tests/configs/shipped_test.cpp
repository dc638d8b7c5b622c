#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "configs/load.hpp"

using namespace troupe;
namespace fs = std::filesystem;

namespace {

const fs::path source = fs::path{TROUPE_SOURCE_DIR} / "configs";

/// The value, or a test failure with the reason's sentence.
template <class T>
T loaded(expected<T> result) {
  if (!result) FAIL(result.error().text);
  return std::move(*result);
}

/// Every shipped file of a folder, in order.
std::vector<fs::path> files(const char* folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator{source / folder}) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

std::size_t gpus_of(const cluster& c) {
  std::size_t n = 0;
  for (const auto& node : c.nodes) n += node.gpus;
  return n;
}

}  // namespace

TEST_CASE("the catalogue has every promised GPU, each with its source") {
  const auto types = loaded(configs::load_catalogue(source / "gpus.yaml"));
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
  CHECK(types.size() == 26);
}

TEST_CASE("every shipped cluster loads") {
  for (const auto& file : files("clusters")) {
    INFO(file);
    const auto c = loaded(configs::load_cluster(file));
    CHECK(c.name == file.stem().string());
  }
}

TEST_CASE("every shipped model loads") {
  for (const auto& file : files("models")) {
    INFO(file);
    CHECK(loaded(configs::load_model(file)).name == file.stem().string());
  }
}

TEST_CASE("every shipped job loads, its GPU type from the catalogue") {
  const auto types = loaded(configs::load_catalogue(source / "gpus.yaml"));
  for (const auto& file : files("jobs")) {
    INFO(file);
    CHECK(loaded(configs::load_job(file, types)).name == file.stem().string());
  }
}

TEST_CASE("Frenzy's simulated cluster is three times eight, twice eight and four GPUs") {
  const auto c = loaded(configs::load_cluster(source / "clusters/frenzy-sim.yaml"));
  REQUIRE(c.nodes.size() == 6);
  CHECK(gpus_of(c) == 44);
  CHECK(c.nodes[0].name == "rtx-0");
  CHECK(c.nodes[2].name == "rtx-2");
  CHECK(c.nodes[5].name == "quad");
  CHECK(c.gpus.size() == 3);
  CHECK(c.gpu_of(3).name == "A100-40GB");
  CHECK(c.nodes[3].intra.gbps == 2400);
}
