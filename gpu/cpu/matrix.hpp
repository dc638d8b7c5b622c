#pragma once

#include <cstddef>
#include <string>

namespace troupe::gpu::cpu {

/// A view of rows x columns values, `stride` values apart in memory. Turned: of the transpose of
/// the stored matrix.
template <class T>
struct matrix {
  T* at = nullptr;
  std::size_t rows = 0, columns = 0, stride = 0;
  bool turned = false;

  matrix() = default;
  matrix(T* first, std::size_t r, std::size_t c) : matrix(first, r, c, c) {}
  matrix(T* first, std::size_t r, std::size_t c, std::size_t s)
      : at{first}, rows{r}, columns{c}, stride{s} {}
  operator matrix<const T>() const {
    matrix<const T> m{at, rows, columns, stride};
    m.turned = turned;
    return m;
  }
  matrix transposed() const {
    matrix m{at, columns, rows, stride};
    m.turned = !turned;
    return m;
  }
};

template <class T>
matrix(T*, std::size_t, std::size_t) -> matrix<T>;

/// c = a b, or c += a b. c must not be turned. Single-threaded and reentrant. Equal shapes give
/// bitwise equal results on the same machine.
enum class into : bool { set, add };
void multiply(matrix<const float> a, matrix<const float> b, matrix<float> c, into how = into::set);
void multiply(matrix<const double> a, matrix<const double> b, matrix<double> c,
              into how = into::set);

/// The matrix library, and its version.
std::string products_library();

/// Prepares the calling thread: no threads of the library, denormals are zero.
void prepare_thread();

}  // namespace troupe::gpu::cpu
