#include "cli/reports/cost_picture.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "cli/common/human.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/plan_text.hpp"

namespace troupe::cli {

namespace {

constexpr int left = 90, right = 30, top = 20, bottom = 60, width = 880, height = 380;

/// From 0 to at least the largest value, in steps of 1, 2 or 5 times a power of ten.
struct axis {
  double step = 1, end = 1;

  explicit axis(double max) {
    const double power = std::pow(10, std::floor(std::log10(std::max(max / 6, 1e-12))));
    for (const double s : {1.0, 2.0, 5.0, 10.0})
      if (step = s * power; max / step <= 6) break;
    end = step * std::max(1.0, std::ceil(max / step * 1.0001));
  }
  double share(double x) const { return x / end; }
};

struct chart {
  axis time, cost;

  double x(double s) const { return left + time.share(s) * width; }
  double y(double price) const { return top + height * (1 - cost.share(price)); }

  std::string grid() const {
    std::string svg;
    for (int i = 0; i * time.step <= time.end * 1.0001; ++i)
      svg += fmt::format(
          "<path class='tick' d='M{0:.1f} {1}v{2}'/><text class='under' x='{0:.1f}' y='{3}'>{4:g}"
          "</text>",
          x(i * time.step), top, height, top + height + 22, i * time.step);
    for (int i = 0; i * cost.step <= cost.end * 1.0001; ++i)
      svg += fmt::format(
          "<path class='tick' d='M{0} {1:.1f}h{2}'/><text class='beside' x='{3}' y='{4:.1f}'>{5:g}"
          "</text>",
          left, y(i * cost.step), width, left - 8, y(i * cost.step) + 5, i * cost.step);
    return svg + fmt::format(
                     "<text class='under' x='{}' y='{}'>time for all iterations, s</text><text "
                     "class='under' transform='translate(24 {}) rotate(-90)'>cost</text>",
                     left + width / 2, top + height + 50, top + height / 2);
  }
  std::string limits(const job_spec& job) const {
    std::string svg;
    if (const auto s = std::min(job.slo_s.value_or(1e300), job.deadline_s.value_or(1e300));
        s <= time.end)
      svg += fmt::format(
          "<path class='limit' d='M{0:.1f} {1}v{2}'><title>the job may take {3:g} s</title></path>",
          x(s), top, height, s);
    if (job.budget && *job.budget <= cost.end)
      svg += fmt::format(
          "<path class='limit' d='M{0} {1:.1f}h{2}'><title>the job may cost {3:g}</title></path>",
          left, y(*job.budget), width, *job.budget);
    return svg;
  }
};

bool meets(const job_spec& job, const planners::provision& p) {
  return planners::within_limits(job, p.total_s, p.cost).has_value();
}

std::string points(const chart& at, const cluster& c, const job_spec& job,
                   const planners::pareto_front& front) {
  std::string line, dots;
  for (const auto& p : front.plans) {
    const double x = at.x(p.total_s), y = at.y(p.cost);
    // Up to the next faster plan, nothing costs less than that one.
    line +=
        line.empty() ? fmt::format("M{:.1f} {:.1f}", x, y) : fmt::format("V{:.1f}H{:.1f}", y, x);
    dots += fmt::format(
        "<circle class='{}' cx='{:.1f}' cy='{:.1f}' r='5'><title>{}: {:.2f} in {}</title></circle>",
        meets(job, p) ? "plan" : "plan outside", x, y, html_text(gpus_text(c, p.plan->where)),
        p.cost, duration_text(p.total_s));
  }
  return fmt::format("<path class='front' d='{}'/>{}", line, dots);
}

std::string rows(const cluster& c, const job_spec& job, const planners::pareto_front& front) {
  std::string html;
  for (const auto& p : front.plans)
    html += fmt::format(
        "<tr><td>{:.2f}</td><td>{}</td><td>{}</td><td class='words'>{}</td><td class='words'>{}"
        "</td><td class='words'>{}</td></tr>\n",
        p.cost, duration_text(p.total_s), duration_text(p.iteration_s),
        html_text(gpus_text(c, p.plan->where)), planners::split_text(p.plan->how),
        meets(job, p) ? "yes" : "no");
  return html;
}

constexpr const char* style =
    ":root{color-scheme:light dark;--page:#fff;--ink:#111;--soft:#444;--line:#d5d9de;"
    "--plan:#2563b8;--limit:#c2410c}"
    "@media(prefers-color-scheme:dark){:root{--page:#14171a;--ink:#fff;--soft:#bbb;--line:#39414a;"
    "--plan:#7fb0f5;--limit:#f59e5c}}"
    "body{font:15px system-ui,sans-serif;max-width:1060px;margin:1.5em auto;padding:0 1em;"
    "color:var(--ink);background:var(--page)}h1{font-size:1.3em}p{color:var(--soft)}"
    "svg{width:100%;height:auto}text{font-size:14px;fill:var(--soft)}.under{text-anchor:middle}"
    ".beside{text-anchor:end}.tick{stroke:var(--line);fill:none}"
    ".front{fill:none;stroke:var(--plan);stroke-width:1.5}.plan{fill:var(--plan)}"
    ".outside{fill:var(--page);stroke:var(--plan);stroke-width:1.5}"
    ".limit{stroke:var(--limit);stroke-width:2;stroke-dasharray:6 4;fill:none}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;"
    "border-bottom:1px solid var(--line)}.words{text-align:left}";

}  // namespace

std::string gpus_text(const cluster& c, const allocation& where) {
  std::vector<std::uint32_t> used(c.gpus.size());
  for (const auto& share : where) used[c.nodes[share.node].gpu] += share.gpus;
  std::string text;
  for (gpu_index g = 0; g < used.size(); ++g)
    if (used[g] > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", used[g], c.gpus[g].name);
  return text;
}

std::string cost_picture(const cluster& c, const job_spec& job,
                         const planners::pareto_front& front) {
  double longest_s = 0, dearest = 0;
  for (const auto& p : front.plans) {
    longest_s = std::max(longest_s, p.total_s);
    dearest = std::max(dearest, p.cost);
  }
  const chart at{axis{longest_s}, axis{dearest}};
  return fmt::format(
             "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
             "content='width=device-width'><title>{0} on {1}: cost and time</title><style>{2}"
             "</style></head>\n<body><h1>{0} on {1}: cost and time of {3} iterations</h1><p>Every "
             "plan is the cheapest of those that are at most as slow, by the closed form of the "
             "cost model. {4}</p>\n<svg viewBox='0 0 {5} {6}' role='img' aria-label='cost against "
             "time'>",
             html_text(job.name), html_text(c.name), style, job.iterations,
             job.slo_s || job.deadline_s || job.budget
                 ? "Hollow: outside the job's limits (dashed)."
                 : "",
             left + width + right, top + height + bottom) +
         at.grid() + at.limits(job) + points(at, c, job, front) +
         "</svg>\n<table><tr><th>cost</th><th>time</th><th>iteration</th><th "
         "class='words'>GPUs</th><th class='words'>split</th><th class='words'>within the limits"
         "</th></tr>\n" +
         rows(c, job, front) + "</table></body></html>\n";
}

}  // namespace troupe::cli
