#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "formats/parse/csv.hpp"
#include "harness/published/runs.hpp"
#include "messages/base/shown.hpp"

// Columns that the readers of published runs share.

namespace troupe::harness {

inline std::uint32_t count(formats::csv_reader& csv, std::string_view column, double low = 1) {
  return static_cast<std::uint32_t>(csv.whole(column, {low, 1e6}));
}

inline std::string text(formats::csv_reader& csv, std::string_view column) {
  return std::string{csv.field(column)};
}

/// One of the words that files may have there.
inline std::string word(formats::csv_reader& csv, std::string_view column,
                        std::span<const std::string> known) {
  const auto found = text(csv, column);
  if (std::ranges::find(known, found) == known.end())
    csv.fail(column, "found '{}', expected one of them{}", shown(found),
             formats::hint(found, known));
  return found;
}

/// Refuses a row whose columns contradict each other.
void check_run(formats::csv_reader& csv, const published_run& r);

}  // namespace troupe::harness
