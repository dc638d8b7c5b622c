// bench_products: how many times as fast a GPU type is as an H100, by the catalogue and by one
// library's matrix products (tests/planners/published_products.csv); then, for each type, between
// which ratios the tools differ. An error is catalogue / published - 1.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "formats/load/load.hpp"
#include "harness/published/products.hpp"

namespace {

using troupe::harness::product_ratio;

void print_ratios(const std::vector<product_ratio>& all) {
  fmt::print(
      "| GPU / H100 | tool | FLOP from | published | catalogue | error "
      "|\n|---|---|---:|---:|---:|---:|\n");
  for (const auto& r : all)
    fmt::print("| {} | {} | {:.0e} | {:.3f} | {:.3f} | {:+.1f} % |\n", r.gpu, r.tool, r.flop_from,
               r.published, r.catalogue, 100 * r.error());
}

void print_spread(const std::vector<product_ratio>& all) {
  std::map<std::string, std::vector<double>> by_type;
  for (const auto& r : all) by_type[r.gpu].push_back(r.published);
  fmt::print("\n| GPU / H100 | rows | least | largest | spread |\n|---|---:|---:|---:|---:|\n");
  for (const auto& [gpu, ratios] : by_type) {
    const auto [low, high] = std::ranges::minmax(ratios);
    fmt::print("| {} | {} | {:.3f} | {:.3f} | {:.0f} % |\n", gpu, ratios.size(), low, high,
               100 * (high / low - 1));
  }
}

}  // namespace

int main() {
  const std::string root = TROUPE_BENCH_SOURCE;
  const auto rows =
      troupe::harness::load_published_products(root + "/tests/planners/published_products.csv");
  const auto gpus = troupe::formats::load_catalogue(root + "/configs/gpus.yaml");
  if (!rows || !gpus) {
    fmt::print(stderr, "{}\n", (rows ? gpus.error() : rows.error()).text);
    return EXIT_FAILURE;
  }
  constexpr double large = 1e12;  // FLOP: what a training's large products have
  const auto all = troupe::harness::ratios_to("H100-80GB", large, *rows, *gpus);
  print_ratios(all);
  print_spread(all);
}
