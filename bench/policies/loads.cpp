#include "policies/loads.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "formats/load/load.hpp"
#include "messages/base/random.hpp"

namespace troupe::bench {

namespace fs = std::filesystem;
using rows = std::vector<formats::trace_row>;

namespace {

struct pair {
  const char *trace, *workload, *cluster;
};
constexpr pair shipped[] = {
    {"philly-6h", "frenzy", "frenzy-sim"},
    {"philly-day", "frenzy", "frenzy-sim"},
    {"philly-6h", "frenzy", "frenzy-testbed"},
    {"philly-day", "frenzy", "frenzy-testbed"},
    {"philly-6h", "crius", "crius-testbed"},
    {"philly-day", "crius", "crius-testbed"},
    {"philly-6h", "crius-deadlines", "crius-testbed"},
    {"philly-6h", "titan", "titan"},
    {"philly-day", "titan", "titan"},
    {"philly-6h", "titan", "frenzy-sim"},
    {"philly-6h", "frenzy", "demo"},
    {"philly-day", "frenzy", "philly"},
    {"philly-6h", "crius", "crius-sim"},
    {"philly-day", "crius", "crius-sim"},
};

/// One GPU each, 60 to 600 s, one every 9 s for six hours: no job is long enough to be stopped for
/// another one, so that all depends on which GPUs each gets at its start.
rows short_jobs() {
  random_source random{1};
  rows out;
  for (int i = 0; i < 2400; ++i) {
    auto& r = out.emplace_back();
    r.job_id = fmt::format("short-{}", i + 1);
    r.submit_s = 9.0 * i;
    r.duration_s = 60 + static_cast<double>(random.below(541));
    r.gpus = 1;
  }
  return out;
}

/// The window with the most jobs, its times relative to its start.
rows densest(rows all, double hours) {
  std::size_t best = 0, max = 0, end = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    while (end < all.size() && all[end].submit_s < all[i].submit_s + hours * 3600) ++end;
    if (end - i > max) max = end - i, best = i;
  }
  rows out(all.begin() + static_cast<std::ptrdiff_t>(best),
           all.begin() + static_cast<std::ptrdiff_t>(best + max));
  const double start_s = out.empty() ? 0 : out.front().submit_s;
  for (auto& r : out) r.submit_s -= start_s;
  return out;
}

expected<rows> load_any(const fs::path& file) {
  if (auto own = formats::load_trace(file)) return own;
  auto imported = formats::import_jobs("philly", file);
  if (!imported) imported = formats::import_jobs("itp", file);
  if (!imported) return refuse(imported.error());
  return std::move(imported->rows);
}

}  // namespace

expected<std::vector<load>> shipped_loads() {
  std::vector<load> out;
  for (const auto& p : shipped) {
    auto all = formats::load_trace(formats::configs_directory() / "traces" /
                                   (std::string{p.trace} + ".csv"));
    if (!all) return refuse(all.error());
    out.push_back({p.trace, p.cluster, p.workload, std::move(*all)});
  }
  out.push_back({"short jobs", "frenzy-sim", "frenzy", short_jobs()});
  return out;
}

expected<std::vector<load>> loads_below(const fs::path& directory, double hours) {
  std::vector<fs::path> files;
  std::error_code failed;
  for (const auto& entry : fs::recursive_directory_iterator{directory, failed})
    if (entry.path().extension() == ".csv") files.push_back(entry.path());
  if (failed)
    return refuse(reason::kind::invalid,
                  fmt::format("{}: {}", directory.string(), failed.message()));
  std::ranges::sort(files);
  std::vector<load> out;
  for (const auto& file : files) {
    auto all = load_any(file);
    if (!all) continue;  // another kind of trace
    const auto window = densest(std::move(*all), hours);
    const auto name = fmt::format("{} ({:g} h)", file.stem().string(), hours);
    out.push_back({name, "frenzy-sim", "frenzy", window});
    out.push_back({name, "crius-testbed", "crius", window});
    out.push_back({name, "titan", "titan", window});
  }
  return out;
}

void make_elastic(std::vector<arrival>& jobs, double fraction, std::uint64_t seed) {
  random_source random{seed};
  for (auto& j : jobs) {
    // Drawn for every job, so that a larger fraction has the same programs and more.
    const double at = random.uniform(), start = random.uniform(), save = random.uniform();
    if (at >= fraction) continue;
    j.spec.program.command = {"program"};
    auto& e = j.spec.program.elastic.emplace();
    e.any_layout = true;
    e.start_s = 10 * std::pow(12, start);
    e.save_s = std::pow(30, save);
  }
}

}  // namespace troupe::bench
