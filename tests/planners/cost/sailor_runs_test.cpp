#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "formats/load/load.hpp"
#include "formats/parse/csv.hpp"
#include "harness/published/runs.hpp"
#include "harness/source_dir.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/sample.hpp"

// Trainings on GH200 that the authors of Sailor have measured, with their profiles and without
// (tests/planners/sailor): what `troupe estimate` says of their layouts.

using namespace troupe;
using namespace troupe::planners;

namespace {

const std::string folder = troupe::test::source_dir() + "/tests/planners/sailor/";

struct measured_run {
  std::string model;
  std::uint32_t nodes = 0, data = 0, stages = 0, tensor = 0, rows = 0, batch = 0;
  double iteration_s = 0;
};

std::vector<measured_run> measured_runs() {
  std::ifstream in{folder + "gh200_runs.csv"};
  std::ostringstream all;
  all << in.rdbuf();
  const auto text = all.str();
  formats::findings found{"gh200_runs.csv"};
  formats::csv_reader csv{found, text};
  const auto whole = [&](std::string_view column) {
    return static_cast<std::uint32_t>(csv.whole(column, {1, 1e6}));
  };
  std::vector<measured_run> out;
  while (csv.next())
    out.push_back({std::string{csv.field("model")}, whole("nodes_of_4_gh200"),
                   whole("data_parallel"), whole("stages"), whole("tensor_parallel"),
                   whole("micro_batch"), whole("global_batch"),
                   csv.number("measured_iteration_s", {0, 1e6})});
  REQUIRE(found.good());
  REQUIRE(out.size() == 13);
  return out;
}

bool is_opt(const measured_run& r) {
  return r.model == "OPT-350";
}

model model_of(const measured_run& r) {
  auto m = is_opt(r) ? sample::gpt("opt-350", 1024, 24, 16, 2048, 50272)
                     : sample::gpt("gpt-neo-27", 2560, 32, 20, 2048, 50257);
  m.tied_head = false;
  return m;
}

std::vector<std::uint32_t> layers_of(const measured_run& r) {
  if (is_opt(r) && r.stages == 1) return {24};
  if (is_opt(r)) return r.stages == 2 ? std::vector{11U, 13U} : std::vector{4U, 7U, 7U, 6U};
  return r.stages == 2 ? std::vector{15U, 17U} : std::vector{6U, 9U, 9U, 8U};
}

/// Nobody's trainer but a program's.
job_spec job_of(const measured_run& r) {
  auto job = sample::job(model_of(r), r.batch);
  job.program.command = {"a program"};
  job.kernels = "eager";
  job.train.emplace().schedule = "megatron";
  job.train->device = "sim";
  job.pipeline.recompute = false;
  job.pipeline.rows = r.rows;
  return job;
}

cluster nodes_of(const measured_run& r, const gpu_type& gpu) {
  cluster c;
  sample::add_nodes(c, gpu, r.nodes, 4);
  for (auto& n : c.nodes) n.intra = {"intra", 2000, 3}, n.inter = {"inter", 740, 10};
  return c;
}

gpu_type gh200() {
  const auto all = formats::load_catalogue(troupe::test::source_dir() + "/configs/gpus.yaml");
  REQUIRE(all);
  const auto at = std::ranges::find(*all, "GH200-96GB", &gpu_type::name);
  REQUIRE(at != all->end());
  return *at;
}

double error_of(const measured_run& r, const job_spec& job, const gpu_type& gpu) {
  const auto c = nodes_of(r, gpu);
  std::vector<stage_request> stages;
  for (const auto layers : layers_of(r)) stages.push_back({0, 2 * layers, r.tensor});
  const auto made = plan_of_stages(c, idle_index{c}, job, stages, r.data);
  REQUIRE(made);
  const auto e = evaluate(c, job, made->how, made->where, fidelity::simulated);
  REQUIRE(e);
  UNSCOPED_INFO(r.model << " data " << r.data << ", " << r.stages << " stages, rows " << r.rows
                        << ": " << 100 * (e->iteration_s / r.iteration_s - 1) << " %");
  return e->iteration_s / r.iteration_s - 1;
}

}  // namespace

TEST_CASE("GH200 runs with their profiles are predicted as well as by Sailor's own simulator") {
  std::vector<double> errors;
  auto gpu = gh200();
  for (const auto& r : measured_runs()) {
    const auto p = formats::load_profile(
        folder + (is_opt(r) ? "opt-350.GH-96.yaml" : "gpt-neo-27.GH-96.yaml"));
    REQUIRE(p);
    gpu.profile = *p;
    errors.push_back(error_of(r, job_of(r), gpu));
  }
  const auto s = harness::summary_of(errors);
  UNSCOPED_INFO("median " << s.median << ", worst " << s.worst);
  CHECK(s.median <= 0.076);
  CHECK(s.worst <= 0.17);
}

TEST_CASE("GH200 runs without a profile are predicted by the words of their job files") {
  std::vector<double> errors;
  const auto gpu = gh200();
  for (const auto& r : measured_runs()) {
    auto job = job_of(r);
    job.memory.emplace().precision = "tf32";
    errors.push_back(error_of(r, job, gpu));
  }
  const auto s = harness::summary_of(errors);
  UNSCOPED_INFO("median " << s.median << ", worst " << s.worst);
  CHECK(s.median <= 0.10);
  CHECK(s.worst <= 0.40);
}
