// For libFuzzer (-DTROUPE_FUZZ=ON with clang): build/fuzz/fuzz_decode -max_total_time=60

#include <cstdint>

#include "probe.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troupe::testing::probe(std::as_bytes(std::span{data, size}));
  return 0;
}
