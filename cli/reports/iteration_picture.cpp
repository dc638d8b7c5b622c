#include "cli/reports/iteration_picture.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/common/human.hpp"
#include "messages/domain/device_kind.hpp"

namespace troupe::cli {

namespace {

constexpr double left = 280, width = 900, row_height = 20, bar_height = 16, top = 46;
constexpr std::size_t max_boxes = 6000;  // with numbers and tooltips; beyond it only colors

constexpr const char* classes[] = {"f", "r", "b", "t", "p", "o"};

std::string amount(double value, const std::string& unit) {
  if (unit == "slot") return fmt::format("{:.6g} slot{}", value, value == 1 ? "" : "s");
  return fmt::format("{:.4g} {}", value, unit);
}

bool works(const picture_span& s) {
  return s.what <= picture_span::kind::backward;
}

/// A round distance between ticks: 1, 2 or 5 times a power of ten, for about ten ticks.
double tick_of(double length) {
  const double rough = length / 10, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0})
    if (rough <= step * power * 1.0001) return step * power;
  return 10 * power;
}

class panel {
 public:
  panel(const picture_of_iteration& p, double length, char letter)
      : p_{p}, per_{width / length}, length_{length} {
    const auto gpus = std::ranges::count(p.rows, false, &picture_row::link);
    std::size_t boxes = 0;
    for (const auto& row : p.rows) {
      const auto before = std::ranges::count(rows_, row.link, &picture_row::link);
      if (static_cast<std::size_t>(before) >= max_picture_rows) continue;
      rows_.push_back(row);
      boxes += row.spans.size();
    }
    detailed_ = boxes <= max_boxes;
    out_ = fmt::format("<section><h2>({}) {}: {}, GPUs busy {:.1f} %</h2>\n", letter,
                       html_text(p.schedule), amount(p.length(), p.unit), 100 * p.utilization());
    if (static_cast<std::size_t>(gpus) > max_picture_rows)
      out_ += fmt::format("<p>The first {} of {} GPUs.</p>\n", max_picture_rows, gpus);
  }

  std::string html() {
    double groups = 0;
    std::string group;
    for (const auto& row : rows_)
      if (row.group != group) group = row.group, ++groups;
    const double height = top + static_cast<double>(rows_.size()) * row_height + groups * 8;
    out_ += fmt::format("<svg viewBox='0 0 {} {:.0f}' role='img' aria-label='{}'>\n",
                        left + width + 12, height + 6, html_text(p_.schedule));
    axis(height);
    double y = top;
    group.clear();
    for (const auto& row : rows_) {
      if (row.group != group) {
        y += group.empty() ? 0 : 8;
        group = row.group;
        out_ +=
            fmt::format("<text class='g' x='4' y='{:.0f}'>{}</text>\n", y + 13, html_text(group));
      }
      draw(row, y);
      y += row_height;
    }
    return out_ + "</svg></section>\n";
  }

 private:
  void axis(double height) {
    const double step = tick_of(length_);
    const double end = left + p_.length() * per_;
    for (int i = 0; i * step <= length_ * 1.0001; ++i)
      out_ += fmt::format(
          "<path class='tick' d='M{0:.2f} {1}V{2:.0f}'/><text class='n' x='{0:.2f}' "
          "y='30'>{3:.4g}</text>\n",
          left + i * step * per_, top - 10, height, i * step);
    out_ += fmt::format("<text class='l' x='{}' y='30'>{}</text>\n", left - 14,
                        p_.unit == "slot" ? "slots" : p_.unit);
    out_ += fmt::format("<path class='end' d='M{:.2f} {}V{:.0f}'/>\n", end, top - 10, height);
  }

  void draw(const picture_row& row, double y) {
    const auto name = row.name.size() > 32 ? row.name.substr(0, 31) + "\u2026" : row.name;
    out_ += fmt::format("<text class='l' x='{}' y='{:.0f}'>{}</text>", left - 8, y + 13,
                        html_text(name));
    out_ += fmt::format("<rect class='{}' x='{}' y='{:.0f}' width='{:.2f}' height='{}'/>",
                        row.link ? "way" : "idle", left, y, p_.length() * per_, bar_height);
    if (detailed_)
      for (const auto& s : row.spans) box(s, y);
    else
      paths(row, y);
    out_ += '\n';
  }

  void box(const picture_span& s, double y) {
    const double x = left + s.begin * per_, w = (s.end - s.begin) * per_;
    const bool transfer = s.what == picture_span::kind::transfer;
    out_ += fmt::format(
        "<g><title>{}, pipeline {}: {:.6g} to {:.6g}</title>"
        "<rect class='{}{}' x='{:.2f}' y='{:.0f}' width='{:.2f}' height='{}'/>",
        html_text(s.name), s.pipeline, s.begin, s.end, classes[static_cast<int>(s.what)],
        transfer && s.pipeline % 2 == 1 ? " odd" : "", x, y, std::max(w, 0.3), bar_height);
    // A task's micro-batch; the all-reduce and the update have a name instead.
    const auto label = s.what == picture_span::kind::other ? s.name.substr(0, s.name.find(' '))
                                                           : fmt::format("{}", s.microbatch);
    if (w > 6.5 * static_cast<double>(label.size()) && s.what != picture_span::kind::prefill)
      out_ += fmt::format("<text class='m' x='{:.2f}' y='{:.0f}'>{}</text>", x + w / 2, y + 12,
                          html_text(label));
    out_ += "</g>";
  }

  void paths(const picture_row& row, double y) {
    std::string of[std::size(classes)];
    for (const auto& s : row.spans)
      of[static_cast<std::size_t>(s.what)] +=
          fmt::format("M{:.2f} {:.0f}h{:.2f}v{}h-{:.2f}z", left + s.begin * per_, y,
                      std::max(0.3, (s.end - s.begin) * per_), bar_height,
                      std::max(0.3, (s.end - s.begin) * per_));
    for (std::size_t k = 0; k < std::size(classes); ++k)
      if (!of[k].empty()) out_ += fmt::format("<path class='{}' d='{}'/>", classes[k], of[k]);
  }

  const picture_of_iteration& p_;
  double per_, length_;
  bool detailed_ = true;
  std::vector<picture_row> rows_;
  std::string out_;
};

constexpr const char* style =
    ":root{color-scheme:light "
    "dark;--page:#fff;--ink:#222;--soft:#667;--idle:#eceef1;--line:#d5d9de;"
    "--f:#d9534a;--r:#2f9e57;--b:#3b74d1;--t:#c99a1b;--odd:#8d6fd1;--p:#b23fb8;--o:#8a8f98}"
    "@media(prefers-color-scheme:dark){:root{--page:#14171a;--ink:#e3e6ea;--soft:#9aa3ad;"
    "--idle:#262b31;--line:#39414a;--f:#e36b62;--r:#3fb26b;--b:#5a8fe6;--t:#d3a93a;--odd:#a189e0;"
    "--p:#cc66d1;--o:#7c838c}}"
    "body{font:15px system-ui,sans-serif;margin:1.5em;color:var(--ink);background:var(--page)}"
    "main{display:grid;gap:1.5em;grid-template-columns:repeat(auto-fit,minmax(min(100%,760px),1fr))"
    "}"
    "h1{font-size:1.3em;margin:0 0 .3em}h2{font-size:1.05em;margin:.3em 0}p{color:var(--soft);"
    "margin:.2em 0 .8em}"
    "svg{width:100%;height:auto}text{font-size:12px;fill:var(--soft)}.g{font-weight:700;"
    "fill:var(--ink)}.l{text-anchor:end}.n{text-anchor:middle}"
    ".m{text-anchor:middle;font-size:11px;fill:#fff}.tick{stroke:var(--line);stroke-width:.7}"
    ".end{stroke:var(--ink);stroke-width:1.2;stroke-dasharray:3 3}"
    ".idle{fill:var(--idle)}.way{fill:none;stroke:var(--line);stroke-width:.7}"
    "g rect{stroke:var(--page);stroke-width:.7}.f{fill:var(--f)}.r{fill:var(--r)}.b{fill:var(--b)}"
    ".t{fill:var(--t)}.odd{fill:var(--odd)}.p{fill:var(--p)}.o{fill:var(--o)}"
    ".key i{display:inline-block;width:1em;height:.8em;margin:0 .35em 0 1em;border-radius:2px}";

std::string key() {
  std::string out = "<p class='key'>";
  for (const auto& [variable, name] : {std::pair{"f", "forward"},
                                       {"r", "recompute"},
                                       {"b", "backward"},
                                       {"t", "transfer over the WAN (pipelines 0, 2, ...)"},
                                       {"odd", "(pipelines 1, 3, ...)"},
                                       {"o", "all-reduce of gradients, update of weights"},
                                       {"idle", "idle"}})
    out += fmt::format("<i style='background:var(--{})'></i>{}", variable, name);
  return out + "</p>\n";
}

}  // namespace

double picture_of_iteration::length() const {
  double end = 0;
  for (const auto& row : rows)
    if (!row.link)
      for (const auto& s : row.spans) end = std::max(end, s.end);
  return end;
}

double picture_of_iteration::utilization() const {
  double work = 0, gpus = 0;
  for (const auto& row : rows) {
    if (row.link) continue;
    ++gpus;
    for (const auto& s : row.spans)
      if (works(s)) work += s.end - s.begin;
  }
  return gpus > 0 && length() > 0 ? work / (gpus * length()) : 0;
}

std::string iteration_picture(const std::vector<picture_of_iteration>& iterations) {
  double length = 1e-9;
  std::string names, devices;
  for (const auto& p : iterations) {
    length = std::max(length, p.length());
    names += (names.empty() ? "" : " and ") + p.schedule;
    devices = p.device;
  }
  const auto job = iterations.empty() ? std::string{} : iterations.front().job;
  std::string page = fmt::format(
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width'><title>{0}: {1}</title>\n"
      "<style>{2}</style></head><body>\n<h1>One iteration of {0}</h1>\n"
      "<p>{3}. One row per GPU and per link direction; numbers are micro-batches, counted from 0 "
      "like stages and pipelines; all on the same time scale.</p>\n",
      html_text(job), html_text(names), style,
      is_simulated(devices) ? "Simulated, in virtual time"
                            : fmt::format("Measured, on devices '{}'", html_text(devices)));
  page += key() + "<main>\n";
  char letter = 'a';
  for (const auto& p : iterations) page += panel{p, length, letter++}.html();
  return page + "</main></body></html>\n";
}

}  // namespace troupe::cli
