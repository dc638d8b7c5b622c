#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::bench {

/// Instructions of GPU code by what executes them.
struct instruction_counts {
  std::uint32_t tensor = 0;   // matrix products of tensor cores
  std::uint32_t shared = 0;   // loads and stores of shared memory, matrices among them
  std::uint32_t global = 0;   // loads, stores and copies of global memory
  std::uint32_t special = 0;  // exponentials, logarithms, reciprocals, roots
  std::uint32_t floats = 0;   // other arithmetic of floating-point numbers
  std::uint32_t control = 0;  // branches, barriers, waits
  std::uint32_t others = 0;   // integers and addresses, selections, moves, shuffles, constants

  std::uint32_t all() const {
    return tensor + shared + global + special + floats + control + others;
  }
};

/// A kernel's machine code.
struct kernel_code {
  std::string name;  // demangled
  std::uint32_t registers = 0;
  std::uint32_t spills = 0;  // loads and stores of registers that did not fit
  std::uint32_t instructions = 0;
  instruction_counts loop;  // its longest loop; of a kernel without one, all of it
  bool loops = false;
};

/// The kernels for compute capability `architecture` (90: 9.0) in a library that nvcc made without
/// compression. Errors: `unknown` where it has none for that architecture.
///
/// Instructions are 16 bytes from Volta to Hopper; the low 9 bits are the operation. The encoding
/// is not documented; that loops are found and read as they are shows in their products of tensor
/// cores, whose number follows from the source (counts.cpp compares them).
expected<std::vector<kernel_code>> read_gpu_code(const std::filesystem::path& library,
                                                 std::uint32_t architecture);

}  // namespace troupe::bench
