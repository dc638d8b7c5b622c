#pragma once

#include <cstdint>
#include <memory>

#include "gpu/inference/inference_device.hpp"
#include "web/openai/generator.hpp"

namespace troupe::web {

struct batch_limits {
  std::uint32_t running = 64;     // sequences at a time; beyond them, sequences wait
  std::uint32_t sequences = 256;  // running and waiting; beyond them, submit() refuses
  std::uint32_t prefill = 256;    // positions of prompts between two decodes; multiple of a tile
  bool shares = true;             // pages of prompts with the same beginning
};

/// Continuous batching on one device, which a thread of its own uses: all running sequences are
/// decoded together, and between two decodes the prompts of admitted ones are computed. Pages are
/// shared and taken as gpu::batch_queue says, and free after a sequence's end. Its tokens are those
/// of gpu::generate(), bit for bit, whatever its company.
/// words: null: tokens without text.
std::unique_ptr<generator> make_batch_loop(std::unique_ptr<gpu::inference_device> device,
                                           std::shared_ptr<const gpu::tokenizer> words,
                                           const batch_limits& limits);

}  // namespace troupe::web
