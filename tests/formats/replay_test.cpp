#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "formats/traces/replay.hpp"
#include "harness/facts.hpp"
#include "harness/files.hpp"

using namespace troupe;
using formats::trace_row;
using test::loaded;
using test::temporary;

namespace {

trace_row row_of(const std::string& model, std::uint32_t gpus) {
  trace_row r;
  r.job_id = "j";
  r.gpus = gpus;
  r.model = model;
  return r;
}

cluster small_cluster() {
  return loaded(formats::load_cluster(temporary(
      "small.yaml",
      "name: small\ndatacenters: [{name: dc, nodes: [{name: a, gpu: V100-32GB, gpus: 4, intra: "
      "nvlink, inter: ib100}, {name: b, gpu: T4, gpus: 4, intra: pcie3, inter: ib100}]}]\n")));
}

const char* const head = "model,gpu_type,gpus,samples_per_s\n";

}  // namespace

TEST_CASE("throughputs are read from CSV and from Gavel's JSON, pairs of jobs left out") {
  const auto csv = loaded(formats::load_throughputs(temporary(
      "s.csv",
      "# measured\nmodel,gpu_type,gpus,samples_per_s,iterations\nbert,T4,1,12.5,\nbert,T4,2,24,\n"
      "bert,V100-32GB,1,40,900\n")));
  CHECK_FALSE(csv.steps);
  REQUIRE(csv.rates.size() == 2);
  CHECK(csv.rates.at({"bert", 1}).size() == 2);
  CHECK(csv.rates.at({"bert", 2})[0].per_s == 24);
  CHECK(csv.iterations.at("bert") == 900);

  const auto json = loaded(formats::load_throughputs(
      temporary("s.json",
                R"json({"v100": {"('LM (batch size 5)', 1)": {"null": 9.5, "('A3C', 1)": [1.5, 2]},
                   "('A3C', 4)": {"('A3C', 4)": [1, 1]}},
          "k80": {"LM (scale factor 2)": {"null": 3}, "LM": {"null": 2}}})json")));
  CHECK(json.steps);
  REQUIRE(json.rates.size() == 3);
  CHECK(json.rates.at({"LM (batch size 5)", 1})[0].per_s == 9.5);
  CHECK(json.rates.at({"LM", 2})[0].gpu_type == "k80");
  CHECK(json.rates.at({"LM", 1})[0].per_s == 2);
}

TEST_CASE("bad throughputs are refused with file, line, what was found and expected") {
  const std::string start = head;
  const std::tuple<const char*, std::string, std::string> cases[] = {
      {"b.csv", "model,gpu_type,gpus\n", ":1: missing column 'samples_per_s'"},
      {"b.csv", start, "no rows"},
      {"b.csv", start + "bert,T4,0,1\n", ":2: gpus: found '0'"},
      {"b.csv", start + "bert,T4,1,-1\n", ":2: samples_per_s: found '-1'"},
      {"b.csv", start + "bert,T4,1,fast\n", ":2: samples_per_s: found 'fast'"},
      {"b.csv", start + "bert,T4,1,1\nbert,T4,1,2\n", ":3: gpu_type: bert on 1 T4 occurs twice"},
      {"b.csv", start + ",T4,1,1\n", ":2: model: found nothing"},
      {"b.json", "[]", ":1: found a list, expected a map"},
      {"b.json", "{\n\"v100\": 3}", ":2: v100: found"},
      {"b.json", "{\"v100\": {\n\"('LM', x)\": {\"null\": 1}}}",
       ":2: v100.('LM', x): expected a job"},
      {"b.json", "{\"v100\": {\"('LM', 1)\": {\n\"null\": \"quick\"}}}", ":2: v100.('LM', 1).null"},
      {"b.json", "{\"v100\": {\"('LM', 1)\": {\"null\": -2}}}", "null: found '-2'"},
      {"b.json", "{\"v100\": {\"('LM', 1)\": {}}}", "no job type has a throughput alone"},
  };
  for (const auto& [name, text, words] : cases) {
    const auto t = formats::load_throughputs(temporary(name, text));
    REQUIRE_FALSE(t);
    INFO(t.error().text);
    CHECK(t.error().text.find(name) != std::string::npos);
    CHECK(t.error().text.find(words) != std::string::npos);
  }
}

TEST_CASE("a measured job takes its batch over its samples a second, on each measured type") {
  const auto c = small_cluster();
  const auto speeds = loaded(formats::load_throughputs(temporary(
      "m.csv", std::string{head} + "bert,T4,2,10\nbert,v100,2,40\nbert,H200-141GB,2,99\n")));
  auto r = row_of("bert", 2);
  r.global_batch = 8;
  r.iterations = 100;
  auto replayed = loaded(formats::replay_measured(std::span{&r, 1}, speeds, c));
  REQUIRE(replayed.jobs.size() == 1);
  CHECK(replayed.jobs[0].spec.iterations == 100);
  const auto& times = replayed.times.at("j").times;
  REQUIRE(times.size() == 2);  // the cluster has no H200
  CHECK(times[0].gpu_type == "V100-32GB");
  CHECK(times[0].iteration_s == 0.2);
  CHECK(times[1].iteration_s == 0.8);
  // A duration alone holds on the job's own type, or on the fastest.
  r.iterations.reset();
  r.duration_s = 80;
  CHECK(loaded(formats::replay_measured(std::span{&r, 1}, speeds, c)).jobs[0].spec.iterations ==
        400);
  r.gpu_type = "T4";
  replayed = loaded(formats::replay_measured(std::span{&r, 1}, speeds, c));
  CHECK(replayed.jobs[0].spec.iterations == 100);
  CHECK(replayed.times.at("j").times.size() == 1);
}

TEST_CASE("a row that cannot be replayed is refused with what it lacks") {
  const auto c = small_cluster();
  const auto speeds =
      loaded(formats::load_throughputs(temporary("m.csv", std::string{head} + "bert,T4,2,10\n")));
  const auto refusal = [&](const trace_row& r) {
    const auto replayed = formats::replay_measured(std::span{&r, 1}, speeds, c);
    return replayed ? "" : replayed.error().text;
  };
  auto r = row_of("", 2);
  CHECK(test::has_facts(refusal(r), {"job j", "no model"}));
  r.model = "bert";
  CHECK(test::has_facts(refusal(r), {"job j", "global_batch"}));
  r.global_batch = 4;
  CHECK(test::has_facts(refusal(r), {"job j", "iterations", "duration_s"}));
  const auto as_is = formats::replay_as_is(std::span{&r, 1});
  REQUIRE_FALSE(as_is);
  CHECK(test::has_facts(as_is.error().text, {"job j", "no duration_s"}));
  // Speeds of GPUs that this cluster does not have are of no use.
  const auto others =
      loaded(formats::load_throughputs(temporary("o.csv", std::string{head} + "bert,A100,2,10\n")));
  const auto none = formats::replay_measured(std::span{&r, 1}, others, c);
  REQUIRE_FALSE(none);
  CHECK(test::has_facts(none.error().text, {"A100", "V100-32GB", "T4"}));
}
