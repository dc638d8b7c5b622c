#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <ranges>
#include <type_traits>
#include <vector>

// Folds of a range into one value or a vector, each in the order of the range, so that sums of
// doubles have the same bits as a loop's. `value`: a function or a member of the elements.

namespace troupe {

template <class Range, class Value>
using value_of = std::decay_t<std::invoke_result_t<Value&, std::ranges::range_reference_t<Range>>>;

/// The sum, in the type of the values.
template <class Range, class Value>
auto sum_of(const Range& all, Value value) {
  value_of<const Range, Value> sum{};
  for (const auto& x : all) sum += std::invoke(value, x);
  return sum;
}

/// The largest value, at least `floor`.
template <class Range, class Value>
auto max_of(const Range& all, value_of<const Range, Value> floor, Value value) {
  for (const auto& x : all) floor = std::max(floor, std::invoke(value, x));
  return floor;
}

template <class Range, class Value>
auto mapped(const Range& all, Value value) {
  std::vector<value_of<const Range, Value>> out;
  for (const auto& x : all) out.push_back(std::invoke(value, x));
  return out;
}

/// 0 to n - 1.
template <class Index = std::size_t>
std::vector<Index> indices(std::size_t n) {
  std::vector<Index> out(n);
  std::iota(out.begin(), out.end(), Index{0});
  return out;
}

}  // namespace troupe
