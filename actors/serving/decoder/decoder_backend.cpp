#include "actors/serving/decoder/decoder_backend.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "gpu/device/device_type.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/model_files.hpp"

namespace troupe::actors {

// The files' hash is compared with the job's before they are read: fronts encode prompts by the
// same files. The cache must hold one sequence of the longest context, since pages for all of its
// positions are taken at admission; with fewer pages such a request would be refused for ever.
expected<std::unique_ptr<gpu::inference_device>> load_model(const serving& s,
                                                            const std::string& backend) {
  const auto* type = gpu::type_of(device_kind_of(backend).value_or(device_kind::sim));
  if (!type || !type->make_inference)
    return refuse(reason::kind::infeasible,
                  fmt::format("models are served on devices of kind {}, not '{}'",
                              real_devices(&device_facts::can_serve), backend));
  if (auto ok = check_model_files(s.model); !ok) return refuse(ok.error());
  const auto model = gpu::read_inference_model(s.model.folder);
  if (!model) return refuse(model.error());
  const auto context = s.context == 0 ? model->positions : std::min(s.context, model->positions);
  const auto bytes = static_cast<double>(gpu::page_bytes(*model)) * model->layers;
  const auto pages = s.kv_gb * bytes_per_gb / bytes;
  if (pages < gpu::pages_for(context))
    return refuse(
        reason::kind::invalid,
        fmt::format("kv_gb: a sequence of {} positions needs {:.3g} GB, and the cache has "
                    "{:.3g}",
                    context, bytes * gpu::pages_for(context) / bytes_per_gb, s.kv_gb));
  auto spec = gpu::whole_model(*model, static_cast<std::uint32_t>(std::min(pages, 1e9)));
  spec.weights = s.model.folder;
  spec.seed = s.model.random_weights;
  return type->make_inference(spec);
}

}  // namespace troupe::actors
