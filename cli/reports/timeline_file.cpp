#include <algorithm>
#include <fstream>
#include <map>

#include "cli/common/output.hpp"
#include "cli/reports/iteration_picture.hpp"
#include "formats/traces/trace.hpp"

namespace troupe::cli {

namespace {

picture_span::kind kind_of(const std::string& category) {
  using kind = picture_span::kind;
  if (category == "forward") return kind::forward;
  if (category == "recompute") return kind::recompute;
  if (category == "backward") return kind::backward;
  if (category == "activation" || category == "gradient") return kind::transfer;
  return category == "prefill" ? kind::prefill : kind::other;
}

using track_id = std::pair<std::uint32_t, std::int64_t>;

struct tracks {
  std::map<std::uint32_t, std::string> processes;
  std::map<track_id, std::size_t> row_of;
  std::vector<picture_row> rows;
};

/// "dc1 to dc2, pipelines 0 to 1"
std::string link_name(const json& args) {
  const auto name = args.at("name").get<std::string>();
  const auto first = args.at("pipelines").at(0).get<std::uint32_t>();
  const auto last = args.at("pipelines").at(1).get<std::uint32_t>();
  return name.substr(0, name.find(", hop")) +
         (first == last ? fmt::format(", pipeline {}", first)
                        : fmt::format(", pipelines {} to {}", first, last));
}

/// The metadata events: names of the tracks, in order.
void read_names(const json& events, tracks& t) {
  for (const auto& e : events) {
    if (e.at("ph") != "M") continue;
    const auto pid = e.at("pid").get<std::uint32_t>();
    const auto& args = e.at("args");
    if (e.at("name") == "process_name") t.processes[pid] = args.at("name").get<std::string>();
    if (e.at("name") != "thread_name") continue;
    picture_row row;
    row.link = args.contains("hop");
    if (row.link) {
      row.name = link_name(args);
      row.group = "WAN";
    } else {
      row.name =
          fmt::format("stage {}, {}", args.at("stage").get<std::uint32_t>(), t.processes[pid]);
      row.group = fmt::format("pipeline {}", args.at("pipeline").get<std::uint32_t>());
    }
    t.row_of[{pid, e.at("tid").get<std::int64_t>()}] = t.rows.size();
    t.rows.push_back(std::move(row));
  }
}

void read_spans(const json& events, tracks& t, double unit_us) {
  for (const auto& e : events) {
    if (e.at("ph") != "X") continue;
    const auto at =
        t.row_of.find({e.at("pid").get<std::uint32_t>(), e.at("tid").get<std::int64_t>()});
    if (at == t.row_of.end()) continue;
    picture_span s;
    s.what = kind_of(e.at("cat").get<std::string>());
    s.name = e.at("name").get<std::string>();
    s.begin = e.at("ts").get<double>() / unit_us;
    s.end = s.begin + e.at("dur").get<double>() / unit_us;
    if (e.contains("args")) {
      s.pipeline = e["args"].value("pipeline", 0U);
      s.microbatch = e["args"].value("microbatch", 0U);
    }
    t.rows[at->second].spans.push_back(std::move(s));
  }
}

}  // namespace

expected<picture_of_iteration> load_timeline(const std::string& file) {
  std::ifstream in{file};
  const auto d = in ? json::parse(in, nullptr, false) : json(json::value_t::discarded);
  const auto none = [] {
    return refuse(
        reason::kind::invalid,
        "the training wrote no timeline of its last iteration (is the temporary directory full?)");
  };
  if (d.is_discarded()) return none();
  picture_of_iteration p;
  try {
    const auto& about = d.at("otherData");
    p.job = about.at("job").get<std::string>();
    p.schedule = about.at("schedule").get<std::string>();
    p.device = about.at("device").get<std::string>();
    p.unit = about.at("unit").get<std::string>();
    tracks t;
    read_names(d.at("traceEvents"), t);
    read_spans(d.at("traceEvents"), t, 1e6);
    p.rows = std::move(t.rows);
  } catch (const nlohmann::json::exception&) {
    return none();
  }
  for (auto& row : p.rows) std::ranges::stable_sort(row.spans, {}, &picture_span::begin);
  return p;
}

expected<void> draw_iterations(const std::vector<std::string>& timelines, const std::string& page) {
  std::vector<picture_of_iteration> drawn;
  for (const auto& file : timelines) {
    auto loaded = load_timeline(file);
    if (!loaded) return refuse(loaded.error());
    drawn.push_back(std::move(*loaded));
  }
  return formats::save_text(page, iteration_picture(drawn));
}

}  // namespace troupe::cli
