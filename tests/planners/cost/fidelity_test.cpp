#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "formats/parse/csv.hpp"
#include "harness/published/products.hpp"
#include "harness/published/runs.hpp"
#include "harness/scratch.hpp"
#include "harness/source_dir.hpp"
#include "messages/domain/link_cost.hpp"
#include "planners/cost/overlap.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/model/job_memory.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/sample.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::planners;

// Estimates of trainings that no device here does (fp8, context parallelism, overlap), and all
// published runs: which may choose constants, and how near the predictions are.

namespace fidelity_tests {

const std::string root = troupe::test::source_dir();
const std::string folder = root + "/tests/planners/";

std::vector<harness::published_run> runs_of(const std::string& name) {
  const auto all = harness::load_any_runs(folder + name, folder + "published/models.csv");
  if (!all) FAIL(all.error().text);
  return *all;
}

struct judged {
  harness::published_run run;
  double error = 0;
};

std::vector<judged> judged_runs(const std::string& name) {
  const auto gpus = formats::load_catalogue(root + "/configs/gpus.yaml");
  REQUIRE(gpus);
  std::vector<judged> all;
  for (const auto& r : runs_of(name))
    if (const auto s = harness::predicted_s(r, *gpus)) all.push_back({r, *s / r.iteration_s - 1});
  return all;
}

/// 100 TFLOP/s in half precision and 200 in 8 bits, of which products reach half.
gpu_type gpu_with_fp8() {
  auto g = sample::gpu("G", 80, 100);
  g.efficiency = 0.5, g.kernel_us = 20, g.fp8_tflops = 200;
  return g;
}

/// Four GPUs on two nodes, over 8 Gbit/s.
cluster two_nodes() {
  cluster c;
  sample::add_nodes(c, gpu_with_fp8(), 2, 2);
  for (auto& n : c.nodes) n.intra = {"inside", 80, 0}, n.inter = {"between", 8, 0};
  return c;
}

job_spec described(std::uint32_t batch) {
  auto job = sample::job(sample::gpt("even", 1024, 8, 16, 512, 512), batch);
  job.model.tied_head = false;
  job.kernels = "flash";
  job.memory.emplace();
  return job;
}

}  // namespace fidelity_tests

using namespace fidelity_tests;

TEST_CASE("constants are fitted on the rows of one list, and on none that is held out") {
  std::map<std::pair<std::string, std::string>, double> listed, found;
  {
    const auto text = formats::read_text(folder + "fitted_on.csv");
    REQUIRE(text);
    formats::findings problems{"fitted_on.csv"};
    formats::csv_reader csv{problems, *text};
    csv.expect({"file", "source", "rows"}, {});
    while (csv.next())
      listed[{std::string{csv.field("file")}, std::string{csv.field("source")}}] =
          csv.whole("rows", {1, 1e6});
    REQUIRE(problems.good());
  }
  for (const auto& file : harness::published_files())
    for (const auto& r : runs_of(file))
      if (r.set == "fit") found[{file, r.source}] += 1;
  const auto products = harness::load_published_products(folder + "published_products.csv");
  REQUIRE(products);
  found[{"published_products.csv", "products"}] = static_cast<double>(products->size());
  CHECK(found == listed);
  // Every file of the folder is read.
  std::ptrdiff_t csvs = 0;
  for (const auto& at : std::filesystem::directory_iterator{folder + "published"})
    csvs += at.path().extension() == ".csv";
  const auto& files = harness::published_files();
  CHECK(csvs == 1 + std::ranges::count_if(files, [](const auto& name) {  // and models.csv
                  return name.starts_with("published/");
                }));
}

TEST_CASE("MLPerf's trainings of 405 billion parameters are predicted as they ran") {
  const auto all = judged_runs("published/mlperf_405b.csv");
  REQUIRE(all.size() == 8);
  std::vector<double> errors;
  std::map<std::string, std::vector<double>> by_gpu;
  for (const auto& x : all) {
    errors.push_back(x.error);
    by_gpu[x.run.gpu].push_back(1 + x.error);
  }
  CHECK(harness::summary_of(errors).median <= 0.10);
  for (const auto& [gpu, ratios] : by_gpu) {
    CAPTURE(gpu);
    CHECK(*std::ranges::max_element(ratios) / *std::ranges::min_element(ratios) <= 1.05);
  }
}

TEST_CASE("a run of MLPerf's is a job file, and its estimate that of the row") {
  const auto job = formats::load_job(root + "/configs/jobs/llama3-405b-fp8.yaml", {});
  const auto c = formats::load_cluster(root + "/configs/clusters/gb200-nvl72.yaml");
  if (!job) FAIL(job.error().text);
  if (!c) FAIL(c.error().text);
  std::vector<stage_request> stages(8, {0, 32, 4});
  stages.front().pieces = stages.back().pieces = 30;
  const auto made =
      plan_of_stages(*c, idle_index{*c}, *job, stages, 4 * context_parallel_of(job->pipeline));
  REQUIRE(made);
  CHECK(made->how.gpus() == 256);
  CHECK(made->how.microbatches == 112);
  for (const auto& x : judged_runs("published/mlperf_405b.csv"))
    if (x.run.gpu == "GB200" && x.run.data == 4)
      CHECK(job->global_batch / made->how.samples_per_s ==
            Approx((1 + x.error) * x.run.iteration_s));
}

TEST_CASE("peaks of memory of prime-rl's dense trainings are predicted within 20 %") {
  std::vector<double> errors;
  std::map<std::string, double> of_type;
  for (const auto& r : runs_of("published/prime_rl.csv")) {
    if (r.lora_rank > 0 || !r.why_not.empty() || r.outcome != "ran") continue;
    const double ratio = harness::predicted_peak_bytes(r) / r.peak_bytes;
    errors.push_back(ratio - 1);
    if (r.gpu == "A6000") continue;  // of June: the head's chunks are smaller since
    if (r.model.name == "qwen3-4b" && r.model.sequence == 65536) of_type[r.gpu] = ratio;
  }
  CHECK(errors.size() == 9);
  CHECK(harness::summary_of(errors).median <= 0.20);
  REQUIRE(of_type.size() == 2);
  CHECK(of_type["H100-80GB"] == Approx(of_type["H200-141GB"]).epsilon(0.05));
}

TEST_CASE("rows that cannot be said have a reason, and a bad file its line and column") {
  const auto gpus = formats::load_catalogue(root + "/configs/gpus.yaml");
  REQUIRE(gpus);
  std::map<std::string, int> reasons;
  for (const auto& name : {"published/prime_rl.csv", "published/megatron_bridge.csv"})
    for (const auto& r : runs_of(name))
      if (const auto s = harness::predicted_s(r, *gpus); !s) ++reasons[s.error().text];
  CHECK(reasons["a model with experts: no formula has their work and memory"] > 0);
  CHECK(reasons["blocks' inputs on the host: no formula has them"] == 1);
  CHECK(reasons["it failed"] == 1);
  CHECK(reasons["no GPU 'GB300' in the catalogue"] == 9);

  const test::scratch dir;
  const std::string columns =
      "source,set,gpu,gpus_per_node,nodes,intra_gbps,inter_gbps,family,layers,hidden,heads,"
      "sequence,vocabulary,intermediate,precision,checkpointing,kernels,zero,data,tensor,pipeline,"
      "virtual,microbatches,rows,published,unit,iteration_s,note\n";
  const std::string row =
      "mine,held,A40,1,1,252,100,gpt,12,768,12,1024,50257,0,mixed,none,flash,0,1,1,1,1,1,8,1,s,1,"
      "\n";
  const auto sentence = [&](const std::string& text) {
    const auto all = harness::load_any_runs(dir.write("mine.csv", text), "");
    return all ? std::to_string(all->size()) : all.error().text;
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    auto changed = row;
    changed.replace(changed.find(from), from.size(), to);
    return sentence("# mine\n" + columns + row + changed);
  };
  CHECK(sentence(columns + row) == "1");
  CHECK_THAT(with("mixed", "fp16"), Catch::Contains("mine.csv:4: precision: found 'fp16'"));
  CHECK_THAT(with(",0,1,1,1,1,1,8", ",0,2,1,1,1,1,8"),
             Catch::Contains("mine.csv:4: data: 2 data x 1 tensor x 1 pipeline x 1 context are 2 "
                             "GPUs, expected the 1 of 1 nodes"));
  CHECK_THAT(with("held", "new"), Catch::Contains("mine.csv:4: set: found 'new'"));
  CHECK_THAT(with(",s,1,", ",s,0,"), Catch::Contains("mine.csv:4: iteration_s: found '0'"));
  CHECK_THAT(sentence("source,set\nmine,held\n"), Catch::Contains("missing column 'gpu'"));
}

TEST_CASE("in 8 bits the layers' products have their own peak, attention and the head not") {
  auto gpu = gpu_with_fp8();
  auto job = described(1);
  gpu_work w;
  w.flops = 9e12, w.head_flops = 1e12;
  w.tensor = 2, w.kernels.attention_flops = 4e12;
  job.kernels = "fused";
  const double half_s = time_kernels(job, gpu, w, 2).forward_s;
  CHECK(half_s == Approx(9e12 / 50e12));
  job.memory->precision = "fp8";
  // Six of nine are the layers' products; attention's four are shared by two GPUs.
  CHECK(time_kernels(job, gpu, w, 2).forward_s == Approx(6e12 / 100e12 + 3e12 / 50e12));
  gpu.fp8_tflops.reset();
  CHECK(time_kernels(job, gpu, w, 2).forward_s == Approx(half_s));
}

TEST_CASE("context-parallel pipelines have the same samples, a part of each and all weights") {
  const auto c = two_nodes();
  auto job = described(8);
  job.train.emplace().schedule = "megatron";
  job.train->device = "sim";
  job.pipeline.rows = 2;
  const std::vector<stage_request> stages(2, {0, 8, 1});
  const auto timed = [&](std::uint32_t pipelines) {
    const auto made = plan_of_stages(c, idle_index{c}, job, stages, pipelines);
    REQUIRE(made);
    auto t = time_plan(c, job, made->how, made->where);
    REQUIRE(t);
    return *t;
  };
  const auto alone = timed(1);
  job.pipeline.context_parallel = 2;
  const auto shared = timed(2);
  CHECK(alone.batches[0].microbatches == 4);
  CHECK(shared.batches[0].microbatches == 4);
  CHECK(shared.layout.pipelines == 2);
  const auto& a = alone.costs[0];
  const auto& b = shared.costs[0];
  CHECK(2 * b.activation_bytes == a.activation_bytes);
  CHECK(b.gradient_bytes == a.gradient_bytes);
  CHECK(shared.times.stages[0].exchange > 0);  // over two pipelines
  CHECK(alone.times.stages[0].exchange == 0);
  // One pipeline cannot share its samples with another that is not there.
  CHECK_FALSE(plan_of_stages(c, idle_index{c}, job, stages, 1));
  // The same without stages.
  job.train.reset();
  job.pipeline = {};
  plan one, two;
  one.data_parallel = 1, two.data_parallel = 2;
  const double whole_s = estimate_iteration(c, job, one, {{0, 1}}).compute_s;
  job.pipeline.context_parallel = 2;
  const auto halves = estimate_iteration(c, job, two, {{0, 2}});
  CHECK(halves.compute_s < 0.6 * whole_s + 0.02);
  CHECK(program_memory(job, 2, 1).activations ==
        Approx(program_memory(described(8), 1, 1).activations / 2));
}

TEST_CASE("the ring of keys and values hides behind attention, and only the excess counts") {
  const auto gpu = gpu_with_fp8();
  auto job = described(1);
  gpu_work w;
  w.rows = 0.5, w.kernels.attention_flops = 8e12;
  const context_ring slow{2, {"", 8, 0}, 1}, fast{2, {"", 8e6, 0}, 1};
  // Keys and values of half of 512 tokens, 1,024 numbers each, over 1 GB/s.
  const double hop_s = 2 * 2 * 1024 * 256 / 1e9, rate = kernel_constants{}.flash_speed * 50e12,
               attention_s = 0.5 * 1e12 / rate / 2;
  CHECK(context_ring_s(job, gpu, w, 8, fast) == 0);
  CHECK(context_ring_s(job, gpu, w, 8, {2, {"", 0.8, 0}, 1}) ==
        Approx(8 * std::max(0.0, 10 * hop_s - attention_s)));
  CHECK(context_ring_s(job, gpu, w, 8, {1, {"", 0.8, 0}, 1}) == 0);
  CHECK(context_ring_s(job, gpu, w, 8, slow) <= 8 * hop_s);
}

TEST_CASE("what runs beside work is hidden but for a piece, or for what its hiding costs") {
  CHECK(left_of_collective_s(2, 8, 4) == Approx(0.5));
  CHECK(left_of_collective_s(8, 2, 4) == Approx(6.5));
  CHECK(left_of_collective_s(3, 8, 1) == Approx(3));
  cost_constants k;
  k.hidden_share = 0.25;
  // One part: beside the last step alone. Four: beside three rounds of two steps of a part, too.
  CHECK(left_of_sum_s(3, {1, 8, 1}, k) == Approx(2));
  CHECK(left_of_sum_s(3, {4, 2, 1}, k) == Approx(3 - 7.0 / 4));
  CHECK(left_of_sum_s(0.5, {4, 2, 1}, k) == Approx(0.125));
}

TEST_CASE("a plan that overlaps its communication is faster, and has a closed form alone") {
  const auto c = two_nodes();
  auto job = described(8);
  job.train.emplace().schedule = "megatron";
  job.train->device = "sim";
  job.pipeline.rows = 1;
  const std::vector<stage_request> stages(2, {0, 8, 1});
  const auto time_s = [&] {
    const auto made = plan_of_stages(c, idle_index{c}, job, stages, 2);
    REQUIRE(made);
    const auto t = time_plan(c, job, made->how, made->where);
    REQUIRE(t);
    CHECK(evaluate(c, job, *t, fidelity::simulated).has_value() ==
          !job.pipeline.overlap.value_or(false));
    return evaluate(c, job, *t, fidelity::closed)->iteration_s;
  };
  const double plain_s = time_s();
  job.pipeline.overlap = true;
  CHECK(time_s() < plain_s);
}

TEST_CASE("nodes of an NVLink domain reach each other over the link inside a node") {
  auto c = two_nodes();
  CHECK(link_cost_between(c, 0, 1).s_per_byte == 1e-9);
  c.nodes[0].nvlink_domain = 0;
  CHECK(link_cost_between(c, 0, 1).s_per_byte == 1e-9);
  c.nodes[1].nvlink_domain = 0;
  CHECK(link_cost_between(c, 0, 1).s_per_byte == 1e-10);
  c.nodes[1].nvlink_domain = 1;
  CHECK(link_cost_between(c, 0, 1).s_per_byte == 1e-9);
}

TEST_CASE("a loss in chunks keeps no logits, and one by operations several numbers of each") {
  auto job = described(4);
  const double logits = 4.0 * 512 * 512;
  const double hidden = 4.0 * 512 * 4 * 1024;
  CHECK(program_memory(job, 1, 1).ends == Approx(8 * logits + hidden));
  job.kernels = "sdpa";
  CHECK(program_memory(job, 1, 1).ends == Approx(18 * logits + hidden));
  job.memory->chunked_loss = true;
  CHECK(program_memory(job, 1, 1).ends == Approx(hidden));
}

TEST_CASE("a gated MLP keeps four numbers of its width for each token, a plain one two") {
  auto job = described(1);
  job.kernels = "sdpa";
  const double tokens = 512, wide = 4 * 1024;
  CHECK(sublayer_of(job, false).kept.divided == 2 * tokens * 2 * wide);
  job.model.family = "llama", job.model.intermediate = 3000, job.model.kv_heads = 4;
  CHECK(sublayer_of(job, false).kept.divided == 2 * tokens * 4 * 3000);
  CHECK(sublayer_of(job, true).kept.divided == 2 * tokens * (2 * 1024 + 2 * 256));
  job.kernels = "flash";
  CHECK(sublayer_of(job, false).kept.divided == 2 * tokens * 3 * 3000);
}
