#include "cli/reports/usage_picture.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace troupe::cli {

namespace {

// In the picture's units; margins leave room for larger type in narrow windows.
constexpr int chart_left = 110, chart_right = 110, chart_width = 820, chart_height = 170,
              chart_top = 44, chart_bottom = 66;
constexpr int chart_columns = 410, hover_columns = 82;

/// Usage over time in equal steps: mean GPUs and maximum waiting jobs per step.
struct series {
  std::vector<double> gpus = std::vector<double>(chart_columns, 0.0);
  std::vector<double> waiting = std::vector<double>(chart_columns, 0.0);
};

series resample(const std::vector<studies::usage_point>& points, double from_s, double until_s) {
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

/// The smallest of 1, 2, 5 times a power of ten that is not below x.
double round_up(double x) {
  const double power = std::pow(10, std::floor(std::log10(std::max(x, 1e-9))));
  for (const double step : {1.0, 2.0, 2.5, 5.0})
    if (x <= step * power * 1.0001) return step * power;
  return 10 * power;
}

/// The unit of a page's times, and the distance between ticks.
struct time_axis {
  const char* unit = "s";
  double unit_s = 1, step = 1, span_s = 1;

  explicit time_axis(double span) : span_s{std::max(span, 1e-9)} {
    if (span_s > 10 * 86400)
      unit = "d", unit_s = 86400;
    else if (span_s > 5 * 3600)
      unit = "h", unit_s = 3600;
    else if (span_s > 300)
      unit = "min", unit_s = 60;
    const double rough = span_s / unit_s / 7;
    step = round_up(rough);
    if (unit_s == 3600)  // of a day
      for (const double hours : {48.0, 24.0, 12.0, 6.0, 3.0, 2.0, 1.0})
        if (hours >= rough) step = hours;
  }
  double x(double at_s) const { return chart_left + at_s / span_s * chart_width; }
  std::string text(double s) const { return fmt::format("{:.3g} {}", s / unit_s, unit); }
};

std::string path_of(const std::vector<double>& values, double max, bool closed) {
  std::string d = closed ? fmt::format("M{} {}", chart_left, chart_top + chart_height) : "";
  for (std::size_t i = 0; i < values.size(); ++i)
    d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L",
                     chart_left + static_cast<double>(i) * chart_width / chart_columns,
                     chart_top + chart_height - values[i] / std::max(1.0, max) * chart_height);
  if (closed) d += fmt::format("L{} {}Z", chart_left + chart_width, chart_top + chart_height);
  return d;
}

/// Labels of both axes at three heights: 0, half, maximum.
std::string value_axes(double gpus, double max_waiting) {
  std::string svg;
  for (const double fraction : {0.0, 0.5, 1.0}) {
    const double y = chart_top + chart_height * (1 - fraction);
    svg += fmt::format(
        "<path class='tick' d='M{0} {1:.0f}H{2}'/><text class='gpu-axis' x='{3}' "
        "y='{4:.0f}'>{5:g}</text><text class='wait-axis' x='{6}' y='{4:.0f}'>{7:g}</text>",
        chart_left, y, chart_left + chart_width, chart_left - 8, y + 5, gpus * fraction,
        chart_left + chart_width + 8, max_waiting * fraction);
  }
  const int middle = chart_top + chart_height / 2, right = chart_left + chart_width + 84;
  return svg + fmt::format(
                   "<text class='side gpus-name' transform='translate(30 {0}) "
                   "rotate(-90)'>GPUs held</text><text class='side waiting-name' "
                   "transform='translate({1} {0}) rotate(90)'>jobs waiting</text>",
                   middle, right);
}

std::string ticks(const time_axis& axis) {
  std::string svg;
  const int bottom = chart_top + chart_height;
  for (int i = 0; i * axis.step * axis.unit_s <= axis.span_s * 1.0001; ++i) {
    const double x = axis.x(i * axis.step * axis.unit_s);
    svg += fmt::format(
        "<path class='tick' d='M{0:.1f} {1}V{2}'/><text class='time' x='{0:.1f}' y='{3}'>{4:g}"
        "</text>",
        x, chart_top, bottom, bottom + 24, i * axis.step);
  }
  return svg + fmt::format("<text class='time' x='{}' y='{}'>time since the first job, {}</text>",
                           chart_left + chart_width / 2, bottom + 52, axis.unit);
}

std::string legend() {
  return fmt::format(
      "<rect class='gpus' x='{}' y='14' width='22' height='14'/><text x='{}' y='26'>GPUs held"
      "</text><path class='waiting' d='M{} 21h22'/><text x='{}' y='26'>jobs waiting</text>",
      chart_left, chart_left + 28, chart_left + 220, chart_left + 248);
}

/// Tooltips.
std::string hover(const series& s, double gpus, const time_axis& axis) {
  std::string svg;
  constexpr int each = chart_columns / hover_columns;
  for (int h = 0; h < hover_columns; ++h) {
    double held = 0, waiting = 0;
    for (int k = h * each; k < (h + 1) * each; ++k) {
      held += s.gpus[static_cast<std::size_t>(k)] / each;
      waiting = std::max(waiting, s.waiting[static_cast<std::size_t>(k)]);
    }
    svg += fmt::format(
        "<rect class='hover' x='{:.1f}' y='{}' width='{:.1f}' height='{}'><title>{}: {:.1f} of "
        "{:g} GPUs held, {:g} job{} waiting</title></rect>",
        chart_left + static_cast<double>(h) * chart_width / hover_columns, chart_top,
        static_cast<double>(chart_width) / hover_columns, chart_height,
        axis.text((h + 0.5) * axis.span_s / hover_columns), held, gpus, waiting,
        waiting == 1 ? "" : "s");
  }
  return svg;
}

std::string usage_panel(const studies::policy_result& r, const series& s, double gpus,
                        double max_waiting, const time_axis& axis) {
  auto html = fmt::format(
      "<section><h2>{}</h2><p>average completion time {}, of it queued {}; {:.0f} % of GPU time "
      "held; {} job{} failed, {} out of memory</p>\n",
      r.policy, axis.text(r.average_jct_s), axis.text(r.average_queue_s), 100 * r.gpu_utilization,
      r.failed, r.failed == 1 ? "" : "s",
      r.oom_failures == 1 ? "1 attempt ran" : fmt::format("{} attempts ran", r.oom_failures));
  html += fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='{}'>",
                      chart_left + chart_width + chart_right,
                      chart_top + chart_height + chart_bottom, r.policy);
  html += legend() + value_axes(gpus, max_waiting) + ticks(axis);
  html += fmt::format("<path class='gpus' d='{}'/>", path_of(s.gpus, gpus, true));
  html += fmt::format("<path class='waiting' d='{}'/>", path_of(s.waiting, max_waiting, false));
  return html + hover(s, gpus, axis) + "</svg></section>\n";
}

constexpr const char* usage_style =
    ":root{color-scheme:light dark;--page:#fff;--ink:#111;--soft:#444;--line:#d5d9de;"
    "--gpus:#3b7dd8;--gpu-text:#2459a5;--wait:#c2410c}"
    "@media(prefers-color-scheme:dark){:root{--page:#14171a;--ink:#fff;--soft:#bbb;--line:#39414a;"
    "--gpus:#4f8ee6;--gpu-text:#7fb0f5;--wait:#f59e5c}}"
    "body{font:15px system-ui,sans-serif;max-width:1060px;margin:1.5em auto;padding:0 1em;"
    "color:var(--ink);background:var(--page)}h1{font-size:1.3em}h2{font-size:1.05em;margin:1.2em 0 "
    "0}p{margin:.2em 0;color:var(--soft)}"
    "svg{width:100%;height:auto}text{font-size:14px;fill:var(--soft)}"
    ".tick{stroke:var(--line);stroke-width:1;fill:none}.hover{fill:transparent}"
    ".gpus{fill:var(--gpus);fill-opacity:.45;stroke:var(--gpus);stroke-width:.5}"
    ".waiting{fill:none;stroke:var(--wait);stroke-width:1.6}"
    ".gpu-axis{text-anchor:end;fill:var(--gpu-text)}.wait-axis{fill:var(--wait)}"
    ".time,.side{text-anchor:middle}.gpus-name{fill:var(--gpu-text)}.waiting-name{fill:var(--wait)}"
    // On a phone the picture is less than half as wide.
    "@media(max-width:700px){text{font-size:25px}}";

}  // namespace

std::string usage_picture(const troupe::cluster& c,
                          const std::vector<studies::policy_result>& results) {
  double gpus = 0, from_s = 1e300, until_s = 0, max_waiting = 1;
  for (const auto& n : c.nodes) gpus += n.gpus;
  for (const auto& r : results) {
    const auto& usage = r.record->usage();
    if (usage.empty()) continue;
    from_s = std::min(from_s, usage.front().at_s);
    until_s = std::max(until_s, usage.back().at_s);
    for (const auto& p : usage)
      max_waiting = std::max(max_waiting, static_cast<double>(p.jobs_waiting));
  }
  std::string page = fmt::format(
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
      "content='width=device-width'><title>{0}: GPUs in use</title><style>{1}</style></head>\n"
      "<body><h1>Cluster {0}: GPUs in use and jobs waiting</h1><p>Simulated in virtual time on "
      "{2:g} GPUs. All policies on the same scale.</p>\n",
      c.name, usage_style, gpus);
  const time_axis axis{until_s - std::min(from_s, until_s)};
  for (const auto& r : results)
    page += usage_panel(r, resample(r.record->usage(), from_s, until_s), gpus,
                        round_up(max_waiting), axis);
  return page + "</body></html>\n";
}

}  // namespace troupe::cli
