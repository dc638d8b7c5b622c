#include "actors/training/trainer/timeline.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "messages/wire/task_kind.hpp"

namespace troupe::actors {

namespace {

constexpr std::uint32_t links = 1'000'000;  // the WAN's own process

/// By task_kind, in chrome://tracing.
constexpr std::array<std::string_view, task_kinds.size()> colours{
    "good",  "yellow",    "thread_state_running", "olive",         "grey",
    "black", "rail_load", "rail_response",        "rail_animation"};
static_assert(!colours.back().empty());

/// Names come from users' files.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text)
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return out + '"';
}

/// A track: a stage's GPU, or one direction of a hop.
struct track {
  std::uint32_t process = 0;
  std::int64_t id = 0;
  std::string name;
  std::string args;  // JSON, without its braces
};

class writer {
 public:
  explicit writer(std::ofstream& out) : out_{out} { out_ << "{\"traceEvents\":["; }

  void process(std::uint32_t id, std::string_view name) {
    line(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", id,
                     json_string(name)));
  }
  void begin(const track& t) {
    line(fmt::format(
        R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{},{}}}}})", t.process,
        t.id, json_string(t.name), t.args));
    line(fmt::format(
        R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})",
        t.process, t.id, sort_index_++));
  }
  /// Perfetto colours by the name without its digits, chrome://tracing by cname.
  void span(const track& on, std::uint32_t pipeline, const timed_task& t, double zero_s) {
    const auto& name = task_kinds[t.what].name;
    line(fmt::format(
        R"({{"ph":"X","pid":{},"tid":{},"name":"{} {}","cat":"{}","cname":"{}","ts":{:.3f},)"
        R"("dur":{:.3f},"args":{{"pipeline":{},"microbatch":{}}}}})",
        on.process, on.id, name, t.microbatch, name, colours[t.what], (t.begin_s - zero_s) * 1e6,
        (t.end_s - t.begin_s) * 1e6, pipeline, t.microbatch));
  }
  void end(const std::string& about) {
    out_ << "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{" << about << "}}\n";
  }

 private:
  void line(const std::string& text) {
    out_ << (first_ ? "\n" : ",\n") << text;
    first_ = false;
  }
  std::ofstream& out_;
  bool first_ = true;
  int sort_index_ = 0;
};

/// A link: its hop and direction, and the DP-cell or pipeline that uses it.
struct link_key {
  std::uint32_t hop = 0;
  bool backward = false;
  std::uint32_t cell = 0;
  auto operator<=>(const link_key&) const = default;
};
struct transfer {
  timed_task task;
  std::uint32_t pipeline = 0;
};
using transfers = std::map<link_key, std::vector<transfer>>;

/// A transfer is recorded from when it was sent. Its place in the sender's queue is not the link's
/// time: on the link it begins when the one before has ended.
void trim_waiting(std::vector<transfer>& all) {
  std::ranges::stable_sort(all, {}, [](const transfer& x) { return x.task.end_s; });
  for (std::size_t i = 1; i < all.size(); ++i)
    all[i].task.begin_s = std::max(all[i].task.begin_s, all[i - 1].task.end_s);
}

/// The first pipeline of each DP-cell, or of each pipeline where none share the WAN, in order.
std::vector<std::uint32_t> cells_of(const training_plan& plan) {
  std::vector<std::uint32_t> cells;
  for (std::size_t g = 0; g < plan.shapes.size(); ++g) {
    const auto each = plan.schedules[g].shares_wan ? plan.shapes[g].pipelines_per_cell() : 1;
    for (std::uint32_t p = 0; p < plan.shapes[g].pipelines; p += each)
      cells.push_back(plan.first_of(g) + p);
  }
  return cells;
}

std::string about(const training_plan& plan, const job_spec& job, std::uint64_t iteration) {
  return fmt::format(
      R"("job":{},"schedule":{},"device":{},"unit":"{}","iteration":{},"stages":{},"pipelines":{},)"
      R"("microbatches":{})",
      json_string(job.name), json_string(plan.schedule_name),
      json_string(plan.stages.empty() ? "" : plan.stages.front().backend),
      facts_of(job).has_model ? "s" : "slot", iteration, plan.stages_each(), plan.pipelines(),
      plan.shapes.front().microbatches);
}

}  // namespace

// Stages run up to one iteration apart: the first report of a newer one drops the older. A stage
// that is late with that has no tasks in the timeline.
void timeline::add(const stage_report& r) {
  if (r.iteration < iteration_) return;
  if (r.iteration > iteration_) reports_.clear();
  iteration_ = r.iteration;
  reports_[{r.name.pipeline, r.name.stage}] = r;
}

std::string unwritten_timeline(const std::string& file) {
  return file + ": the timeline cannot be written";
}

// Written event by event and not as one JSON document, which would hold all of them a second time.
// Names of users are the only text, and are escaped.
expected<void> timeline::write(const std::string& file, const cluster& c, const training_plan& plan,
                               const job_spec& job) const {
  std::ofstream out{file};
  if (!out) return refuse(reason::kind::invalid, unwritten_timeline(file));
  double zero_s = std::numeric_limits<double>::max();
  for (const auto& [who, r] : reports_) zero_s = std::min(zero_s, r.begin_s);
  const auto cells = cells_of(plan);
  const auto node_of_stage = [&](std::uint32_t pipeline, std::uint32_t stage) {
    return node_of(plan.stages[pipeline * plan.stages_each() + stage].neighbours[stage]);
  };
  writer w{out};
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d) w.process(d, c.datacenters[d].name);
  w.process(links, "WAN");
  // Devices first, so that their tracks are above those of the links, which need all stages' tasks:
  // a link's transfers are reported by the stages at its two ends.
  transfers over_wan;
  for (const auto& [who, r] : reports_) {
    const auto [pipeline, stage] = who;
    const auto n = node_of_stage(pipeline, stage);
    const auto device = plan.stages[pipeline * plan.stages_each() + stage].devices.front();
    const track gpu{c.nodes[n].datacenter, std::int64_t{n} * 1000 + device,
                    fmt::format("pipeline {} stage {} ({})", pipeline, stage, c.nodes[n].name),
                    fmt::format(R"("pipeline":{},"stage":{})", pipeline, stage)};
    w.begin(gpu);
    for (const auto& t : r.tasks) {
      if (!facts_of_task(t.what)) continue;  // what a stage reports is not checked
      if (task_kinds[t.what].on_device) {
        w.span(gpu, pipeline, t, zero_s);
        continue;
      }
      const bool backward = t.what == index_of(task_kind::gradient_transfer);
      if (backward ? stage + 1 >= plan.stages_each() : stage == 0)
        continue;  // there is no such hop
      const auto cell = std::ranges::upper_bound(cells, pipeline) - cells.begin() - 1;
      over_wan[{backward ? stage : stage - 1, backward, static_cast<std::uint32_t>(cell)}]
          .push_back({t, pipeline});
    }
  }
  // Hop h joins stages h and h + 1; its backward direction is a track of its own, since the two do
  // not share bandwidth.
  for (auto& [key, all] : over_wan) {
    trim_waiting(all);
    const auto first = cells[key.cell];
    const auto last = (key.cell + 1 < cells.size() ? cells[key.cell + 1] : plan.pipelines()) - 1;
    const auto near = c.nodes[node_of_stage(first, key.hop)].datacenter;
    const auto far = c.nodes[node_of_stage(first, key.hop + 1)].datacenter;
    const track hop{
        links, (std::int64_t{key.hop} * 2 + key.backward) * 10'000 + key.cell,
        fmt::format("{} to {}, hop {}, {}", c.datacenters[key.backward ? far : near].name,
                    c.datacenters[key.backward ? near : far].name, key.hop,
                    first == last ? fmt::format("pipeline {}", first)
                                  : fmt::format("pipelines {} to {}", first, last)),
        fmt::format(R"("hop":{},"backward":{},"pipelines":[{},{}])", key.hop, key.backward, first,
                    last)};
    w.begin(hop);
    for (const auto& x : all)
      if (x.task.end_s > x.task.begin_s) w.span(hop, x.pipeline, x.task, zero_s);
  }
  w.end(about(plan, job, iteration_));
  out.close();
  if (!out) return refuse(reason::kind::unavailable, unwritten_timeline(file));
  return {};
}

}  // namespace troupe::actors
