#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "cli/program.hpp"
#include "cli/reports/iteration_picture.hpp"

namespace fs = std::filesystem;
using namespace troupe::cli;
using namespace troupe::test;
using nlohmann::json;

namespace {

std::string text_of_file(const fs::path& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// A timeline of `gpus` GPUs, each with these spans, and of one link with one transfer: as
/// actors/training/trainer/timeline.cpp writes it.
json timeline_of(std::size_t gpus, const std::vector<std::array<double, 3>>& spans) {
  constexpr const char* names[] = {"forward", "recompute", "backward", "reduce"};
  json events = json::array();
  const auto span = [&](std::size_t pid, std::size_t tid, const std::string& kind, double begin,
                        double end) {
    events.push_back({{"ph", "X"},
                      {"pid", pid},
                      {"tid", tid},
                      {"name", kind + " 0"},
                      {"cat", kind},
                      {"ts", begin * 1e6},
                      {"dur", (end - begin) * 1e6},
                      {"args", {{"pipeline", 0}, {"microbatch", 0}}}});
  };
  const auto track = [&](std::size_t pid, std::size_t tid, const std::string& name, json args) {
    args["name"] = name;
    events.push_back(
        {{"ph", "M"}, {"pid", pid}, {"tid", tid}, {"name", "thread_name"}, {"args", args}});
  };
  events.push_back(
      {{"ph", "M"}, {"pid", 0}, {"name", "process_name"}, {"args", {{"name", "dc1"}}}});
  for (std::size_t g = 0; g < gpus; ++g) {
    track(0, g, "gpu", {{"pipeline", 0}, {"stage", g}});
    for (const auto& [kind, begin, end] : spans)
      span(0, g, names[static_cast<std::size_t>(kind)], begin, end);
  }
  track(9, 0, "dc1 to dc2, hop 0, pipeline 0",
        {{"hop", 0}, {"backward", 0}, {"pipelines", {0, 1}}});
  span(9, 0, "activation", 1, 3);
  return {{"traceEvents", events},
          {"otherData",
           {{"job", "a </script> & its 'name'"},
            {"schedule", "varuna"},
            {"device", "sim"},
            {"unit", "slot"}}}};
}

json drawn(const std::vector<json>& timelines) {
  const scratch directory;
  std::vector<std::string> files;
  for (const auto& t : timelines)
    files.push_back(directory.write(fmt::format("{}.json", files.size()), t.dump()));
  const auto page = directory.path("page.html");
  REQUIRE(draw_iterations(files, page));
  return data_of_page(page);
}

/// The spans of a kind on all rows of an iteration.
std::size_t count(const json& data, const json& iteration, const std::string& kind) {
  std::size_t n = 0;
  for (const auto& row : iteration["rows"])
    for (const auto& s : row["spans"]) n += data["kinds"][s[0].get<std::size_t>()]["what"] == kind;
  return n;
}

std::size_t rows_of(const json& iteration, bool links) {
  std::size_t n = 0;
  for (const auto& row : iteration["rows"]) n += row["link"] == links;
  return n;
}

/// A timeline's spans by track (process and thread), and its names.
struct trace {
  json document;
  std::map<std::pair<int, long>, std::vector<std::pair<double, double>>> spans;
  std::set<std::string> categories;
  int gpus = 0, links = 0;
};

trace traced(const std::string& schedule) {
  const scratch directory;
  const auto file = directory.path("timeline.json");
  const auto r = troupe::test::troupe(
      {"train", shipped("jobs/figure6.yaml"), "--schedule", schedule, "--timeline", file});
  INFO(r.err);
  REQUIRE(r.status == 0);
  trace t;
  t.document = json::parse(text_of_file(file));
  for (const auto& e : t.document["traceEvents"]) {
    if (e["ph"] == "M" && e["name"] == "thread_name")
      ++(e["args"].contains("hop") ? t.links : t.gpus);
    if (e["ph"] != "X") continue;
    const double begin = e["ts"];
    t.spans[{e["pid"], e["tid"]}].emplace_back(begin, begin + e["dur"].get<double>());
    t.categories.insert(e["cat"]);
    CHECK(e["name"].get<std::string>().starts_with(e["cat"].get<std::string>() + " "));
    CHECK(e.contains("cname"));
  }
  return t;
}

}  // namespace

TEST_CASE("a picture has every task, the length and the utilization, and is self-contained") {
  const auto one = timeline_of(2, {{0, 0, 1}, {1, 7, 8}, {2, 8, 10}, {3, 10, 12}});
  auto other = one;
  other["otherData"]["schedule"] = "atlas";
  const auto page = drawn({one, other});
  CHECK(page["kind"] == "iterations");
  CHECK(page["job"] == "a </script> & its 'name'");  // which does not end the data
  CHECK(page["device"] == "sim");
  REQUIRE(page["iterations"].size() == 2);
  CHECK(page["iterations"][0]["schedule"] == "varuna");
  CHECK(page["iterations"][1]["schedule"] == "atlas");
  for (const auto& i : page["iterations"]) {
    CHECK(i["unit"] == "slot");
    CHECK(i["length"] == 12);
    CHECK(i["busy"].get<double>() == Approx(4.0 / 12));  // an all-reduce is no work
    for (const auto* kind : {"forward", "recompute", "backward", "reduce"})
      CHECK(count(page, i, kind) == 2);
    CHECK(count(page, i, "activation") == 1);
    REQUIRE(i["rows"].size() == 3);
    CHECK(i["rows"][1]["name"] == "stage 1, dc1");  // all count from 0
    CHECK(i["rows"][1]["group"] == "pipeline 0");
    CHECK(i["rows"][2]["name"] == "dc1 to dc2, pipelines 0 to 1");
    CHECK(i["rows"][2]["group"] == "WAN");
    CHECK(i["rows"][2]["spans"][0] == json::array({6, 0, 0, 1.0, 3.0}));
  }
}

TEST_CASE("a picture of very many tasks stays small, and says what it leaves out") {
  const auto page = drawn({timeline_of(1000, std::vector<std::array<double, 3>>(60, {0, 0, 1}))});
  const auto& i = page["iterations"][0];
  CHECK(i["gpus"] == 1000);
  CHECK(i["shown"] == max_picture_rows);
  CHECK(rows_of(i, false) == max_picture_rows);
  CHECK(rows_of(i, true) == 1);
  CHECK(page.dump().size() < 1'000'000);
}

TEST_CASE("a timeline that was not written as a whole is refused") {
  const scratch directory;
  const auto half = directory.write("half.json", "{\"traceEvents\":[");
  for (const auto& file : {half, directory.path("none.json")}) {
    const auto ok = draw_iterations({file}, directory.path("page.html"));
    REQUIRE_FALSE(ok);
    CHECK(ok.error().text.find("no timeline") != std::string::npos);
  }
}

TEST_CASE("train draws the iterations of two schedules side by side") {
  const scratch directory;
  const auto file = directory.path("figure6.html");
  const auto r =
      troupe::test::troupe({"train", shipped("jobs/figure6.yaml"), "--schedule", "varuna",
                            "--against", "atlas", "--picture", file, "--json"});
  INFO(r.err);
  REQUIRE(r.status == 0);
  const auto d = json::parse(r.out);
  CHECK(d["slots"].get<double>() == Approx(38).epsilon(1e-9));
  CHECK(d["against"]["slots"].get<double>() == Approx(36).epsilon(1e-9));
  CHECK(d["picture"] == file);
  const auto page = data_of_page(file);
  const auto &varuna = page["iterations"][0], &atlas = page["iterations"][1];
  CHECK(varuna["schedule"] == "varuna");
  CHECK(varuna["length"].get<double>() == Approx(38).epsilon(1e-6));
  CHECK(varuna["busy"].get<double>() == Approx(0.404).margin(5e-4));
  CHECK(atlas["schedule"] == "atlas");
  CHECK(atlas["length"].get<double>() == Approx(36).epsilon(1e-6));
  CHECK(atlas["busy"].get<double>() == Approx(0.426).margin(5e-4));
  for (const auto& i : page["iterations"]) {
    std::set<std::string> names, groups;
    for (const auto& row : i["rows"]) {
      names.insert(row["name"]);
      groups.insert(row["group"]);
    }
    CHECK(groups == std::set<std::string>{"WAN", "pipeline 0", "pipeline 1"});
    CHECK(names.contains("stage 0, dc1"));
    CHECK(names.contains("stage 5, dc3"));
    CHECK_FALSE(names.contains("stage 6, dc3"));
    CHECK(count(page, i, "forward") == 6 * 2 * 4);
    CHECK(count(page, i, "backward") == 6 * 2 * 4);
    // Two hops, for two pipelines and four micro-batches.
    CHECK(count(page, i, "activation") == 2 * 2 * 4);
    CHECK(count(page, i, "gradient") == 2 * 2 * 4);
  }
  for (const auto& x : fs::directory_iterator{directory.path()})
    CHECK(x.path().string().find(".run") == std::string::npos);
  CHECK(
      troupe::test::troupe({"train", shipped("jobs/figure6.yaml"), "--against", "atlas"}).status ==
      2);
}

TEST_CASE("a timeline has a track per GPU and per link, and the spans of a track do not overlap") {
  for (const auto& [schedule, links] : {std::pair{"varuna", 8}, {"atlas", 4}}) {
    INFO(schedule);
    auto t = traced(schedule);
    CHECK(t.gpus == 12);
    CHECK(t.links == links);
    CHECK(t.spans.size() == 12u + static_cast<unsigned>(links));
    for (const auto* kind : {"forward", "recompute", "backward", "activation", "gradient"})
      CHECK(t.categories.count(kind) == 1);
    for (auto& [track, spans] : t.spans) {
      std::sort(spans.begin(), spans.end());
      for (std::size_t i = 1; i < spans.size(); ++i)
        CHECK(spans[i].first >= spans[i - 1].second - 0.002);  // us, as rounded
    }
    CHECK(t.document["otherData"]["schedule"] == schedule);
  }
}

TEST_CASE("a training of real processes over an emulated WAN is drawn like a simulated one") {
  const scratch directory;
  const auto file = directory.path("real.html");
  const auto r = troupe::test::troupe({"train", shipped("jobs/train-two-stages.yaml"), "--world",
                                       "local", "--iterations", "2", "--schedule", "varuna",
                                       "--picture", file, "--json"});
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK(json::parse(r.out)["stages_count"] == 2);
  const auto page = data_of_page(file);
  CHECK(page["device"] == "cpu");
  REQUIRE(page["iterations"].size() == 1);
  const auto& i = page["iterations"][0];
  CHECK(i["unit"] == "s");
  CHECK(rows_of(i, false) == 2);
  CHECK(rows_of(i, true) == 2);
  for (const auto* kind : {"forward", "backward"}) CHECK(count(page, i, kind) == 2 * 4);
  CHECK(count(page, i, "activation") + count(page, i, "gradient") == 2 * 4);
  CHECK(count(page, i, "update") == 2);
}
