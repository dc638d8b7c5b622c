#include "planners/bubbletea/prefill_work.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::planners {

namespace {

/// The rows of each tile, of at most `rows` each: whole multiples of 64, as equal as possible, and
/// the last one the rest.
std::vector<std::uint32_t> tiles_of(std::uint32_t tokens, std::uint32_t rows) {
  const auto tiles = (tokens + rows - 1) / rows;
  auto each = (tokens + tiles - 1) / tiles;
  each = (each + row_multiple - 1) / row_multiple * row_multiple;
  std::vector<std::uint32_t> all;
  for (std::uint32_t left = tokens; left > 0; left -= all.back())
    all.push_back(std::min(each, left));
  return all;
}

/// The largest number of rows, a multiple of 64, on which a layer takes at most `op_s`. At the
/// prompt's end, where attention reads the most cached tokens: no other tile takes longer.
std::uint32_t rows_within(const prefill_rate& rate, std::uint32_t tokens, double op_s) {
  std::uint32_t rows = row_multiple;
  // A layer's time grows with its rows: bisection over multiples of 64.
  for (std::uint32_t low = 1, high = tokens / row_multiple + 1; low <= high;) {
    const auto middle = (low + high) / 2;
    const double n = middle * row_multiple;
    if (rate.layer_s(n, std::max(0.0, tokens - n)) <= op_s)
      rows = middle * row_multiple, low = middle + 1;
    else
      high = middle - 1;
  }
  return rows;
}

/// Under resumable an operation must be short, since a bubble's last part is lost if it does not
/// fit another; and it must not be too short, since few rows use the GPU badly (prefill_rate). The
/// slowest guest decides for the group: tiles are handed from guest to guest whole.
std::uint32_t rows_of_tile(const prefill_group& group, std::uint32_t tokens,
                           const packing_options& o) {
  if (o.rule == packing_rule::chunked) return std::max(1u, o.chunk);
  if (o.rule != packing_rule::resumable) return tokens;
  std::uint32_t rows = tokens + row_multiple;
  for (const auto& g : group.guests) rows = std::min(rows, rows_within(g.rate, tokens, o.op_s));
  return rows;
}

}  // namespace

std::string_view to_string(packing_rule rule) {
  constexpr std::array names{"whole", "look-ahead", "chunked", "resumable"};
  return names[static_cast<std::size_t>(rule)];
}

std::optional<packing_options> packing_of(const bubble_lending& how) {
  using enum packing_rule;
  packing_options o;
  o.look_ahead = how.look_ahead;
  o.chunk = how.chunk;
  o.op_s = how.op_ms * 1e-3;
  for (const auto rule : {whole, look_ahead, chunked, resumable}) {
    o.rule = rule;
    if (to_string(rule) == how.rule) return o;
  }
  return {};
}

prefill_work work_of(const prefill_group& group, std::uint32_t tokens, const packing_options& o) {
  const auto rows = rows_of_tile(group, tokens, o);
  std::vector<std::uint32_t> tiles;
  if (o.rule == packing_rule::chunked)
    for (auto left = tokens; left > 0; left -= tiles.back()) tiles.push_back(std::min(rows, left));
  else
    tiles = tiles_of(tokens, rows);
  return work_of_tiles(group, std::move(tiles), o);
}

// Tiles follow each other: attention of a tile reads all tokens before it, so that a later tile
// takes longer than an earlier one of the same rows (`cached`).
prefill_work work_of_tiles(const prefill_group& group, std::vector<std::uint32_t> tiles,
                           const packing_options& o) {
  const bool layerwise = o.rule == packing_rule::resumable;
  prefill_work w;
  w.rows = std::move(tiles);
  for (const auto& g : group.guests) {
    auto& runs = w.guests.emplace_back();
    double cached = 0, sum_s = 0, longest_s = 0;
    for (const auto n : w.rows) {
      const double layer_s = g.rate.layer_s(n, cached);
      runs.push_back(layerwise ? operation_run{g.layers * o.per_layer, layer_s / o.per_layer}
                               : operation_run{1, prefill_s(g.rate, g.layers, n, cached)});
      longest_s = std::max(longest_s, runs.back().each_s);
      sum_s += runs.back().count * runs.back().each_s;
      cached += n;
    }
    w.min_s = std::max(w.min_s, sum_s);
    w.longest_s.push_back(longest_s);
  }
  for (const auto n : w.rows) w.hop_s.push_back(group.hop_token_s * n + group.hop_latency_s);
  return w;
}

}  // namespace troupe::planners
