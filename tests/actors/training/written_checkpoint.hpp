#pragma once

#include <catch2/catch.hpp>

#include <filesystem>
#include <vector>

#include "gpu/model/checkpoint.hpp"

namespace troupe::actors::tests {

/// A transformer whose checkpoints are a few kilobytes.
inline model tiny_model() {
  model m;
  m.name = "tiny";
  m.family = "gpt";
  m.hidden = 16;
  m.layers = 2;
  m.heads = 2;
  m.sequence = 16;
  m.vocabulary = 32;
  return m;
}

/// A complete checkpoint of zeros, in one file of this name.
inline std::filesystem::path write_checkpoint(const std::filesystem::path& root, const model& m,
                                              std::uint64_t iteration) {
  const auto directory = gpu::checkpoint_directory(root, iteration);
  std::filesystem::create_directories(directory);
  const auto parameters = gpu::parameters_of(m);
  std::vector<std::vector<float>> values;
  std::vector<gpu::tensor_to_store> tensors;
  for (const auto& p : parameters) values.emplace_back(p.values());
  for (std::size_t i = 0; i < parameters.size(); ++i)
    tensors.push_back({parameters[i].name, parameters[i].shape(), values[i]});
  const auto file = directory / "layers-all.safetensors";
  REQUIRE(gpu::write_safetensors(file, tensors, {{"iteration", std::to_string(iteration)}}));
  REQUIRE(gpu::write_index(directory, m, iteration, {file.filename().string()}));
  return file;
}

}  // namespace troupe::actors::tests
