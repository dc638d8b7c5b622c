#pragma once

// Eigen's product under the name TROUPE_PRODUCT. Each source that includes this has other options
// of the compiler: Eigen's functions must have names of their own in each, or the linker would take
// one source's for all, and a processor meet instructions that it does not know. So its namespace
// has.
#include <eigen3/Eigen/Core>

#include "gpu/cpu/kernels/products.hpp"

namespace troupe::gpu::cpu {

namespace {

template <int Order>
using view = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Order>, 0,
                        Eigen::OuterStride<>>;
using target = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0,
                          Eigen::OuterStride<>>;

Eigen::Index index(std::size_t n) {
  return static_cast<Eigen::Index>(n);
}

template <int OrderA, int OrderB>
void product(matrix<const float> a, matrix<const float> b, matrix<float> c, into how) {
  const view<OrderA> left{a.at, index(a.rows), index(a.columns),
                          Eigen::OuterStride<>{index(a.stride)}};
  const view<OrderB> right{b.at, index(b.rows), index(b.columns),
                           Eigen::OuterStride<>{index(b.stride)}};
  target to{c.at, index(c.rows), index(c.columns), Eigen::OuterStride<>{index(c.stride)}};
  if (how == into::add)
    to.noalias() += left * right;
  else
    to.noalias() = left * right;
}

}  // namespace

void TROUPE_PRODUCT(matrix<const float> a, matrix<const float> b, matrix<float> c, into how) {
  constexpr auto rows = Eigen::RowMajor, columns = Eigen::ColMajor;
  if (a.turned && b.turned)
    product<columns, columns>(a, b, c, how);
  else if (a.turned)
    product<columns, rows>(a, b, c, how);
  else if (b.turned)
    product<rows, columns>(a, b, c, how);
  else
    product<rows, rows>(a, b, c, how);
}

}  // namespace troupe::gpu::cpu
