#include "harness/published/products.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "formats/parse/csv.hpp"
#include "planners/devices/kernel_time.hpp"

namespace troupe::harness {

expected<std::vector<published_products>> load_published_products(
    const std::filesystem::path& file) {
  std::ifstream in{file};
  std::ostringstream all;
  all << in.rdbuf();
  const auto content = all.str();
  formats::findings found{file.string()};
  formats::csv_reader csv{found, content};
  std::vector<published_products> out;
  while (csv.next()) {
    published_products p;
    p.gpu = csv.field("gpu"), p.tool = csv.field("tool");
    p.peak_tflops = csv.number("peak_tflops", {1, 1e5});
    p.flop_from = csv.number("flop_from", {1, 1e18}), p.flop_to = csv.number("flop_to", {1, 1e18});
    p.share = csv.number("median", {0, 1});
    out.push_back(std::move(p));
  }
  if (!found.good()) return found.result();
  return out;
}

std::vector<product_ratio> ratios_to(const std::string& other, double flop_from,
                                     std::span<const published_products> rows,
                                     std::span<const gpu_type> catalogue) {
  std::vector<product_ratio> out;
  const auto type_of = [&](const std::string& name) {
    return std::ranges::find(catalogue, name, &gpu_type::name);
  };
  const auto base = type_of(other);
  for (const auto& a : rows)
    for (const auto& b : rows) {
      if (b.gpu != other || a.gpu == other || a.tool != b.tool) continue;
      if (a.flop_from != b.flop_from || a.flop_from < flop_from) continue;
      const auto gpu = type_of(a.gpu);
      if (gpu == catalogue.end() || base == catalogue.end()) continue;
      out.push_back({a.gpu, other, a.tool, a.flop_from, a.flops_s() / b.flops_s(),
                     planners::flops_s(*gpu) / planners::flops_s(*base)});
    }
  return out;
}

}  // namespace troupe::harness
