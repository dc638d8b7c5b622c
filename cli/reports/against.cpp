#include "cli/reports/against.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "cli/common/table.hpp"

namespace troupe::cli {

namespace {

using studies::policy_result;

/// Relative: of completion times that count as different.
constexpr double noted_difference = 0.1;

struct shares {
  double better = 0, worse = 0;
};

/// The jobs that took at most 90 % of their time under `other`, and those that took at least 110 %,
/// as shares of those that finished under both. Nothing: no job did.
std::optional<shares> shares_against(const policy_result& r, const policy_result& other) {
  std::size_t both = 0, better = 0, worse = 0;
  // Unions take numbers of jobs, too, so that only the order of arrival is the same under both.
  auto at = other.record->jobs().begin();
  for (const auto& [id, j] : r.record->jobs()) {
    if (at == other.record->jobs().end()) break;
    const auto& there = (at++)->second;
    if (j.state != job_state::finished || there.state != job_state::finished) continue;
    both += 1;
    better += j.completion_s() <= (1 - noted_difference) * there.completion_s();
    worse += j.completion_s() >= (1 + noted_difference) * there.completion_s();
  }
  if (both == 0) return {};
  const auto share = [&](std::size_t n) {
    return static_cast<double>(n) / static_cast<double>(both);
  };
  return shares{share(better), share(worse)};
}

}  // namespace

json against_row(const comparison& c, const studies::policy_result& r) {
  const auto other = std::ranges::find(c.results, c.against, &policy_result::policy);
  const auto s = other == c.results.end() ? std::nullopt : shares_against(r, *other);
  return {{"jct_better_share", s ? json(s->better) : json()},
          {"jct_worse_share", s ? json(s->worse) : json()}};
}

std::string against_table(const std::vector<json>& rows, const std::string& against) {
  if (against.empty()) return {};
  const auto percent = fmt::format("{:.0f} % ", 100 * noted_difference);
  table t{{"jobs against " + against, percent + "sooner", percent + "later"}};
  for (const auto& row : rows) {
    const auto share = [&](const char* key) {
      const auto& x = row.at(key);
      return x.is_null() ? "" : fmt::format("{:.0f} %", 100 * x.get<double>());
    };
    t.row(
        {row.at("policy").get<std::string>(), share("jct_better_share"), share("jct_worse_share")});
  }
  return "\n" + t.text(terminal_columns());
}

}  // namespace troupe::cli
