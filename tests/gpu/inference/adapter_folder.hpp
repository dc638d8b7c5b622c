#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gpu/inference/adapter.hpp"

namespace troupe::test {

/// The two files of an adapter's folder, as PEFT writes them.
struct adapter_files {
  struct tensor {
    std::vector<std::uint64_t> shape;
    std::vector<float> values;
  };
  nlohmann::json config;
  std::map<std::string, tensor> tensors;
  std::map<std::string, std::string> metadata{{"format", "pt"}};
};

/// PEFT's names of a model's modules that have these last parts; none: of all but the head.
std::vector<std::string> modules_of(const gpu::inference_model& m,
                                    const std::vector<std::string>& kinds = {});

/// An adapter of such modules with random values of a size that changes logits; they depend on the
/// seed and the tensors' names.
adapter_files random_adapter(const gpu::inference_model& m, std::uint32_t rank, std::uint64_t seed,
                             const std::vector<std::string>& kinds = {});

/// Writes it into an empty folder of that name.
std::filesystem::path adapter_folder(const std::string& name, const adapter_files& files);

/// The adapter of such a folder. Its files record no base.
gpu::adapter_ref read_back(const std::filesystem::path& folder, const gpu::inference_model& m);

/// The base with W + scale (B A) in place of each W, in double, rounded once: a folder of that
/// name.
std::filesystem::path merged_folder(const std::string& name, const std::filesystem::path& base,
                                    const adapter_files& files, double scale);

}  // namespace troupe::test
