#include <array>

#include "formats/load/load.hpp"

namespace troupe::formats {

// Names for the usual links, so that cluster files need no rates and latencies.
std::span<const link> known_links() {
  // Rates are per direction and per GPU or machine, nominal, without protocol overhead. Latencies
  // are one-way for a small message between two GPUs in a collective step: typical results of NCCL
  // tests and MPI benchmarks, not datasheet figures.
  static const std::array<link, 12> table{{
      {"nvlink", 2400,
       3},  // NVLink 3, A100: 12 links of 25 GB/s each way (A100 datasheet: 600 GB/s both)
      {"nvlink4", 3600,
       3},  // NVLink 4, H100: 18 links of 25 GB/s each way (H100 datasheet: 900 GB/s both)
      {"nvlink5", 7200,
       3},  // NVLink 5, B200: 18 links of 50 GB/s each way (GB200 NVL72 datasheet: 1.8 TB/s both)
      {"pcie3", 126, 8},  // x16 at 8 GT/s, 128b/130b: 15.75 GB/s (PCI Express 3.0 specification)
      {"pcie4", 252, 7},  // x16 at 16 GT/s: 31.5 GB/s (4.0)
      {"pcie5", 504, 6},  // x16 at 32 GT/s: 63.0 GB/s (5.0)
      {"ib100", 100, 5},  // InfiniBand EDR 4x (ConnectX-5)
      {"ib200", 200, 5},  // HDR 4x (ConnectX-6)
      {"ib400", 400, 5},  // NDR 4x (ConnectX-7)
      {"eth10", 10, 50},  // TCP through the kernel
      {"eth25", 25, 40},
      {"eth100", 100, 30},
  }};
  return table;
}

}  // namespace troupe::formats
