#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/reports/comparison.hpp"

// A trace replayed with several seeds: each figure's mean, and its spread over the seeds.

namespace troupe::cli {

/// "1-5", "1,3,7" or "1-3,10": at most 1,000 seeds, each once.
expected<std::vector<std::uint64_t>> parse_seeds(std::string_view text);

/// The figures of the same policies over one comparison per seed, at least one. The document and
/// table of a single seed are that comparison's own.
json document_of(const std::vector<comparison>& runs);
std::string table_of(const std::vector<comparison>& runs);
std::string title_of(const std::vector<comparison>& runs);

/// result.json, with the distribution of each policy's completion times, and the other files of
/// save(): of several seeds in a folder seed-N each.
expected<void> save(const std::vector<comparison>& runs, const std::string& directory);

}  // namespace troupe::cli
