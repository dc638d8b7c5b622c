#include "cli/usage_picture.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace troupe::cli {

namespace {

constexpr int chart_width = 900, chart_height = 150, chart_left = 60, chart_top = 26,
              chart_columns = 450;

/// Usage over time in equal steps: GPUs as the mean over a step, waiting jobs as the most in it.
struct series {
  std::vector<double> gpus = std::vector<double>(chart_columns, 0.0);
  std::vector<double> waiting = std::vector<double>(chart_columns, 0.0);
};

series resample(const std::vector<actors::usage_point>& points, double from_s, double until_s) {
  series result;
  const double step_s = (until_s - from_s) / chart_columns;
  if (step_s <= 0) return result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double begin = points[i].at_s, end = i + 1 < points.size() ? points[i + 1].at_s : until_s;
    const auto first =
        std::clamp(static_cast<int>((begin - from_s) / step_s), 0, chart_columns - 1);
    const auto last = std::clamp(static_cast<int>((end - from_s) / step_s), 0, chart_columns - 1);
    for (int k = first; k <= last; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const double overlap =
          std::min(end, from_s + (k + 1) * step_s) - std::max(begin, from_s + k * step_s);
      result.gpus[at] += points[i].gpus_held * std::max(0.0, overlap) / step_s;
      result.waiting[at] =
          std::max(result.waiting[at], static_cast<double>(points[i].jobs_waiting));
    }
  }
  return result;
}

std::string path_of(const std::vector<double>& values, double most, bool closed) {
  std::string d = closed ? fmt::format("M{} {}", chart_left, chart_top + chart_height) : "";
  for (std::size_t i = 0; i < values.size(); ++i)
    d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L",
                     chart_left + static_cast<double>(i) * chart_width / chart_columns,
                     chart_top + chart_height - values[i] / std::max(1.0, most) * chart_height);
  if (closed) d += fmt::format("L{} {}Z", chart_left + chart_width, chart_top + chart_height);
  return d;
}

std::string usage_panel(const actors::policy_result& r, const series& s, double gpus,
                        double most_waiting, double span_s) {
  std::string svg =
      fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='{}'>",
                  chart_left + chart_width + 70, chart_top + chart_height + 24, r.policy);
  svg += fmt::format("<text class='name' x='{}' y='16'>{}</text>", chart_left, r.policy);
  svg += fmt::format(
      "<text class='figure' x='{}' y='16'>average JCT {:.0f} s &#183; queued {:.0f} s &#183; "
      "{:.0f} % of GPU time "
      "held &#183; {} out of memory</text>",
      chart_left + 150, r.average_jct_s, r.average_queue_s, 100 * r.gpu_utilization,
      r.oom_failures);
  svg += fmt::format("<rect class='frame' x='{}' y='{}' width='{}' height='{}'/>", chart_left,
                     chart_top, chart_width, chart_height);
  svg += fmt::format("<path class='gpus' d='{}'/>", path_of(s.gpus, gpus, true));
  svg += fmt::format("<path class='waiting' d='{}'/>", path_of(s.waiting, most_waiting, false));
  svg += fmt::format("<text class='gpu-axis' x='{}' y='{}'>{:.0f}</text>", chart_left - 8,
                     chart_top + 10, gpus);
  svg += fmt::format("<text class='gpu-axis' x='{}' y='{}'>0</text>", chart_left - 8,
                     chart_top + chart_height);
  svg += fmt::format("<text class='wait-axis' x='{}' y='{}'>{:.0f}</text>",
                     chart_left + chart_width + 8, chart_top + 10, most_waiting);
  for (int tick = 0; tick <= 6; ++tick)
    svg += fmt::format("<text class='time' x='{}' y='{}'>{:.1f} h</text>",
                       chart_left + chart_width * tick / 6, chart_top + chart_height + 16,
                       span_s * tick / 6 / 3600);
  return svg + "</svg>\n";
}

constexpr const char* usage_style =
    "body{font:14px system-ui,sans-serif;max-width:1060px;margin:2em "
    "auto;color:#222;background:#fff}"
    "svg{width:100%;margin:.4em "
    "0}text{font-size:12px;fill:#444}.name{font-weight:700;font-size:14px;fill:#111}"
    ".frame{fill:none;stroke:#ccc}.gpus{fill:#3b7dd8;fill-opacity:.45;stroke:#3b7dd8;stroke-width:."
    "5}"
    ".waiting{fill:none;stroke:#c2410c;stroke-width:1.4}.gpu-axis{text-anchor:end;fill:#2459a5}"
    ".wait-axis{fill:#c2410c}.time{text-anchor:middle}"
    "@media(prefers-color-scheme:dark){body{background:#14171a;color:#ddd}text{fill:#bbb}.name{"
    "fill:#fff}"
    ".frame{stroke:#444}.gpu-axis{fill:#7fb0f5}.waiting{stroke:#f59e5c}.wait-axis{fill:#f59e5c}}";

}  // namespace

std::string usage_picture(const troupe::cluster& c,
                          const std::vector<actors::policy_result>& results) {
  double gpus = 0, from_s = 1e300, until_s = 0, most_waiting = 1;
  for (const auto& n : c.nodes) gpus += n.gpus;
  for (const auto& r : results) {
    const auto& usage = r.record->usage();
    if (usage.empty()) continue;
    from_s = std::min(from_s, usage.front().at_s);
    until_s = std::max(until_s, usage.back().at_s);
    for (const auto& p : usage)
      most_waiting = std::max(most_waiting, static_cast<double>(p.jobs_waiting));
  }
  std::string page = fmt::format(
      "<!doctype html><html lang='en'><meta charset='utf-8'><title>{}</title><style>{}</style>"
      "<h1>Cluster {} over time</h1><p>Virtual time: a simulation. Blue: GPUs held, of {:.0f}. "
      "Orange: jobs waiting.</p>\n",
      c.name, usage_style, c.name, gpus);
  for (const auto& r : results)
    page += usage_panel(r, resample(r.record->usage(), from_s, until_s), gpus, most_waiting,
                        until_s - from_s);
  return page + "</html>\n";
}

}  // namespace troupe::cli
