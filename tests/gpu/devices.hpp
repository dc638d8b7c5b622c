#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpu/device/stage_device.hpp"

namespace troupe::test {

/// One backend of the device seam. The same tests run over all of them.
struct tested_device {
  std::string name;
  std::function<expected<std::unique_ptr<gpu::stage_device>>(const gpu::stage_spec&)> make;
  double tolerance = 0;  // of one backend with itself, in another split; 0: bit for bit
  // From the CPU's: of gradients as a fraction of their norm, of losses as a fraction of the loss.
  // A factor in 16 bits is off by 1/512 at most; sums of many such are off by less, and a gradient
  // has come through a dozen of them.
  double gradients_off = 0, losses_off = 0;
};

/// Those that this machine has. The CPU's; the CUDA device's, run without a GPU by emulation.cpp;
/// and the CUDA device itself, if there is one (else a line is printed once why there is none).
/// TROUPE_TEST_DEVICE=NAME: that one alone, as for compute-sanitizer; the run ends with status 1
/// and the reason if it cannot be used.
std::vector<tested_device> devices();

}  // namespace troupe::test
