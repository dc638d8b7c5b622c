#include "gpu/cpu/adapter_products.hpp"

#include <algorithm>

namespace troupe::gpu::cpu {

namespace {

/// Weights of units that are read in the time in which other threads wake.
constexpr std::size_t weights_worth_sharing = 100'000;

}  // namespace

adapter_products::adapter_products(std::size_t threads) : k_{float_kernels()}, threads_{threads} {}

// Whole vectors for each thread's rows, so that threads share no line of the processor's cache.
void adapter_products::prepare(const adapter& a) {
  constexpr std::size_t line = 16;
  std::size_t rank = rank_, columns = columns_;
  for (const auto& s : a.sublayers)
    for (const auto& x : s) {
      rank = std::max<std::size_t>(rank, (x.rank + line - 1) / line * line);
      columns = std::max<std::size_t>(columns, (x.columns + line - 1) / line * line);
    }
  if (rank > rank_) inner_ = memory_.take<float>(threads_ * few_rows * rank);
  if (columns > columns_) outer_ = memory_.take<float>(threads_ * few_rows * columns);
  rank_ = rank;
  columns_ = columns;
}

void adapter_products::add(const product& p, std::span<const adapted_rows> groups,
                           thread_team& team) {
  units_.clear();
  std::size_t weights = 0;
  for (const auto& g : groups)
    for (const auto& x : g.by->sublayers[p.sublayer]) {
      if (x.back != p.back) continue;
      for (std::size_t i = 0; i < g.count; i += few_rows) {
        units_.push_back({g.first + i, std::min<std::size_t>(few_rows, g.count - i), &x});
        weights += x.a.size() + x.b.size();
      }
    }
  team.run_if(weights >= weights_worth_sharing, units_.size(),
              [&](std::size_t i, std::size_t thread) { add(p, units_[i], thread); });
}

// (x A) B is computed by itself and then added: the kernel writes whole blocks of rows and columns,
// and beside this tensor's columns there are others.
void adapter_products::add(const product& p, const unit& u, std::size_t thread) {
  const auto& x = *u.by;
  auto *inner = inner_.get() + thread * few_rows * rank_,
       *outer = outer_.get() + thread * few_rows * columns_;
  std::fill_n(inner, few_rows * x.rank, 0.0f);
  k_.add_product(p.in + u.first * x.in, u.count, x.a.data(), x.in, x.rank, x.rank, inner);
  std::fill_n(outer, few_rows * x.columns, 0.0f);
  k_.add_product(inner, u.count, x.b.data(), x.rank, x.columns, x.columns, outer);
  for (std::size_t i = 0; i < u.count; ++i)
    k_.add(p.out + (u.first + i) * p.columns + x.first_column, outer + i * x.columns, x.columns);
}

}  // namespace troupe::gpu::cpu
