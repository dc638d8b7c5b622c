#include "gpu/devices.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // else without listeners
#include <catch2/catch.hpp>

#include "gpu/cuda/host/device.hpp"
#include "gpu/emulation/emulated_machine.hpp"

namespace troupe::test {

namespace {

constexpr double gradients_off = 0.01, losses_off = 0.001;  // in 16 bits

expected<std::unique_ptr<gpu::stage_device>> make_emulated(const gpu::stage_spec& s) {
  auto ok = gpu::check(s);
  if (ok) ok = gpu::cuda::check_shape(s);
  if (!ok) return refuse(ok.error());
  return std::make_unique<gpu::cuda::device>(s, emulated_machine());
}

/// Why the machine has no CUDA device; empty if it has one.
const std::string& why_no_cuda() {
  static const std::string why = [] {
    gpu::stage_spec s;
    s.model.heads = 1;
    s.model.hidden = 64;
    s.model.layers = s.model.sequence = s.model.vocabulary = 1;
    s.sublayers = 2;
    const auto d = gpu::make_cuda_device(s);
    return d ? std::string{} : d.error().text;
  }();
  return why;
}

/// Ends the run before its first test where the device that was asked for cannot be used: its tests
/// would fail one by one, each without the reason.
class wanted_device : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testRunStarting(const Catch::TestRunInfo&) override {
    const auto* only = std::getenv("TROUPE_TEST_DEVICE");
    if (!only) {
      if (!why_no_cuda().empty())
        fmt::print("The CUDA device's own tests are skipped: {}\n", why_no_cuda());
    } else if (devices().empty()) {
      fmt::print(
          "TROUPE_TEST_DEVICE={}: {}\n", only,
          only == std::string{"cuda"} ? why_no_cuda() : "the devices are cpu, emulated and cuda");
      std::exit(1);
    }
    std::fflush(stdout);
  }
};
CATCH_REGISTER_LISTENER(wanted_device)

}  // namespace

std::vector<tested_device> devices() {
  std::vector<tested_device> all{{"cpu", gpu::make_cpu_device, 0, 0, 0},
                                 {"emulated", make_emulated, 0, gradients_off, losses_off}};
  if (why_no_cuda().empty())
    all.push_back({"cuda", [](const gpu::stage_spec& s) { return gpu::make_cuda_device(s); }, 0,
                   gradients_off, losses_off});
  if (const auto* only = std::getenv("TROUPE_TEST_DEVICE"))
    std::erase_if(all, [&](const tested_device& k) { return k.name != only; });
  return all;
}

}  // namespace troupe::test
