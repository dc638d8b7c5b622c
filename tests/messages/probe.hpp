#pragma once

#include <cstddef>
#include <span>

namespace troupe::testing {

/// No decoder may ask for more memory than this for an input of that size. An empty string in a
/// list is one byte on the wire and 32 in memory; an entry of a map is three and about a hundred;
/// an empty work order is 38, and has room for all fields of a training and a decoder.
constexpr std::size_t max_bytes_for(std::size_t input_bytes) {
  return 1024 + 64 * input_bytes;
}

/// The result for one input.
struct probed {
  bool message = false, entry = false;  // it was one
  std::size_t allocated_bytes = 0;      // by the hungrier of the two
};

/// Gives any bytes to every decoder. Ends the program, saying why and with which bytes, if one
/// throws, asks for too much memory, refuses without a sentence, or accepts what it does not give
/// back when encoded again. The property test and the fuzzer both call this.
probed probe(std::span<const std::byte> input);

}  // namespace troupe::testing
