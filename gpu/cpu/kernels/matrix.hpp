#pragma once

#include <string>

#include "gpu/cpu/kernels/matrix_view.hpp"

namespace troupe::gpu::cpu {

/// c = a b, or c += a b. c must not be turned. Single-threaded and reentrant. Equal shapes give
/// bitwise equal results on the same machine.
void multiply(matrix<const float> a, matrix<const float> b, matrix<float> c, into how = into::set);
void multiply(matrix<const double> a, matrix<const double> b, matrix<double> c,
              into how = into::set);

/// The matrix library, and its version.
std::string products_library();

/// Prepares the calling thread: no threads of the library, denormals are zero.
void prepare_thread();

}  // namespace troupe::gpu::cpu
