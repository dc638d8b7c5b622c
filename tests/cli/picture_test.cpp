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

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

/// Two GPUs and a link, one micro-batch.
picture_of_iteration small() {
  using kind = picture_span::kind;
  picture_of_iteration p;
  p.job = "a <job> & its 'name'";
  p.schedule = "varuna";
  p.device = "sim";
  p.unit = "slot";
  p.rows = {
      {"stage 0, dc1",
       "pipeline 0",
       false,
       {{kind::forward, "forward 0", 0, 0, 0, 1},
        {kind::recompute, "recompute 0", 0, 0, 7, 8},
        {kind::backward, "backward 0", 0, 0, 8, 10}}},
      {"stage 1, dc2",
       "pipeline 0",
       false,
       {{kind::forward, "forward 0", 0, 0, 3, 4}, {kind::backward, "backward 0", 0, 0, 4, 6}}},
      {"dc1 to dc2", "WAN", true, {{kind::transfer, "activation 0", 0, 0, 1, 3}}}};
  return p;
}

/// Of a timeline: each track's spans, by process and thread; and the names.
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

TEST_CASE("a picture has a box per task, the length and the utilization, and is self-contained") {
  const auto p = small();
  CHECK(p.length() == 10);
  CHECK(p.utilization() == Approx(7.0 / 20));
  auto other = p;
  other.schedule = "atlas";
  const auto page = iteration_picture({p, other});
  CHECK(count(page, "<svg") == 2);
  CHECK(count(page, "<rect class='f'") == 4);
  CHECK(count(page, "<rect class='r'") == 2);
  CHECK(count(page, "<rect class='b'") == 4);
  CHECK(count(page, "<rect class='t'") == 2);
  CHECK(count(page, "<rect class='idle'") == 4);
  CHECK(page.find("(a) varuna: 10 slots, GPUs busy 35.0 %") != std::string::npos);
  CHECK(page.find("(b) atlas: 10 slots") != std::string::npos);
  CHECK(page.find("a &lt;job&gt; &amp; its &#39;name&#39;") != std::string::npos);
  CHECK(page.find("forward 0, pipeline 0: 0 to 1") != std::string::npos);  // all count from 0
  CHECK(page.find("prefers-color-scheme:dark") != std::string::npos);
  for (const auto* outside : {"http", "<script", "@import", "url(", "<link", "<img"})
    CHECK(page.find(outside) == std::string::npos);
}

TEST_CASE("a picture of very many tasks stays small, and says what it leaves out") {
  auto p = small();
  const auto row = p.rows.front();
  p.rows.clear();
  for (std::size_t i = 0; i < 1000; ++i) {
    p.rows.push_back(row);
    for (int k = 0; k < 60; ++k) p.rows.back().spans.push_back(row.spans.front());
  }
  const auto page = iteration_picture({p});
  CHECK(page.find("The first 240 of 1000 GPUs.") != std::string::npos);
  CHECK(count(page, "<rect class='idle'") == max_picture_rows);
  CHECK(page.size() < 1'000'000);
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
  const auto page = text_of_file(file);
  CHECK(page.find("(a) varuna: 38 slots, GPUs busy 40.4 %") != std::string::npos);
  CHECK(page.find("(b) atlas: 36 slots, GPUs busy 42.6 %") != std::string::npos);
  for (const auto* name : {"stage 0, dc1", "stage 5, dc3", "pipeline 0<", "pipeline 1<"})
    CHECK(page.find(name) != std::string::npos);
  CHECK(page.find("stage 6,") == std::string::npos);
  CHECK(count(page, "<rect class='f'") == 2 * 6 * 2 * 4);
  CHECK(count(page, "<rect class='b'") == 2 * 6 * 2 * 4);
  // Both directions of two hops, for two pipelines and four micro-batches; and under two schedules.
  CHECK(count(page, "<rect class='t'") + count(page, "<rect class='t odd'") == 2 * 2 * 2 * 2 * 4);
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
  const auto page = text_of_file(file);
  CHECK(page.find("Measured, on devices 'cpu'") != std::string::npos);
  CHECK(count(page, "<rect class='idle'") == 2);
  CHECK(count(page, "<rect class='way'") == 2);
  CHECK(count(page, "<rect class='f'") == 2 * 4);
  CHECK(count(page, "<rect class='b'") == 2 * 4);
  CHECK(count(page, "<rect class='t'") == 2 * 4);
  CHECK(page.find("update 0, pipeline 0") != std::string::npos);
}
