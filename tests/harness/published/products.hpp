#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"

// Shares of a GPU's peak that one library's matrix products reach
// (tests/planners/published_products.csv names the source), and how much faster a GPU type is than
// another by them and by the catalogue.

namespace troupe::harness {

struct published_products {
  std::string gpu, tool;
  double peak_tflops = 0;             // that the shares are of
  double flop_from = 0, flop_to = 0;  // of one product
  double share = 0;                   // median over shapes

  double flops_s() const { return peak_tflops * 1e12 * share; }
};

/// Refuses a file that is not exactly right.
expected<std::vector<published_products>> load_published_products(
    const std::filesystem::path& file);

/// How many times as fast `gpu` is as `other`, for products of this class by one tool, and for
/// large products by the catalogue.
struct product_ratio {
  std::string gpu, other, tool;
  double flop_from = 0;
  double published = 0, catalogue = 0;

  double error() const { return catalogue / published - 1; }
};

/// All types of the catalogue against `other`, within each tool, for products of at least
/// `flop_from`, in the order of the rows.
std::vector<product_ratio> ratios_to(const std::string& other, double flop_from,
                                     std::span<const published_products> rows,
                                     std::span<const gpu_type> catalogue);

}  // namespace troupe::harness
