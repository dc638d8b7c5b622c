#include "gpu/examples/packing.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::gpu;

namespace {

using row_list = std::vector<std::vector<std::uint32_t>>;

std::vector<std::uint32_t> random_lengths(std::size_t count, std::uint32_t longest,
                                          std::uint64_t seed) {
  random_source random{seed};
  std::vector<std::uint32_t> all(count);
  for (auto& n : all) n = 1 + static_cast<std::uint32_t>(random.below(longest));
  return all;
}

/// First fit decreasing as its definition says, with a search of all rows.
row_list plainly_packed(const std::vector<std::uint32_t>& lengths, std::uint32_t row) {
  std::vector<std::uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return lengths[a] > lengths[b]; });
  row_list rows;
  std::vector<std::uint32_t> used;
  for (const auto i : order) {
    std::size_t at = 0;
    while (at < rows.size() && used[at] + lengths[i] > row) ++at;
    if (at == rows.size()) rows.emplace_back(), used.push_back(0);
    rows[at].push_back(i);
    used[at] += lengths[i];
  }
  return rows;
}

}  // namespace

TEST_CASE("rows are those of first fit decreasing, for any lengths") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto lengths = random_lengths(seed, 1 + static_cast<std::uint32_t>(seed % 64), seed);
    CHECK(packed(lengths, 64) == plainly_packed(lengths, 64));
  }
  CHECK(packed({}, 64).empty());
}

TEST_CASE("rows of examples of a quarter of their length on average are at least 95 % full") {
  // Few are long, as in chats.
  random_source random{7};
  std::vector<std::uint32_t> lengths(2000);
  for (auto& n : lengths) {
    const auto u = random.uniform();
    n = std::min<std::uint32_t>(1024, 32 + static_cast<std::uint32_t>(672 * u * u));
  }
  const auto tokens = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
  const auto mean = static_cast<double>(tokens) / 2000;
  CHECK(mean > 230);
  CHECK(mean < 280);
  const auto rows = packed(lengths, 1024);
  CHECK(static_cast<double>(tokens) / (1024.0 * static_cast<double>(rows.size())) >= 0.95);
}

TEST_CASE("two hundred thousand examples are packed in time that does not grow with the square") {
  const auto lengths = random_lengths(200'000, 2048, 3);
  const auto rows = packed(lengths, 2048);
  std::vector<bool> seen(lengths.size());
  std::size_t twice = 0, too_full = 0;
  for (const auto& row : rows) {
    std::uint32_t used = 0;
    for (const auto i : row) {
      twice += seen[i];
      seen[i] = true;
      used += lengths[i];
    }
    too_full += used > 2048;
  }
  CHECK(twice == 0);
  CHECK(too_full == 0);
  CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
}
