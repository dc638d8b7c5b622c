#pragma once

#include <map>
#include <memory>
#include <vector>

#include "gpu/inference/inference_device.hpp"
#include "gpu/inference/model_folder.hpp"
#include "gpu/inference/sampling.hpp"
#include "harness/files.hpp"

namespace troupe::test {

/// How a prompt is served; the result must not depend on any of it.
struct serving_way {
  std::uint32_t chunk = 64;
  std::uint32_t parts = 1;                           // devices that share the layers of the prefill
  std::uint32_t company = 0;                         // other sequences in each decode
  bool suspended = false;                            // other work runs between any two steps
  gpu::adapter_ref adapter{};                        // of the prompt
  std::vector<gpu::adapter_ref> company_adapters{};  // of the others, in turn; none: the base
};

/// The tokens, and the logits that each was chosen by.
struct served {
  std::vector<std::uint32_t> tokens;
  std::vector<float> logits;
  bool operator==(const served&) const = default;
};

/// Devices with parts of one model, and a decoder with all of it.
class service {
 public:
  explicit service(const std::filesystem::path& folder);

  served serve(const std::vector<std::uint32_t>& prompt, std::uint32_t new_tokens,
               const serving_way& way);
  const gpu::inference_model& model() const { return model_; }

 private:
  gpu::inference_device& device(std::uint32_t first, std::uint32_t end);
  std::vector<gpu::inference_device*> parts(std::uint32_t count);
  std::vector<float> prefill(const std::vector<std::uint32_t>& prompt, gpu::sequence_id s,
                             const serving_way& way, gpu::inference_device& decoder);
  void send_kv(gpu::inference_device& from, gpu::inference_device& to, gpu::sequence_id s,
               std::uint32_t positions);
  payload finish(gpu::inference_device& d, gpu::inference_work& w, bool suspended);
  void intrude(gpu::inference_device& d);

  std::filesystem::path folder_;
  gpu::inference_model model_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<gpu::inference_device>>
      devices_;
  std::map<const gpu::inference_device*, std::unique_ptr<gpu::inference_work>> intruders_;
};

}  // namespace troupe::test
