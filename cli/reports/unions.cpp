#include "cli/reports/unions.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/output/human.hpp"
#include "cli/output/table.hpp"

namespace troupe::cli {

json unions_row(const comparison& c, const studies::policy_result& r) {
  const auto i = static_cast<std::size_t>(&r - c.results.data());
  const auto log = i < c.solved.size() ? c.solved[i] : studies::solve_log{};
  const auto mean_ms = log.sum_ms / static_cast<double>(std::max<std::size_t>(log.count, 1));
  return {{"merges", r.merges},
          {"merged_jobs", r.merged_jobs},
          {"switches", r.switches},
          {"switch_s_total", r.switch_s_total},
          {"solve_ms", log.count > 0 ? json{{"mean", mean_ms}, {"max", log.max_ms}} : json()},
          {"gap_max", log.count > 0 ? json(log.gap_max) : json()}};
}

std::string unions_table(const std::vector<json>& rows) {
  const auto number = [](const json& row, const char* key) {
    const auto& x = row.at(json::json_pointer{key});
    return x.is_number() ? x.get<double>() : 0;
  };
  const auto has_any = [&](const json& row) {
    return !row.at("solve_ms").is_null() || number(row, "/merges") > 0 ||
           number(row, "/switches") > 0;
  };
  if (std::ranges::none_of(rows, has_any)) return {};
  table t{{"policy", "merges", "merged jobs", "switches", "all starts", "solve", "max", "gap"}};
  for (const auto& row : rows) {
    const bool solves = !row.at("solve_ms").is_null();
    const auto solve_text = [&](const char* key) {
      return solves ? duration_text(number(row, key) / 1000) : "";
    };
    t.row({row.at("policy").get<std::string>(), fmt::format("{:g}", number(row, "/merges")),
           fmt::format("{:g}", number(row, "/merged_jobs")),
           fmt::format("{:g}", number(row, "/switches")),
           duration_text(number(row, "/switch_s_total")), solve_text("/solve_ms/mean"),
           solve_text("/solve_ms/max"),
           solves ? fmt::format("{:.3f} %", 100 * number(row, "/gap_max")) : ""});
  }
  return "\n" + t.text(terminal_columns());
}

}  // namespace troupe::cli
