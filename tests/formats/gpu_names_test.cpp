#include <catch2/catch.hpp>
#include <string>

#include "formats/load/gpu_names.hpp"
#include "formats/load/load.hpp"
#include "harness/files.hpp"

using namespace troupe;

namespace {

constexpr double mib = 1024 * 1024;

/// The shipped type of a card, by the name and memory that nvidia-smi prints; "": none.
std::string type_of(const std::string& device, double memory_mib) {
  static const auto all = test::loaded(formats::load_catalogue(test::shipped / "gpus.yaml"));
  const auto* found = formats::type_of_device(all, device, memory_mib * mib);
  return found ? found->name : "";
}

}  // namespace

TEST_CASE("a GPU's name and memory find its own entry of the catalogue") {
  struct row {
    const char* device;
    double memory_mib;
    const char* type;
  };
  for (const auto& [device, memory, type] : {row{"NVIDIA H100 80GB HBM3", 81559, "H100-80GB"},
                                             {"NVIDIA H100 PCIe", 81559, "H100-PCIe-80GB"},
                                             {"NVIDIA H100 NVL", 95830, "H100-NVL-94GB"},
                                             {"NVIDIA H200", 143771, "H200-141GB"},
                                             {"NVIDIA A100-SXM4-40GB", 40960, "A100-40GB"},
                                             {"NVIDIA A100-SXM4-80GB", 81920, "A100-80GB"},
                                             {"NVIDIA A100 80GB PCIe", 81920, "A100-PCIe-80GB"},
                                             {"NVIDIA A100-PCIE-40GB", 40960, "A100-PCIe-40GB"},
                                             {"NVIDIA L4", 23034, "L4"},
                                             {"NVIDIA L40S", 46068, "L40S"},
                                             {"NVIDIA RTX A6000", 49140, "A6000"},
                                             {"NVIDIA GeForce RTX 4090", 24564, "RTX4090"},
                                             {"NVIDIA GH200 480GB", 97871, "GH200-96GB"},
                                             {"NVIDIA B200", 183359, "B200-192GB"},
                                             {"NVIDIA GB200", 189471, "GB200"},
                                             {"NVIDIA GeForce RTX 2080 Ti", 11264, "RTX2080Ti"},
                                             {"Tesla V100-SXM2-32GB", 32510, "V100-32GB"},
                                             {"Tesla T4", 15360, "T4"}}) {
    CAPTURE(device);
    CHECK(type_of(device, memory) == type);
  }
}

TEST_CASE("a GPU that the catalogue has not is no other GPU") {
  for (const auto& [device, memory] : {std::pair{"NVIDIA H800", 81559.0},
                                       {"NVIDIA L4000", 23034.0},
                                       {"NVIDIA L40", 46068.0},
                                       {"NVIDIA A10G", 23028.0},
                                       {"NVIDIA H200 NVL", 143771.0},
                                       {"Tesla V100-PCIE-16GB", 16160.0},
                                       {"NVIDIA GeForce RTX 4090 Laptop GPU", 16376.0},
                                       {"NVIDIA GeForce RTX 4090 D", 24564.0},
                                       {"NVIDIA RTX 6000 Ada Generation", 24576.0},
                                       {"NVIDIA A100X", 81920.0},
                                       {"Tesla T4 something", 15360.0},
                                       {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9856.0},
                                       {"NVIDIA H100 80GB HBM2e", 81559.0},
                                       {"NVIDIA H100", 65000.0},
                                       {"H100-80GB", 0.0},
                                       {"NVIDIA", 81559.0},
                                       {"", 81559.0}}) {
    CAPTURE(device);
    CHECK(type_of(device, memory) == "");
  }
}
