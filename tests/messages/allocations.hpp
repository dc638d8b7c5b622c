#pragma once

#include <cstddef>

namespace troupe::testing {

/// Bytes that this thread has asked `operator new` for, since it began. Linking allocations.cpp
/// replaces the operator for the whole program.
std::size_t allocated_bytes();

}  // namespace troupe::testing
