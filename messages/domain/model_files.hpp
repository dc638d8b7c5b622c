#pragma once

#include <cstdint>
#include <string>

#include "messages/base/reason.hpp"
#include "messages/domain/serving.hpp"

namespace troupe {

/// A hash of what a served model computes with: `config.json` and, unless its weights are random,
/// the index and size of every safetensors file, and samples of its data (all of a small one).
/// Never 0. Reads at most a few MB, from regular files alone, and never blocks on another kind.
expected<std::uint64_t> hash_of_model_files(const served_model_files& m);

/// Are its files those that the job was read with? An unknown hash is not compared.
expected<void> check_model_files(const served_model_files& m);

/// A hash of an adapter's files, adapter_config.json and adapter_model.safetensors, likewise.
expected<std::uint64_t> hash_of_adapter_files(const std::string& folder);

/// Are its files those that the job was read with? An unknown hash is not compared.
expected<void> check_adapter_files(const served_adapter& a);

}  // namespace troupe
