#pragma once

#include <cstdint>
#include <string>

#include "gpu/inference/inference_model.hpp"

namespace troupe::bench {

/// Writes the random weights that a device has for this seed (inference_spec::seed) as a GGUF file
/// for llama.cpp, in 32-bit floats. Tokens are named by their numbers. Ends the program if it
/// cannot.
void write_gguf(const std::string& file, const gpu::inference_model& m, std::uint64_t seed);

}  // namespace troupe::bench
