#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gpu/inference/inference_model.hpp"
#include "gpu/inference/weights.hpp"

namespace troupe::test {

/// A kind of model: its name, and its config.json.
struct model_kind {
  std::string name, config;
};
/// Small models of every family and variant that is supported.
const std::vector<model_kind>& small_models();
/// The one of that name.
const model_kind& small_model_named(const std::string& name);

/// A folder with this config.json and random weights, norms and biases, which do not depend on the
/// folder.
std::filesystem::path model_folder(const std::string& name, const std::string& config);
std::filesystem::path model_folder(const model_kind& kind);

/// Writes tensors of these shapes with random values into FOLDER/model.safetensors.
void write_random_weights(const std::filesystem::path& folder,
                          const std::vector<gpu::named_shape>& tensors);

/// Why a path cannot be served, by its config.json, then its weights; empty: it can.
std::string refused(const std::filesystem::path& path);

/// A prompt of that many tokens below the vocabulary.
std::vector<std::uint32_t> random_prompt(std::size_t tokens, std::uint32_t vocabulary,
                                         std::uint64_t seed);

}  // namespace troupe::test
