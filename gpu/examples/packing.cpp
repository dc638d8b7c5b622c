#include "gpu/examples/packing.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "messages/base/invariant.hpp"

namespace troupe::gpu {

namespace {

/// Room of rows, and the first one that has enough: a tree whose inner places have the largest room
/// below them.
class rooms {
 public:
  rooms(std::size_t rows, std::uint32_t each)
      : leaves_{std::bit_ceil(std::max<std::size_t>(rows, 1))}, largest_(2 * leaves_, 0) {
    std::fill_n(largest_.begin() + static_cast<std::ptrdiff_t>(leaves_), rows, each);
    for (auto i = leaves_ - 1; i > 0; --i) settle(i);
  }

  /// Takes that much room of the first row that has it.
  std::size_t take(std::uint32_t length) {
    TROUPE_INVARIANT(largest_[1] >= length, "as many rows as examples have room for each");
    std::size_t at = 1;
    while (at < leaves_) at = 2 * at + (largest_[2 * at] >= length ? 0 : 1);
    largest_[at] -= length;
    const auto row = at - leaves_;
    while (at > 1) settle(at /= 2);
    return row;
  }

 private:
  void settle(std::size_t i) { largest_[i] = std::max(largest_[2 * i], largest_[2 * i + 1]); }

  std::size_t leaves_;
  std::vector<std::uint32_t> largest_;
};

}  // namespace

std::vector<std::vector<std::uint32_t>> packed(std::span<const std::uint32_t> lengths,
                                               std::uint32_t row) {
  std::vector<std::uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](auto i) { return lengths[i]; });
  rooms left{lengths.size(), row};
  std::vector<std::vector<std::uint32_t>> rows;
  for (const auto i : order) {
    const auto at = left.take(lengths[i]);
    if (at == rows.size()) rows.emplace_back();
    rows[at].push_back(i);
  }
  return rows;
}

}  // namespace troupe::gpu
