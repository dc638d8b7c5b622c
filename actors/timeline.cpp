#include "actors/timeline.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string_view>

#include <fmt/format.h>

namespace troupe::actors {

namespace {

constexpr std::string_view names[] = {"forward", "recompute",  "backward",   "reduce",
                                      "update",  "checkpoint", "activation", "gradient"};
constexpr std::string_view colours[] = {"good",      "yellow",       "thread_state_running",
                                        "olive",     "grey",         "black",
                                        "rail_load", "rail_response"};
constexpr std::uint8_t first_way = 6;
constexpr std::uint32_t links = 1'000'000;  // the WAN's own process

/// One event, and the comma before it.
class events {
 public:
  explicit events(std::ofstream& out) : out_{out} { out_ << "{\"traceEvents\":["; }
  ~events() { out_ << "\n],\"displayTimeUnit\":\"ms\"}\n"; }
  events(const events&) = delete;

  void name(std::uint32_t process, std::int64_t track, std::string_view what,
            std::string_view name) {
    line(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":"{}"}}}})",
                     process, track, what, name));
  }
  void span(std::uint32_t process, std::int64_t track, const timed_task& t, double zero_s) {
    line(fmt::format(
        R"({{"ph":"X","pid":{},"tid":{},"name":"{} {}","cname":"{}","ts":{:.3f},"dur":{:.3f}}})",
        process, track, names[t.what], t.microbatch, colours[t.what], (t.begin_s - zero_s) * 1e6,
        (t.end_s - t.begin_s) * 1e6));
  }

 private:
  void line(const std::string& text) {
    out_ << (first_ ? "\n" : ",\n") << text;
    first_ = false;
  }
  std::ofstream& out_;
  bool first_ = true;
};

/// The track of a tensor's way: by hop, direction, pipeline.
std::int64_t link_track(const stage_report& r, const timed_task& t) {
  const bool gradient = t.what != first_way;
  const auto hop = gradient ? r.name.stage : r.name.stage - 1;
  return (std::int64_t{hop} * 2 + gradient) * 10'000 + r.name.pipeline;
}

}  // namespace

void timeline::add(const stage_report& r) {
  if (r.iteration < iteration_) return;
  if (r.iteration > iteration_) reports_.clear();
  iteration_ = r.iteration;
  reports_[{r.name.pipeline, r.name.stage}] = r;
}

expected<void> timeline::write(const std::string& file, const cluster& c,
                               const training_plan& plan) const {
  std::ofstream out{file};
  if (!out)
    return refuse(reason::kind::invalid, fmt::format("{}: the timeline cannot be written", file));
  double zero_s = std::numeric_limits<double>::max();
  for (const auto& [who, r] : reports_) zero_s = std::min(zero_s, r.begin_s);
  events e{out};
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
    e.name(d, 0, "process_name", c.datacenters[d].name);
  e.name(links, 0, "process_name", "WAN");
  for (const auto& [who, r] : reports_) {
    const auto& setup = plan.stages[who.first * plan.shape.stages + who.second];
    const auto n = node_of(c, setup.neighbours[who.second]);
    const auto process = c.nodes[n].datacenter;
    const auto track = std::int64_t{n} * 1000 + setup.device;
    e.name(process, track, "thread_name",
           fmt::format("pipeline {} stage {} ({})", who.first, who.second, c.nodes[n].name));
    for (const auto& t : r.tasks) {
      if (t.what < first_way) {
        e.span(process, track, t, zero_s);
        continue;
      }
      const auto link = link_track(r, t);
      e.name(links, link, "thread_name",
             fmt::format("hop {}, {}, pipeline {}", link / 20'000,
                         t.what == first_way ? "forward" : "backward", who.first));
      e.span(links, link, t, zero_s);
    }
  }
  return {};
}

}  // namespace troupe::actors
