#include "cli/reports/against.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "cli/output/table.hpp"
#include "studies/completion_shares.hpp"

namespace troupe::cli {

json against_row(const comparison& c, const studies::policy_result& r) {
  const auto other = std::ranges::find(c.results, c.against, &studies::policy_result::policy);
  const auto s = other == c.results.end() ? std::nullopt
                                          : studies::compare_completions(*r.record, *other->record);
  return {{"jct_better_share", s ? json(s->better) : json()},
          {"jct_worse_share", s ? json(s->worse) : json()}};
}

std::string against_table(const std::vector<json>& rows, const std::string& against) {
  if (against.empty()) return {};
  const auto percent = fmt::format("{:.0f} % ", 100 * studies::noted_difference);
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
