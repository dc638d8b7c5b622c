#include "cli/reports/iteration_picture.hpp"

#include <algorithm>
#include <fstream>
#include <map>

#include "cli/output/output.hpp"
#include "formats/traces/trace.hpp"
#include "messages/wire/task_kind.hpp"
#include "web/dashboard/job_json.hpp"
#include "web/report/report_page.hpp"

namespace troupe::cli {

namespace {

/// A task on a GPU, or a transfer on a link, in the timeline's unit.
struct span {
  std::size_t kind = 0;
  std::uint32_t pipeline = 0, microbatch = 0;
  double begin = 0, end = 0;
};

struct row {
  std::string name;   // "stage 2, dc1" or "dc1 to dc2"; stages count from 0
  std::string group;  // rows of a group follow each other: "pipeline 1", "WAN"
  bool link = false;
  std::vector<span> spans;
};

using track_id = std::pair<std::uint32_t, std::int64_t>;  // process and thread, in the file's words

struct tracks {
  std::map<std::uint32_t, std::string> processes;
  std::map<track_id, std::size_t> row_of;
  std::vector<row> rows;
};

/// "dc1 to dc2, pipelines 0 to 1"
// The hop's number is left out: people know a link by its datacenters.
std::string link_name(const json& args) {
  const auto name = args.at("name").get<std::string>();
  const auto first = args.at("pipelines").at(0).get<std::uint32_t>();
  const auto last = args.at("pipelines").at(1).get<std::uint32_t>();
  return name.substr(0, name.find(", hop")) +
         (first == last ? fmt::format(", pipeline {}", first)
                        : fmt::format(", pipelines {} to {}", first, last));
}

/// The metadata events: names of the tracks, in order.
// All names first: the order of the tracks is the order of the rows.
void read_names(const json& events, tracks& t) {
  for (const auto& e : events) {
    if (e.at("ph") != "M") continue;
    const auto pid = e.at("pid").get<std::uint32_t>();
    const auto& args = e.at("args");
    if (e.at("name") == "process_name") t.processes[pid] = args.at("name").get<std::string>();
    if (e.at("name") != "thread_name") continue;
    row r;
    r.link = args.contains("hop");
    if (r.link) {
      r.name = link_name(args);
      r.group = "WAN";
    } else {
      r.name = fmt::format("stage {}, {}", args.at("stage").get<std::uint32_t>(), t.processes[pid]);
      r.group = fmt::format("pipeline {}", args.at("pipeline").get<std::uint32_t>());
    }
    t.row_of[{pid, e.at("tid").get<std::int64_t>()}] = t.rows.size();
    t.rows.push_back(std::move(r));
  }
}

void read_spans(const json& events, tracks& t) {
  constexpr double unit_us = 1e6;  // a slot lasts a second
  for (const auto& e : events) {
    if (e.at("ph") != "X") continue;
    const auto at =
        t.row_of.find({e.at("pid").get<std::uint32_t>(), e.at("tid").get<std::int64_t>()});
    const auto kind =
        std::ranges::find(task_kinds, e.at("cat").get<std::string>(), &task_facts::name);
    // A cluster of a newer version may have kinds that this program cannot draw.
    if (at == t.row_of.end() || kind == task_kinds.end()) continue;
    const double begin = e.at("ts").get<double>() / unit_us;
    t.rows[at->second].spans.push_back({static_cast<std::size_t>(kind - task_kinds.begin()),
                                        e.at("args").at("pipeline").get<std::uint32_t>(),
                                        e.at("args").at("microbatch").get<std::uint32_t>(), begin,
                                        begin + e.at("dur").get<double>() / unit_us});
  }
}

json row_document(row r) {
  // Pages draw later spans above earlier ones.
  std::ranges::stable_sort(r.spans, {}, &span::begin);
  json spans = json::array();
  for (const auto& s : r.spans)
    spans.push_back(json::array({s.kind, s.pipeline, s.microbatch, s.begin, s.end}));
  return {{"name", r.name}, {"group", r.group}, {"link", r.link}, {"spans", std::move(spans)}};
}

/// length: until the last GPU has ended; busy: the fraction of the GPUs' time in forward, recompute
/// and backward.
json iteration_document(const json& file) {
  tracks t;
  read_names(file.at("traceEvents"), t);
  read_spans(file.at("traceEvents"), t);
  double length = 0, work = 0;
  std::size_t gpus = 0, links = 0;
  json rows = json::array();
  for (auto& r : t.rows) {
    for (const auto& s : r.spans) {
      if (r.link) break;
      length = std::max(length, s.end);
      if (s.kind <= index_of(task_kind::backward)) work += s.end - s.begin;
    }
    if ((r.link ? links : gpus)++ < max_picture_rows) rows.push_back(row_document(std::move(r)));
  }
  const double all = static_cast<double>(gpus) * length;
  return {{"schedule", file.at("otherData").at("schedule")},
          {"unit", file.at("otherData").at("unit")},
          {"length", length},
          {"busy", all > 0 ? work / all : 0},
          {"gpus", gpus},
          {"shown", std::min(gpus, max_picture_rows)},
          {"rows", std::move(rows)}};
}

}  // namespace

expected<void> draw_iterations(const std::vector<std::string>& timelines, const std::string& page) {
  json data{{"kind", "iterations"}, {"kinds", web::task_kinds_document()}};
  try {
    for (const auto& name : timelines) {
      std::ifstream in{name};
      const auto file = json::parse(in);
      data["job"] = file.at("otherData").at("job");
      data["device"] = file.at("otherData").at("device");
      data["iterations"].push_back(iteration_document(file));
    }
  } catch (const nlohmann::json::exception&) {
    return refuse(
        reason::kind::invalid,
        "the training wrote no timeline of its last iteration (is the temporary directory full?)");
  }
  return formats::save_text(page, web::report_page(data));
}

}  // namespace troupe::cli
