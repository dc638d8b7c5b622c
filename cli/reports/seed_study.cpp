#include "cli/reports/seed_study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/output/human.hpp"
#include "cli/output/table.hpp"
#include "cli/reports/against.hpp"
#include "cli/reports/completion_times.hpp"
#include "cli/reports/unions.hpp"
#include "formats/parse/value.hpp"
#include "messages/base/statistics.hpp"
#include "messages/base/whole_number.hpp"

namespace troupe::cli {

namespace {

constexpr std::size_t max_seeds = 1000;
/// Points of a distribution, if more jobs finished.
constexpr std::size_t max_points = 1000;

/// A figure over the seeds that have it.
struct spread {
  std::vector<double> values;

  double mean() const { return statistics::mean(values); }
  // Divided by n - 1: seeds are a sample of all possible ones.
  /// The standard deviation of a sample; 0 of a single value.
  double deviation() const {
    if (values.size() < 2) return 0;
    const double m = mean();
    double sum = 0;
    for (const double v : values) sum += (v - m) * (v - m);
    return std::sqrt(sum / static_cast<double>(values.size() - 1));
  }
};

spread over(const std::vector<json>& rows, const json::json_pointer& figure) {
  spread s;
  for (const auto& row : rows)
    // Some figures are null for some seeds (no job with a deadline, for instance); the others' mean
    // still counts.
    if (row.contains(figure) && row.at(figure).is_number()) s.values.push_back(row.at(figure));
  return s;
}

/// Figures of a row, and those of an object in it.
std::vector<json::json_pointer> figures_of(const json& row) {
  std::vector<json::json_pointer> out;
  for (const auto& [key, value] : row.items()) {
    const auto at = json::json_pointer{"/" + key};
    // Null counts: another seed may have the figure.
    if (value.is_number() || value.is_null()) out.push_back(at);
    if (!value.is_object()) continue;
    for (const auto& [inner, number] : value.items())
      if (number.is_number()) out.push_back(at / inner);
  }
  return out;
}

/// The rows of one policy, by seed.
std::vector<json> rows_of(const std::vector<comparison>& runs, std::size_t policy) {
  std::vector<json> rows;
  for (const auto& run : runs) {
    json row{{"seed", run.seed}};
    row.update(row_of(run, policy));
    rows.push_back(std::move(row));
  }
  return rows;
}

// The rows' own keys decide what is averaged, so that a new figure of a comparison is here by
// itself.
json summary_of(const std::vector<json>& rows) {
  json means{{"policy", rows.front().at("policy")}, {"plan_space", rows.front().at("plan_space")}},
      deviations;
  auto first = rows.front();
  first.erase("seed");
  for (const auto& figure : figures_of(first)) {
    const auto s = over(rows, figure);
    means[figure] = s.values.empty() ? json() : json(s.mean());
    deviations[figure] = s.values.empty() ? json() : json(s.deviation());
  }
  means["spread"] = std::move(deviations);
  means["runs"] = rows;
  return means;
}

/// The completion times of the jobs that finished under a policy, with all seeds.
json distribution_of(const std::vector<comparison>& runs, std::size_t policy) {
  std::vector<double> all;
  for (const auto& run : runs) {
    const auto jct_s = completion_times_of(run.results[policy]);
    all.insert(all.end(), jct_s.begin(), jct_s.end());
  }
  return completion_times(std::move(all), max_points);
}

}  // namespace

expected<std::vector<std::uint64_t>> parse_seeds(std::string_view text) {
  std::vector<std::uint64_t> seeds;
  const auto bad = [&] {
    return refuse(
        reason::kind::invalid,
        fmt::format("--seeds: found '{}', expected seeds such as 1-5 or 1,3,7, at most {}, "
                    "each once",
                    shown(text), max_seeds));
  };
  for (auto left = text;;) {
    const auto comma = std::min(left.find(','), left.size());
    const auto part = left.substr(0, comma);
    const auto dash = std::min(part.find('-'), part.size());
    const auto first = whole_number<std::uint64_t>(part.substr(0, dash));
    const auto last =
        dash < part.size() ? whole_number<std::uint64_t>(part.substr(dash + 1)) : first;
    if (!first || !last || *last < *first || *last - *first >= max_seeds) return bad();
    for (auto seed = *first;; ++seed) {
      if (std::ranges::find(seeds, seed) != seeds.end() || seeds.size() == max_seeds) return bad();
      seeds.push_back(seed);
      if (seed == *last) break;
    }
    // No comma is left, so this was the last part.
    if (comma == left.size()) return seeds;
    left.remove_prefix(comma + 1);
  }
}

json document_of(const std::vector<comparison>& runs) {
  if (runs.size() == 1) return document_of(runs.front());
  const auto& first = runs.front();
  auto seeds = json::array(), policies = json::array();
  for (const auto& run : runs) seeds.push_back(run.seed);
  json document{{"cluster", first.on.name},
                {"jobs", first.workload.size()},
                {"workload", first.workload_name},
                {"invented_models", first.invented},
                {"seeds", std::move(seeds)},
                {"against", first.against.empty() ? json() : json(first.against)}};
  for (std::size_t p = 0; p < runs.front().results.size(); ++p)
    policies.push_back(summary_of(rows_of(runs, p)));
  document["policies"] = std::move(policies);
  return document;
}

std::string table_of(const std::vector<comparison>& runs) {
  if (runs.size() == 1) return table_of(runs.front());
  table t{{"policy", "finished", "failed", "avg JCT", "p50", "p99", "queued", "makespan", "GPU use",
           "restarts", "OOM"}};
  std::vector<json> summaries;
  for (std::size_t p = 0; p < runs.front().results.size(); ++p) {
    const auto rows = rows_of(runs, p);
    summaries.push_back(summary_of(rows));
    const auto cell = [&](const char* figure, auto text) {
      const auto s = over(rows, json::json_pointer{figure});
      return fmt::format("{} ± {}", text(s.mean()), text(s.deviation()));
    };
    const auto count = [](double x) { return fmt::format("{:.1f}", x); };
    const auto time = [](double x) { return duration_text(x); };
    t.row({rows.front().at("policy").get<std::string>(), cell("/finished", count),
           cell("/failed", count), cell("/average_jct_s", time), cell("/p50_jct_s", time),
           cell("/p99_jct_s", time), cell("/average_queue_s", time), cell("/makespan_s", time),
           cell("/gpu_utilization", [](double x) { return fmt::format("{:.0f} %", 100 * x); }),
           cell("/restarts_per_job", [](double x) { return fmt::format("{:.2f}", x); }),
           cell("/oom_failures", count)});
  }
  return t.text(terminal_columns()) + plan_spaces_table(summaries) + unions_table(summaries) +
         against_table(summaries, runs.front().against);
}

// The first run's title ends with its seed, in whose place all seeds come.
std::string title_of(const std::vector<comparison>& runs) {
  const auto title = title_of(runs.front());
  if (runs.size() == 1) return title;
  std::vector<std::uint64_t> seeds;
  for (const auto& run : runs) seeds.push_back(run.seed);
  return fmt::format("{}s {}: mean ± standard deviation", title.substr(0, title.rfind(' ')),
                     fmt::join(seeds, ", "));
}

expected<void> save(const std::vector<comparison>& runs, const std::string& directory) {
  const std::filesystem::path dir{directory};
  const auto folder = [&](const comparison& run) {
    // A single seed's files keep their places, so that scripts need not know how many seeds there
    // are.
    return runs.size() == 1 ? dir : dir / fmt::format("seed-{}", run.seed);
  };
  for (const auto& run : runs)
    if (auto ok = save(run, folder(run).string()); !ok) return ok;
  auto document = document_of(runs);
  for (std::size_t p = 0; p < runs.front().results.size(); ++p)
    document["policies"][p]["jct_cdf"] = distribution_of(runs, p);
  return formats::save_text(dir / "result.json",
                            document.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace troupe::cli
