#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "cli/reports/comparison.hpp"
#include "cli/reports/reference_times.hpp"
#include "formats/load/load.hpp"
#include "harness/facts.hpp"
#include "harness/files.hpp"
#include "messages/base/random.hpp"

// Traces whose times are given, replayed under the policies.

namespace replayed {

using namespace troupe;
using formats::trace_row;
using test::loaded;

const char* const two_types =
    "name: lab\n"
    "datacenters:\n"
    "  - name: dc\n"
    "    nodes:\n"
    "      - {name: v, gpu: V100-16GB, gpus: 8, intra: nvlink, inter: ib100}\n"
    "      - {name: k, gpu: K80, gpus: 8, intra: pcie3, inter: ib100}\n";

cluster lab() {
  return loaded(formats::load_cluster(test::temporary("lab.yaml", two_types)));
}

trace_row row(const std::string& id, double submit_s, double duration_s, std::uint32_t gpus) {
  trace_row r;
  r.job_id = id;
  r.submit_s = submit_s;
  r.duration_s = duration_s;
  r.gpus = gpus;
  return r;
}

cli::comparison played(const std::vector<trace_row>& rows, const formats::throughputs* speeds,
                       const std::string& policy, const cluster& c) {
  auto result = loaded(cli::comparison_of(rows, "as-is", speeds, 1, c));
  const auto ok = cli::replay(result, loaded(cli::find_policies({policy})), {});
  INFO(policy);
  if (!ok) FAIL(ok.error().text);
  return result;
}

const std::map<job_id, studies::job_outcome>& jobs_of(const cli::comparison& c) {
  return c.results.at(0).record->jobs();
}

formats::throughputs gavels() {
  return loaded(formats::load_throughputs(test::temporary("speeds.json", R"json({
    "v100": {
      "('LM (batch size 5)', 1)": {"null": 25.5, "('A3C', 1)": [20.1, 3.0]},
      "('LM (batch size 5)', 2)": {"null": 40.25},
      "('LM (batch size 5)', 4)": {"null": 71.125},
      "('A3C', 1)": {"null": 0.0}
    },
    "k80": {
      "('LM (batch size 5)', 1)": {"null": 7.3},
      "('LM (batch size 5)', 2)": {"null": 13.7},
      "('LM (batch size 5)', 4)": {"null": 20.9},
      "('A3C', 1)": {"null": 3.3}
    }})json")));
}

/// First come, first served, as a loop over one job after the other: each gets the type that is
/// fastest for it, of those with enough idle GPUs, and no job passes the first that waits.
std::vector<double> reference_ends(const std::vector<trace_row>& rows,
                                   const formats::throughputs& speeds, double restart_s) {
  const std::map<std::string, std::string> named{{"V100-16GB", "v100"}, {"K80", "k80"}};
  std::map<std::string, std::multimap<double, std::uint32_t>> busy;  // by type: until when
  std::vector<double> ends;
  double now = 0;
  for (const auto& r : rows) {
    now = std::max(now, r.submit_s);
    std::vector<std::pair<double, std::string>> choices;  // seconds an iteration, type
    for (const auto& [type, name] : named)
      for (const auto& m : speeds.rates.at({r.model, r.gpus}))
        if (m.gpu_type == name && m.per_s > 0) choices.emplace_back(1 / m.per_s, type);
    std::ranges::sort(choices);
    for (;;) {
      const std::pair<double, std::string>* chosen = nullptr;
      double next = INFINITY;
      for (const auto& choice : choices) {
        std::uint32_t used = 0;
        for (const auto& [until, gpus] : busy[choice.second])
          if (until > now) used += gpus, next = std::min(next, until);
        if (!chosen && used + r.gpus <= 8) chosen = &choice;
      }
      if (chosen) {
        ends.push_back(now + restart_s + static_cast<double>(*r.iterations) * chosen->first);
        busy[chosen->second].emplace(ends.back(), r.gpus);
        break;
      }
      now = next;
    }
  }
  return ends;
}

}  // namespace replayed

using namespace replayed;

TEST_CASE("as-is gives each of four equal jobs its own duration and one start under fcfs") {
  const auto c = lab();
  std::vector<trace_row> rows;
  for (int i = 0; i < 4; ++i) rows.push_back(row(fmt::format("j{}", i), 7200.5 * i, 1000, 2));
  const auto result = played(rows, nullptr, "fcfs", c);
  for (const auto& [id, j] : jobs_of(result)) {
    CHECK(j.state == job_state::finished);
    CHECK(j.completion_s() == Approx(1000 + c.settings.restart_s).epsilon(1e-9));
  }
  CHECK(result.invented == 0);
  CHECK(test::has_facts(cli::title_of(result), {"4 jobs on lab", "as they are"}));
}

TEST_CASE("no policy resizes a job that is replayed as it is, and each stop costs one start") {
  const auto c = lab();
  random_source random{5};
  std::vector<trace_row> rows;
  for (int i = 0; i < 60; ++i) {
    const std::uint32_t counts[] = {1, 1, 2, 3, 4, 8};
    rows.push_back(
        row(fmt::format("j{}", i), 60.0 * i, 90 + 900 * random.uniform(), counts[random.below(6)]));
    if (random.chance(0.3)) rows.back().gpu_type = random.chance(0.5) ? "K80" : "V100-16GB";
  }
  for (const auto* policy : {"troupe", "frenzy", "opportunistic", "fcfs", "sia", "gandiva", "gavel",
                             "elasticflow-ls", "crius"}) {
    const auto result = played(rows, nullptr, policy, c);
    REQUIRE(jobs_of(result).size() == rows.size());
    for (const auto& [id, j] : jobs_of(result)) {
      const auto& asked = *std::ranges::find(rows, j.name, &trace_row::job_id);
      INFO(policy << ' ' << j.name);
      CHECK(j.state == job_state::finished);
      CHECK(j.how.gpus() == asked.gpus);
      if (!asked.gpu_type.empty()) CHECK(c.gpu_of(j.nodes.at(0)).name == asked.gpu_type);
      // A stopped job loses at most the second that it was in.
      const double min = asked.duration_s + c.settings.restart_s;
      CHECK(j.held_s >= Approx(min).epsilon(1e-9));
      CHECK(j.held_s <= min + (j.attempts - 1) * (c.settings.restart_s + 1) + 1e-6);
    }
    CHECK(result.results[0].oom_failures == 0);
    // These take turns, or make room.
    if (std::set<std::string>{"sia", "gavel", "crius"}.contains(policy))
      CHECK(result.results[0].restarts_per_job > 0);
  }
}

TEST_CASE("with Gavel's throughputs a job alone takes its steps over its speed, and one start") {
  const auto c = lab();
  const auto speeds = gavels();
  for (const std::uint32_t gpus : {1, 2, 4})
    for (const auto* type : {"", "K80"}) {
      auto r = row("alone", 0, 0, gpus);
      r.model = "LM (batch size 5)";
      r.iterations = 12'345;
      r.gpu_type = type;
      const auto result = played({r}, &speeds, "fcfs", c);
      const double per_s[] = {0, 25.5, 40.25, 0, 71.125}, slow[] = {0, 7.3, 13.7, 0, 20.9};
      const double rate = std::string{type}.empty() ? per_s[gpus] : slow[gpus];
      CHECK(jobs_of(result).begin()->second.completion_s() ==
            Approx(12'345 / rate + c.settings.restart_s).epsilon(1e-9));
    }
}

TEST_CASE("with Gavel's throughputs fcfs is the reference loop, whatever waits") {
  const auto c = lab();
  const auto speeds = gavels();
  random_source random{11};
  std::vector<trace_row> rows;
  double at = 0;
  for (int i = 0; i < 200; ++i) {
    auto r = row(fmt::format("j{}", i), at += 40 * random.uniform(), 0, 1u << random.below(3));
    r.model = r.gpus == 1 && random.chance(0.3) ? "A3C" : "LM (batch size 5)";
    r.iterations = 100 + random.below(20'000);
    rows.push_back(r);
  }
  const auto result = played(rows, &speeds, "fcfs", c);
  const auto ends = reference_ends(rows, speeds, c.settings.restart_s);
  std::size_t i = 0;
  double waited = 0;
  for (const auto& [id, j] : jobs_of(result)) {
    INFO(j.name);
    CHECK(j.ended_s == Approx(ends[i++]).epsilon(1e-9));
    waited += j.queued_s();
  }
  CHECK(waited > 1000);
}

TEST_CASE("a model or number of GPUs that was not measured fails alone, with what there is") {
  const auto speeds = gavels();
  std::vector<trace_row> rows;
  for (const auto& [id, model, gpus] :
       std::vector<std::tuple<std::string, std::string, int>>{{"good", "LM (batch size 5)", 2},
                                                              {"three", "LM (batch size 5)", 3},
                                                              {"new", "GPT", 1}}) {
    rows.push_back(row(id, 0, 500, static_cast<std::uint32_t>(gpus)));
    rows.back().model = model;
  }
  const auto result = played(rows, &speeds, "sia", lab());
  const auto& failures = result.failures.at(0);
  REQUIRE(failures.size() == 2);
  std::map<std::string, std::string> why;
  for (const auto& [id, text] : failures) why[jobs_of(result).at(id).name] = text;
  CHECK(test::has_facts(why["three"], {"'LM (batch size 5)'", "3 GPUs", "1, 2, 4"}));
  CHECK(test::has_facts(why["new"], {"no speed of 'GPT'", "speeds.json"}));
  CHECK(test::has_facts(cli::table_of(result), {"three", "1, 2, 4"}));
  CHECK(result.results[0].finished == 1);
}

TEST_CASE("a replayed job that the cluster cannot hold fails alone, with its figure") {
  std::vector<trace_row> rows{row("good", 0, 100, 8), row("wide", 1, 100, 64),
                              row("other", 2, 100, 1), row("odd", 3, 100, 11)};
  rows[2].gpu_type = "H100-80GB";
  for (const auto* policy : {"troupe", "gavel", "fcfs"}) {
    const auto result = played(rows, nullptr, policy, lab());
    std::map<std::string, std::string> why;
    for (const auto& [id, text] : result.failures.at(0)) why[jobs_of(result).at(id).name] = text;
    CHECK(why.size() == 3);
    CHECK(test::has_facts(why["wide"], {"needs 64", "has 8 of one type"}));
    CHECK(test::has_facts(why["other"], {"no H100-80GB"}));
    CHECK(test::has_facts(why["odd"], {"needs 11"}));
    CHECK(result.results[0].finished == 1);
  }
}

TEST_CASE("remembered times of iterations are those of each job, whatever was asked before") {
  const auto c = replayed::lab();
  cli::reference_times times{c};
  std::vector<job_spec> jobs;
  for (const std::uint32_t hidden : {512U, 768U})
    for (const std::uint32_t batch : {4U, 8U})
      for (const char* type : {"V100-16GB", "K80"})
        for (const char* kernels : {"eager", "flash"}) {
          auto& j = jobs.emplace_back();
          j.model.name = "same name";
          j.model.hidden = hidden;
          j.model.layers = 12;
          j.model.heads = 8;
          j.model.sequence = 512;
          j.model.vocabulary = 1000;
          j.global_batch = batch;
          j.request.type = type;
          j.kernels = kernels;
          j.request.gpus = 2;
        }
  // No plan is so fast: the answer is `never`, which jobs without the limit must not get.
  auto& late = jobs.emplace_back(jobs.front());
  late.limits.deadline_s = 1e-6;
  std::set<double> different;
  for (int round = 0; round < 2; ++round)
    for (auto j : jobs) {
      j.name = std::to_string(round);
      j.iterations = 100U + static_cast<unsigned>(round);
      for (const std::uint32_t gpus : {1U, 2U}) {
        const double seconds = times(j, gpus);
        CHECK(seconds == planners::reference_iteration_s(c, j, gpus));
        different.insert(seconds);
      }
    }
  CHECK(different.size() > 8);
}
