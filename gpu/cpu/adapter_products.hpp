#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/cpu/kernels/kernels.hpp"
#include "gpu/cpu/pool.hpp"
#include "gpu/cpu/thread_team.hpp"
#include "gpu/inference/adapter.hpp"

namespace troupe::gpu::cpu {

/// Rows [first, first + count) of a tile, all of one adapter.
struct adapted_rows {
  std::size_t first = 0, count = 0;
  const adapter* by = nullptr;
};

/// The products of adapters, behind those of their base. The bits of a row depend on neither the
/// rows of its group and of others, nor on its place, nor on the number of threads: all products
/// are those of few rows, at most few_rows at a time.
class adapter_products {
 public:
  /// threads: of the team.
  explicit adapter_products(std::size_t threads);

  /// Takes the scratch that this adapter needs. Call it before the first step with the adapter.
  void prepare(const adapter& a);

  /// A matrix of the model, in whose product the adapters' changes are added.
  struct product {
    std::uint32_t sublayer = 0;
    bool back = false;          // sublayer_weights::back, else ::wide
    const float* in = nullptr;  // rows of the matrix's input; few_rows more can be read
    float* out = nullptr;       // rows of `columns` values: the base's results
    std::size_t columns = 0;
  };
  void add(const product& p, std::span<const adapted_rows> groups, thread_team& team);

 private:
  struct unit {
    std::size_t first = 0, count = 0;  // rows; at most few_rows
    const low_rank* by = nullptr;
  };
  void add(const product& p, const unit& u, std::size_t thread);

  const kernels<float>& k_;
  std::size_t threads_;
  pool memory_;
  std::size_t rank_ = 0, columns_ = 0;  // that the scratch has room for
  buffer<float> inner_, outer_;         // of each thread: few_rows rows of x A, and of (x A) B
  std::vector<unit> units_;             // of the present product
};

}  // namespace troupe::gpu::cpu
