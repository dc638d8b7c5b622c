#pragma once

#include <cstddef>

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

/// Whether a product replaces what is there, or is added to it.
enum class into : bool { set, add };

}  // namespace troupe::gpu::cpu
