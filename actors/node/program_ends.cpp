#include "actors/node/program_ends.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

namespace troupe::actors {

std::string signal_of(int status) {
  const char* name = status > 128 ? ::sigabbrev_np(status - 128) : nullptr;
  return name ? fmt::format(" (SIG{})", name) : std::string{};
}

std::string end_without_save(int status) {
  if (status == 0 || status == 128 + SIGTERM) return {};
  return fmt::format("exit status {}{} after it was asked to stop, and no save reported", status,
                     signal_of(status));
}

std::optional<std::uint32_t> rank_in_summary(std::string_view output) {
  const auto cause = output.rfind("Root Cause (first observed failure):");
  if (cause == std::string_view::npos) return {};
  output.remove_prefix(cause);
  // "  rank      : 3 (local_rank: 1)"
  for (auto at = output.find("\n"); at != std::string_view::npos; at = output.find("\n", at + 1)) {
    auto line = output.substr(at + 1, output.find('\n', at + 1) - at - 1);
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
    if (!line.starts_with("rank ") || line.find("(local_rank:") == std::string_view::npos) continue;
    line.remove_prefix(std::min(line.size(), line.find(':')));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(": ")));
    std::uint32_t rank = 0;
    const auto [end, wrong] = std::from_chars(line.data(), line.data() + line.size(), rank);
    return wrong == std::errc{} ? std::optional{rank} : std::nullopt;
  }
  return {};
}

}  // namespace troupe::actors
