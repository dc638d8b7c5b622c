#pragma once

#include <string>
#include <vector>

namespace troupe::bench {

/// GFLOP/s of independent fused multiply-adds in registers: the peak of one core.
double multiply_add_peak();

struct product_speed {
  std::string what;
  std::size_t rows = 0, columns = 0, inner = 0;
  double gflops = 0;
};
/// The products of a training step of a model of that size, each alone, and all by their share of
/// the operations (last).
std::vector<product_speed> product_speeds(std::size_t tokens, std::size_t hidden,
                                          std::size_t vocabulary, std::size_t layers);

}  // namespace troupe::bench
