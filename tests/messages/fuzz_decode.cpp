// For libFuzzer: ./dev fuzz decode

#include <cstdint>

#include "probe.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troupe::testing::probe(std::as_bytes(std::span{data, size}));
  return 0;
}
