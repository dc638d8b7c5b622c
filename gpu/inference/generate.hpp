#pragma once

#include <functional>
#include <vector>

#include "gpu/inference/completion.hpp"
#include "gpu/inference/inference_device.hpp"

namespace troupe::gpu {

struct generation {
  completion_request what;            // does not score its prompt
  std::vector<std::uint32_t> prompt;  // what.prompt_tokens
  std::uint32_t chunk = 512;          // positions of a prefill; a multiple of tile_positions
  bool keep_logits = false;
  adapter_ref adapter{};
};

struct generated {
  std::uint32_t chunks = 0, steps = 0;  // of the prefill
  double ttft_s = 0;                    // until the first token
  // If they are kept: one row for each position but the last token's.
  std::vector<float> logits;
};

/// Completes one prompt on a device with the whole model; `out` grows. `received` is called with
/// every piece of text. Fails for a request that the device cannot complete, see check(), and for
/// logits that are not finite.
expected<generated> generate(inference_device& d, const generation& g, completion& out,
                             const std::function<void(std::string_view)>& received = {});

}  // namespace troupe::gpu
