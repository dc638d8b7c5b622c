#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "harness/published/products.hpp"
#include "harness/published/runs.hpp"
#include "harness/source_dir.hpp"
#include "messages/admission/gpu_guess.hpp"
#include "planners/devices/guesses.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

// The cost model against llm-foundry's runs by kind: recomputation, long sequences, many GPUs; and
// the rates of GPU types against each other.

using namespace troupe;

namespace {

std::string folder() {
  return std::string{troupe::test::source_dir()} + "/tests/planners/";
}

std::vector<gpu_type> catalogue() {
  const std::string root = troupe::test::source_dir();
  auto gpus = formats::load_catalogue(root + "/configs/gpus.yaml");
  REQUIRE(gpus);
  return *gpus;
}

struct foundry_run {
  harness::published_run run;
  double predicted_s = 0;

  double error() const { return predicted_s / run.iteration_s - 1; }
};

std::vector<foundry_run> foundry_runs() {
  const auto runs = harness::load_published_runs(folder() + "foundry_runs.csv");
  REQUIRE(runs);
  std::vector<foundry_run> out;
  for (const auto& r : *runs) {
    const auto s = harness::predicted_s(r, catalogue());
    REQUIRE(s);
    out.push_back({r, *s});
  }
  return out;
}

using run_kind = std::tuple<std::string, std::string, bool>;

run_kind foundry_kind_of(const harness::published_run& r) {
  constexpr std::uint32_t long_sequence = 8192;
  return {r.gpu, r.checkpointing, r.model.sequence >= long_sequence};
}

}  // namespace

TEST_CASE("llm-foundry's runs are predicted within 6 % by half, and no kind of them is biased") {
  std::vector<double> errors;
  std::map<run_kind, std::vector<double>> by_kind;
  for (const auto& x : foundry_runs()) {
    errors.push_back(x.error());
    by_kind[foundry_kind_of(x.run)].push_back(x.error());
  }
  CHECK(errors.size() == 90);
  const auto all = harness::summary_of(errors);
  CHECK(all.median <= 0.06);
  CHECK(all.worst <= 0.25);
  CHECK(by_kind.size() == 12);
  for (const auto& [kind, of_kind] : by_kind) {
    INFO(std::get<0>(kind) << ", " << std::get<1>(kind) << ", long: " << std::get<2>(kind));
    double sum = 0;
    for (const auto e : of_kind) sum += e;
    CHECK(std::abs(sum / static_cast<double>(of_kind.size())) <= 0.08);
  }
}

TEST_CASE("from 128 to 512 GPUs iterations get as much longer as llm-foundry's did") {
  std::map<std::uint32_t, std::vector<foundry_run>> by_model;
  for (const auto& x : foundry_runs())
    if (x.run.gpu == "H100-80GB" && x.run.nodes >= 16) by_model[x.run.model.hidden].push_back(x);
  REQUIRE(by_model.size() == 3);
  for (const auto& [hidden, sizes] : by_model) {
    INFO("hidden " << hidden);
    REQUIRE(sizes.size() == 3);
    for (const auto& x : sizes) {
      const auto& base = sizes.front();
      REQUIRE(base.run.nodes == 16);
      const double real = x.run.iteration_s / base.run.iteration_s;
      CHECK(std::abs(x.predicted_s / base.predicted_s - real) <= 0.03);
    }
  }
}

TEST_CASE("GPU types are as fast against each other as one library's large products") {
  const auto rows = harness::load_published_products(folder() + "published_products.csv");
  REQUIRE(rows);
  const auto all = harness::ratios_to("H100-80GB", 1e12, *rows, catalogue());
  std::set<std::string> compared;
  for (const auto& r : all) {
    const bool one_tool = r.tool == (r.gpu == "A100-80GB" ? "vLLM 0.14.0" : "vLLM 0.24.0");
    if (!one_tool || r.flop_from > 1e12) continue;
    // As a B200, the same chip: its own products of this size spread from 0.44 to 0.67 of the peak.
    if (r.gpu == "GB200") continue;
    INFO(r.gpu << " / H100: " << r.catalogue << " for " << r.published);
    CHECK(std::abs(r.error()) <= (r.gpu == "L40S" ? 0.15 : 0.10));
    compared.insert(r.gpu);
  }
  CHECK(compared == std::set<std::string>{"A100-80GB", "B200-192GB", "H200-141GB", "L40S"});
}

TEST_CASE("a speed that nobody measured is called a guess until somebody has") {
  cluster c;
  c.gpus = catalogue();
  const auto type_of = [&](const char* name) -> gpu_type& {
    return *std::ranges::find(c.gpus, name, &gpu_type::name);
  };
  job_spec job;
  for (const auto* measured : {"H100-80GB", "A100-40GB", "A6000", "L40S", "H200-141GB", "T4"})
    CHECK_FALSE(planners::rests_on_guess(job, type_of(measured)));
  for (const auto* guessed : {"L4", "A40", "A10", "GH200-96GB", "MI300X-192GB"})
    CHECK(planners::rests_on_guess(job, type_of(guessed)));
  const auto l4 = static_cast<gpu_index>(&type_of("L4") - c.gpus.data());
  const auto said = planners::guesses_of(c, job, {0, l4}, {});
  REQUIRE(said.size() == 1);
  CHECK(said[0].starts_with("the speed of L4 is a guess"));
  auto timed = job;
  timed.train.emplace().costs.resize(1);
  CHECK_FALSE(planners::rests_on_guess(timed, type_of("L4")));
  auto program = job;
  program.program.command = {"train"};
  program.program.elastic.emplace().rates = {{"L4", 1, 0, 5}};
  CHECK_FALSE(planners::rests_on_guess(program, type_of("L4")));
  CHECK(planners::rests_on_guess(program, type_of("A40")));
  auto whole = type_of("L4");
  whole.kernel_us = 0;
  CHECK_FALSE(planners::rests_on_guess(job, whole));
  set_given_efficiency(type_of("L4"));
  CHECK_FALSE(planners::rests_on_guess(job, type_of("L4")));
}

TEST_CASE("constants are chosen by the first of llm-foundry's runs of each kind, and by no other") {
  std::set<run_kind> seen;
  for (const auto& x : foundry_runs())
    CHECK((x.run.set == "fit") == seen.insert(foundry_kind_of(x.run)).second);
}
