#include "gpu/devices.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "gpu/cuda/host/device.hpp"
#include "gpu/emulated_machine.hpp"

namespace troupe::test {

namespace {

constexpr double gradients_off = 0.01, losses_off = 0.001;  // in 16 bits

expected<std::unique_ptr<gpu::stage_device>> make_emulated(const gpu::stage_spec& s) {
  auto ok = gpu::check(s);
  if (ok) ok = gpu::cuda::check_shape(s);
  if (!ok) return refuse(ok.error());
  return std::make_unique<gpu::cuda::device>(s, emulated_machine());
}

/// Whether the machine has a CUDA device; says it once if not.
bool has_cuda() {
  static const bool has = [] {
    gpu::stage_spec s;
    s.model.heads = 1;
    s.model.hidden = 64;
    s.model.layers = s.model.sequence = s.model.vocabulary = 1;
    s.sublayers = 2;
    const auto d = gpu::make_cuda_device(s);
    if (!d) fmt::print("The CUDA device's own tests are skipped: {}\n", d.error().text);
    std::fflush(stdout);
    return d.has_value();
  }();
  return has;
}

}  // namespace

std::vector<device_kind> devices() {
  std::vector<device_kind> all{{"cpu", gpu::make_cpu_device, 0, 0, 0},
                               {"emulated", make_emulated, 0, gradients_off, losses_off}};
  if (has_cuda())
    all.push_back({"cuda", [](const gpu::stage_spec& s) { return gpu::make_cuda_device(s); }, 0,
                   gradients_off, losses_off});
  if (const auto* only = std::getenv("TROUPE_TEST_DEVICE"))
    std::erase_if(all, [&](const device_kind& k) { return k.name != only; });
  return all;
}

}  // namespace troupe::test
