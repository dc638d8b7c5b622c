#include "web/dashboard/dashboard_json.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/scratch.hpp"
#include "harness/source_dir.hpp"
#include "messages/wire/task_kind.hpp"
#include "web/dashboard/dashboard_facts.hpp"
#include "web/dashboard/dashboard_metrics.hpp"
#include "web/dashboard/dashboard_page.hpp"
#include "web/dashboard/job_json.hpp"
#include "web/dashboard_sample.hpp"

using namespace troupe;
using namespace troupe::test;
using namespace troupe::web;
using nlohmann::json;

TEST_CASE("the cluster's JSON has the nodes of each datacenter, and who holds their GPUs") {
  const auto d = json::parse(dashboard_json::cluster(sample_cluster()));
  CHECK(d["name"] == "two");
  CHECK(d["scheduling"]["started"] == 3);
  REQUIRE(d["datacenters"].size() == 2);
  const auto& a = d["datacenters"][0];
  CHECK(a["gateway_present"] == true);
  REQUIRE(a["nodes"].size() == 1);
  CHECK(a["nodes"][0]["idle"] == 1);
  REQUIRE(a["nodes"][0]["holders"].size() == 1);
  CHECK(a["nodes"][0]["holders"][0]["gpus"] == 3);
  CHECK(a["nodes"][0]["holders"][0]["job"] == 1);
  const auto& b = d["datacenters"][1];
  CHECK(b["gateway_present"] == false);
  CHECK(b["nodes"][0]["present"] == false);
  CHECK(b["nodes"][0]["holders"].empty());
}

TEST_CASE("merged jobs hold their GPUs once, by the first of them and all names") {
  auto r = sample_cluster();
  auto& first = r.jobs[0];
  first.merged_with = {2};
  first.lease = 4;
  auto& second = r.jobs[1];
  second.state = job_state::running;
  second.where = first.where;
  second.merged_with = {1};
  second.lease = 4;
  const auto d = json::parse(dashboard_json::cluster(r));
  const auto& holders = d["datacenters"][0]["nodes"][0]["holders"];
  REQUIRE(holders.size() == 1);
  CHECK(holders[0]["job"] == 1);
  CHECK(holders[0]["name"] == "tiny \"gpt\" + evaluation");
  CHECK(holders[0]["gpus"] == 3);
  const auto jobs = json::parse(dashboard_json::jobs(r))["jobs"];
  CHECK(jobs[0]["merged_with"] == json::array({2}));
  CHECK(jobs[1]["merged_with"] == json::array({1}));
  CHECK(jobs[1]["lease"] == 4);
}

TEST_CASE("a job whose pipelines are groups has a sentence for each") {
  auto r = sample_cluster();
  r.jobs[0].groups = {"1 pipeline in a, 3 micro-batches: A100 x 1", "another"};
  r.jobs[1].groups = {"of its last attempt: it waits"};
  const auto jobs = json::parse(dashboard_json::jobs(r))["jobs"];
  CHECK(jobs[0]["groups"] ==
        json::array({"1 pipeline in a, 3 micro-batches: A100 x 1", "another"}));
  CHECK(jobs[1]["groups"].empty());
}

TEST_CASE("a job that follows another holds only what the other one does not have") {
  auto r = sample_cluster();
  auto& first = r.jobs[0];  // three of the node's four GPUs
  first.lease = 4;
  auto& second = r.jobs[1];
  second.state = job_state::running;
  second.where = first.where;
  second.lease = 5;
  second.follows = 4;
  const auto holders = [&] {
    return json::parse(dashboard_json::cluster(r))["datacenters"][0]["nodes"][0]["holders"];
  };
  REQUIRE(holders().size() == 1);
  CHECK(holders()[0]["job"] == 1);
  CHECK(holders()[0]["gpus"] == 3);
  CHECK(json::parse(dashboard_json::jobs(r))["jobs"][1]["follows"] == 4);
  second.where = {{0, 4}};  // and the free one
  REQUIRE(holders().size() == 2);
  CHECK(holders()[1]["job"] == 2);
  CHECK(holders()[1]["gpus"] == 1);
  second.follows.reset();  // the other one has ended
  first.state = job_state::finished;
  REQUIRE(holders().size() == 1);
  CHECK(holders()[0]["gpus"] == 4);
}

TEST_CASE("an explanation says with whom a job is merged, why not, and whom it follows") {
  explanation e;
  auto d = json::parse(dashboard_json::explain(e));
  CHECK(d.at("merge").is_null());
  CHECK(d.at("follows").is_null());
  e.merge = merge_view{"shared", {2, 3}, 0.75, 1.5, ""};
  e.follows = 9;
  d = json::parse(dashboard_json::explain(e));
  CHECK(d["merge"]["kind"] == "shared");
  CHECK(d["merge"]["with"] == json::array({2, 3}));
  CHECK(d["merge"]["similarity"] == 0.75);
  CHECK(d["merge"]["duration_ratio"] == 1.5);
  CHECK(d["merge"]["why_not"].is_null());
  CHECK(d["follows"] == 9);
  e.merge = merge_view{"adapters", {}, {}, {}, "no other job waits"};
  d = json::parse(dashboard_json::explain(e));
  CHECK(d["merge"]["with"].empty());
  CHECK(d["merge"]["similarity"].is_null());
  CHECK(d["merge"]["why_not"] == "no other job waits");
}

TEST_CASE("a reply of a controller that says nothing of datacenters still gives JSON") {
  auto r = sample_cluster();
  r.view.reset();
  r.gateways.clear();
  CHECK(json::parse(dashboard_json::cluster(r))["datacenters"].empty());
  CHECK(json::parse(dashboard_json::links(r, nullptr))["links"].empty());
  CHECK(json::parse(
            dashboard_json::timeline(sample_training(), query_reply{}))["rows"][0]["node"] == "?");
}

TEST_CASE("a job's name is text, in JSON and in metrics, whatever it looks like") {
  auto r = sample_cluster();
  r.jobs[1].name = "<img src=x onerror=alert(1)>";
  CHECK(json::parse(dashboard_json::jobs(r))["jobs"][1]["name"] == r.jobs[1].name);
  const cluster_facts facts{r, {}};
  CHECK(cluster_metrics(&facts).find(
            R"(troupe_queue_seconds{job="2",name="<img src=x onerror=alert(1)>"} 10)") !=
        std::string::npos);
}

TEST_CASE("a waiting job's JSON has its time in the queue, a running one's where it runs") {
  const auto d = json::parse(dashboard_json::jobs(sample_cluster()));
  REQUIRE(d["jobs"].size() == 2);
  CHECK(d["jobs"][0]["waited_s"].is_null());
  CHECK(d["jobs"][0]["allocation"][0]["node"] == "a-1");
  CHECK(d["jobs"][1]["waited_s"] == 10);
  CHECK(d["jobs"][1]["peak_bytes"].is_null());
  CHECK(d["jobs"][1]["name"] == "evaluation");
  CHECK(d["jobs"][1]["loss"].is_null());
  CHECK(json::parse(dashboard_json::job(sample_cluster(), 2)) == d["jobs"][1]);
  CHECK(dashboard_json::job(sample_cluster(), 3).empty());
}

TEST_CASE("the dashboard shows which program a job runs, and not its arguments") {
  auto r = sample_cluster();
  r.jobs[1].command = {"curl", "-H", "Authorization: secret"};
  CHECK(json::parse(dashboard_json::jobs(r))["jobs"][1]["command"] == json{"curl"});
  CHECK(json::parse(dashboard_json::job(r, 2))["command"] == json{"curl"});
}

TEST_CASE("numbers that are not finite become null, and bytes that are not UTF-8 are replaced") {
  auto t = sample_training();
  t.report.iterations[0].loss = std::numeric_limits<double>::quiet_NaN();
  CHECK(json::parse(dashboard_json::training(t))["iterations"][0]["loss"].is_null());
  auto r = sample_cluster();
  r.jobs[0].name = "a\xff";
  CHECK(json::parse(dashboard_json::jobs(r))["jobs"][0]["name"] == "a\xef\xbf\xbd");
}

TEST_CASE("a training's JSON has its iterations, and where there is none, why") {
  const auto d = json::parse(dashboard_json::training(sample_training()));
  CHECK(d["position"] == 9);
  CHECK(d["reason"].is_null());
  REQUIRE(d["iterations"].size() == 2);
  CHECK(d["iterations"][1]["loss"] == 3.25);
  CHECK(d["bubbles"]["guest_s"] == 1.25);
  CHECK(d["bubbles"]["idle_s"] == 4);
  training_reply none;
  none.why = {reason::kind::unknown, "no training reports"};
  CHECK(json::parse(dashboard_json::training(none))["reason"] == "no training reports");
  CHECK(json::parse(dashboard_json::training(none))["bubbles"].is_null());
}

TEST_CASE("a timeline has a row for each stage, without tasks that make no sense") {
  const auto d = json::parse(dashboard_json::timeline(sample_training(), sample_cluster()));
  CHECK(d["iteration"] == 7);
  REQUIRE(d["rows"].size() == 2);
  CHECK(d["rows"][0]["node"] == "a-1");
  CHECK(d["rows"][0]["datacenter"] == "a");
  REQUIRE(d["rows"][0]["spans"].size() == 3);
  CHECK(d["rows"][0]["spans"][1]["what"] == "prefill");
  CHECK(d["rows"][0]["spans"][1]["microbatch"] == 3);
  CHECK(d["rows"][0]["busy_s"]["prefill"] == 0.25);
  CHECK(d["rows"][0]["busy_s"]["backward"] == 2.5);
  REQUIRE(d["rows"][1]["spans"].size() == 1);
  CHECK(d["rows"][1]["spans"][0]["what"] == "activation");
  training_reply without;
  CHECK(json::parse(dashboard_json::timeline(without, sample_cluster()))["rows"].empty());
}

TEST_CASE("the page shows iterations as a bar, a program's as a training's") {
  if (std::system("node --version >/dev/null 2>&1") != 0) {
    WARN("not run: there is no node");
    return;
  }
  const auto bar_of = [](job_status j) {
    const scratch dir;
    auto r = sample_cluster();
    const auto job = job_document(r, j).dump();
    const auto page = troupe::test::source_dir() + "/web/page/progress.js";
    std::filesystem::copy_file(page, dir / "progress.mjs");
    const auto script = dir.write("run.mjs",
                                  "import { iterationBar } from './progress.mjs';\n"
                                  "console.log(JSON.stringify(iterationBar(" +
                                      job + ")));\n");
    const auto out = dir / "out";
    REQUIRE(std::system(("node " + script + " >" + out).c_str()) == 0);
    std::ifstream in{out};
    return json::parse(in);
  };
  job_status j;
  j.state = job_state::running;
  j.iteration = 49;
  j.iterations = 300;
  const auto of_training = bar_of(j);
  CHECK(of_training["text"] == "iteration 49 of 300");
  CHECK(of_training["share"].get<double>() == Approx(49 / 300.0));
  j.command = {"python3", "train.py"};
  CHECK(bar_of(j) == of_training);
  j.iteration = 4000;  // more than were declared
  CHECK(bar_of(j)["share"] == 1);
  CHECK(bar_of(j)["text"] == "iteration 4,000 of 300");
  j.iteration = 0;  // it has reported none
  CHECK(bar_of(j).is_null());
  j.iteration = 49;
  j.iterations = 0;  // nobody knows how many there are
  CHECK(bar_of(j).is_null());
}

TEST_CASE(
    "the page draws every kind of task: the server names them, the style sheet colours them") {
  const auto text_of = [](std::string_view path) {
    const auto file = std::ranges::find(page_files(), path, &page_file::path);
    REQUIRE(file != page_files().end());
    return std::string{file->text};
  };
  const auto style = text_of("/page/style.css"), script = text_of("/page/timeline.js");
  const auto d = json::parse(dashboard_json::timeline(sample_training(), sample_cluster()));
  REQUIRE(d["kinds"].size() == task_kinds.size());
  for (std::size_t k = 0; k < task_kinds.size(); ++k) {
    const std::string name{task_kinds[k].name};
    INFO(name);
    CHECK(d["kinds"][k]["what"] == name);
    CHECK(d["kinds"][k]["on_device"] == task_kinds[k].on_device);
    CHECK(style.find("." + name + " { fill: var(--" + name + "); }") != std::string::npos);
    CHECK(script.find('"' + name + '"') == std::string::npos);
  }
  CHECK(d["kinds"][index_of(task_kind::backward)]["number"] == "micro-batch");
  CHECK(d["kinds"][index_of(task_kind::update)]["number"].is_null());
  CHECK(d["kinds"][index_of(task_kind::prefill)]["number"] == "prompt");
}

TEST_CASE("links have both directions, and rates only between two looks at the same gateway") {
  const auto before = sample_cluster();
  auto now = before;
  now.now_s = 102;
  (*now.gateways[0].traffic.sent_to)[1] = 5000;
  const auto rate = [](const query_reply& r, const query_reply* b) {
    return json::parse(dashboard_json::links(r, b))["links"][0]["bytes_s"];
  };
  const auto all = json::parse(dashboard_json::links(now, &before))["links"];
  REQUIRE(all.size() == 2);
  CHECK(all[0]["from"] == "a");
  CHECK(all[0]["rtt_ms"] == 20);
  CHECK(all[0]["bytes_s"] == 1000);
  CHECK(all[1]["bytes"].is_null());  // its gateway is absent
  CHECK(rate(now, nullptr).is_null());
  CHECK(rate(before, &now).is_null());  // the gateway was restarted
}

TEST_CASE("a pair of datacenters that the cluster file does not link appears once it is used") {
  auto r = sample_cluster();
  r.view->wan.clear();
  const auto all = json::parse(dashboard_json::links(r, nullptr))["links"];
  REQUIRE(all.size() == 1);
  CHECK(all[0]["rtt_ms"].is_null());
  CHECK(all[0]["bytes"] == 3000);
}

TEST_CASE("serving has every front, and the decoders that present fronts know, each once") {
  const auto d = json::parse(dashboard_json::serving(sample_cluster()));
  REQUIRE(d["fronts"].size() == 2);
  const auto& f = d["fronts"][0];
  CHECK(f["name"] == "front-1");
  CHECK(f["requests"] == 3);
  CHECK(f["finished"] == 20);
  CHECK(f["declined"] == 2);
  CHECK(f["prefills"] == json{{"bubbles", 15}, {"decoders", 5}, {"yields", 9}});
  CHECK(f["ttft_p50_s"] == 0.25);
  CHECK(d["fronts"][1]["present"] == false);
  CHECK(d["fronts"][1]["ttft_p50_s"].is_null());
  REQUIRE(d["decoders"].size() == 1);
  CHECK(d["decoders"][0]["node"] == "a-1");
  CHECK(d["decoders"][0]["free_pages"] == 4);
  CHECK(d["decoders"][0]["waiting"] == 1);
  CHECK(json::parse(dashboard_json::serving({}))["fronts"].empty());
}

TEST_CASE("a decoder is shown as the front says that heard it last") {
  auto r = sample_cluster();
  auto& fronts = *r.view->fronts;
  fronts[1].present = true;
  fronts[1].report.decoders[0].state.sequence = 4;
  fronts[1].report.decoders[0].state.free_pages = 0;
  const auto d = json::parse(dashboard_json::serving(r))["decoders"];
  REQUIRE(d.size() == 2);
  CHECK(d[0]["free_pages"] == 0);
}

namespace {

bool has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

cluster_facts sample_facts() {
  return {sample_cluster(), {{1, sample_training().report}}};
}

}  // namespace

TEST_CASE("metrics say what is present, who waits, and how the trainings do") {
  const auto facts = sample_facts();
  const auto text = cluster_metrics(&facts);
  INFO(text);
  CHECK(has(text, R"(troupe_up{host="controller"} 1)"));
  CHECK(has(text, R"(troupe_up{host="b/gateway"} 0)"));
  CHECK(has(text, R"(troupe_up{host="b-1"} 0)"));
  CHECK(has(text, R"(troupe_jobs{state="waiting"} 1)"));
  CHECK(has(text, R"(troupe_gpus{node="a-1",state="held"} 3)"));
  CHECK(text.find(R"(troupe_gpus{node="b-1")") == std::string::npos);
  CHECK(has(text, R"(troupe_queue_seconds{job="2",name="evaluation"} 10)"));
  CHECK(has(text, R"(troupe_decisions_total{kind="start"} 3)"));
  CHECK(has(text, "troupe_decision_seconds_count 5"));
  CHECK(has(text, R"(troupe_training_loss{job="1",name="tiny \"gpt\""} 3.25)"));
  CHECK(has(text, R"(troupe_training_iteration_seconds{job="1",name="tiny \"gpt\""} 0.75)"));
  CHECK(has(text, R"(troupe_guest_seconds_total{job="1",name="tiny \"gpt\""} 1.25)"));
  CHECK(has(text, R"(troupe_training_delay_seconds_total{job="1",name="tiny \"gpt\""} 0.5)"));
  CHECK(has(text, R"(troupe_bubble_seconds_total{job="1",name="tiny \"gpt\""} 4)"));
  CHECK(has(text, R"(troupe_up{host="front-2"} 0)"));
  CHECK(has(text, R"(troupe_kv_pages{decoder="a-1",lease="7",model="scribe",state="used"} 6)"));
  CHECK(has(text, R"(troupe_sequences{decoder="a-1",lease="7",model="scribe",state="waiting"} 1)"));
  CHECK(has(text, R"(troupe_device_busy_seconds_total{node="a-1",device="2",job="1",stage="0",)"
                  R"(pipeline="0",what="prefill"} 0.25)"));
  CHECK(has(text, R"(troupe_wan_bytes_total{from="a",to="b"} 3000)"));
  CHECK(text.find(R"(from="b")") == std::string::npos);
  CHECK(has(text, R"(troupe_device_busy_seconds_total{node="a-1",device="2",job="1",stage="0",)"
                  R"(pipeline="0",what="backward"} 2.5)"));
  CHECK(text.find("activation") == std::string::npos);  // keeps no device busy
}

TEST_CASE("metrics of what has gone vanish") {
  CHECK(cluster_metrics(nullptr).find("troupe_up{host=\"controller\"} 0") != std::string::npos);
  CHECK(cluster_metrics(nullptr).find("gpus") == std::string::npos);
  auto facts = sample_facts();
  facts.now.jobs[0].state = job_state::finished;
  CHECK(cluster_metrics(&facts).find("troupe_training_loss") == std::string::npos);
  facts = sample_facts();
  facts.trainings.clear();
  CHECK(cluster_metrics(&facts).find("troupe_device_busy") == std::string::npos);
}

TEST_CASE("jobs that have ended are counted once, by why, from the dashboard's start on") {
  auto r = sample_cluster();
  const auto ended = [](job_id id, end_word why) {
    job_status j;
    j.job = id, j.state = job_state::failed, j.why = why;
    return j;
  };
  r.jobs.push_back(ended(3, end_word::lost_node));
  ended_jobs count;
  count.look_at(r);
  CHECK(count.by_why().empty());  // before the dashboard began
  r.jobs[0].state = job_state::finished;
  r.jobs[0].why = end_word::finished;
  r.jobs.push_back(ended(4, end_word::time_limit));  // came and ended between two looks
  r.jobs[1].why = end_word::exit;                    // the last attempt's: it waits for another
  count.look_at(r);
  count.look_at(r);
  r.jobs.erase(r.jobs.begin() + 2);  // the controller keeps the last ones alone
  r.jobs.push_back(ended(5, end_word::time_limit));
  count.look_at(r);
  auto facts = sample_facts();
  facts.ended = count.by_why();
  const auto text = cluster_metrics(&facts);
  INFO(text);
  CHECK(has(text, "# TYPE troupe_jobs_ended_total counter"));
  CHECK(has(text, R"(troupe_jobs_ended_total{why="finished"} 1)"));
  CHECK(has(text, R"(troupe_jobs_ended_total{why="time_limit"} 2)"));
  CHECK(text.find(R"(why="exit")") == std::string::npos);
  CHECK(text.find(R"(why="lost_node")") == std::string::npos);
}
