#include "gpu/inference/inference_device.hpp"

namespace troupe::gpu {

inference_spec whole_model(const inference_model& m, std::uint32_t pages) {
  return {.model = m, .sublayers = 2 * m.layers, .embeds = true, .predicts = true, .pages = pages};
}

std::uint64_t page_bytes(const inference_model& m) {
  return cache_page_bytes_per_width * m.kv_width();
}

payload finish(inference_work& w) {
  while (w.steps_left() > 0) w.step();
  return w.result();
}

}  // namespace troupe::gpu
