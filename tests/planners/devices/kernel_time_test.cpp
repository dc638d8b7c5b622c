#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "harness/published/runs.hpp"
#include "harness/source_dir.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/devices/kernel_time.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/sample.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::planners;

namespace {

/// 100 TFLOP/s, of which products reach half, and lose 20 us each.
gpu_type kernel_gpu() {
  auto g = sample::gpu("G", 40, 100);
  g.efficiency = 0.5;
  g.kernel_us = 20;
  return g;
}

gpu_work products_of(double flops, double products, double rows = 1) {
  gpu_work w;
  w.flops = flops;
  w.rows = rows;
  w.kernels.products = products;
  return w;
}

struct compared_run {
  harness::published_run run;
  double predicted_s = 0;
};

const std::vector<compared_run>& compared() {
  static const auto all = [] {
    const std::string root = troupe::test::source_dir();
    const auto runs = harness::load_published_runs(root + "/tests/planners/published_runs.csv");
    const auto gpus = formats::load_catalogue(root + "/configs/gpus.yaml");
    std::vector<compared_run> out;
    if (!runs || !gpus) return out;
    for (const auto& r : *runs)
      if (const auto s = harness::predicted_s(r, *gpus)) out.push_back({r, *s});
    return out;
  }();
  return all;
}

/// The time of interleaved 1F1B, stage by stage and step by step (Narayanan et al., section 2.2):
/// warm-up, then a forward and a backward in turn, then the remaining backwards.
double interleaved_s(std::uint32_t stages, std::uint32_t v, std::uint32_t m, double f, double b) {
  struct step {
    bool backward;
    std::uint32_t chunk, microbatch;
  };
  const auto order_of = [&](std::uint32_t s) {
    const auto nth = [&](std::uint32_t i, bool backward) {
      const auto chunk = i % (stages * v) / stages;
      return step{backward, backward ? v - 1 - chunk : chunk,
                  i / (stages * v) * stages + i % stages};
    };
    const auto all = m * v, after = stages - s - 1;
    const auto warm = std::min(all, v == 1 ? after : 2 * after + (v - 1) * stages);
    std::vector<step> order;
    for (std::uint32_t i = 0; i < warm; ++i) order.push_back(nth(i, false));
    for (std::uint32_t i = 0; warm + i < all; ++i) {
      order.push_back(nth(warm + i, false));
      order.push_back(nth(i, true));
    }
    for (auto i = all - warm; i < all; ++i) order.push_back(nth(i, true));
    return order;
  };
  std::vector<std::vector<step>> orders;
  for (std::uint32_t s = 0; s < stages; ++s) orders.push_back(order_of(s));
  const auto parts = stages * v;
  std::vector<double> done(std::size_t{2} * parts * m, -1), free_s(stages, 0);
  const auto at = [&](bool backward, std::uint32_t part, std::uint32_t i) -> double& {
    return done[(std::size_t{backward} * parts + part) * m + i];
  };
  std::vector<std::size_t> next(stages, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint32_t s = 0; s < stages; ++s)
      while (next[s] < orders[s].size()) {
        const auto x = orders[s][next[s]];
        const auto part = x.chunk * stages + s;
        const bool last = part + 1 == parts;
        const double ready = !x.backward ? (part == 0 ? 0 : at(false, part - 1, x.microbatch))
                             : last      ? at(false, part, x.microbatch)
                                         : at(true, part + 1, x.microbatch);
        if (ready < 0) break;
        free_s[s] = std::max(free_s[s], ready) + (x.backward ? b : f) / v;
        at(x.backward, part, x.microbatch) = free_s[s];
        ++next[s];
        moved = true;
      }
  }
  for (std::uint32_t s = 0; s < stages; ++s) REQUIRE(next[s] == orders[s].size());
  return *std::ranges::max_element(free_s);
}

}  // namespace

TEST_CASE("a matrix product runs at half efficiency when its work takes as long as its overhead") {
  const job_spec job;
  const auto half = 50e12 * 20e-6;  // FLOPs
  const auto t = time_kernels(job, kernel_gpu(), products_of(half, 1), 2);
  CHECK(t.forward_s == Approx(70e-6));  // the host's time to launch it is longer
  const auto large = time_kernels(job, kernel_gpu(), products_of(100 * half, 1), 2);
  CHECK(large.forward_s == Approx(101 * 20e-6));
  CHECK(large.backward_s == Approx(2 * large.forward_s));
}

TEST_CASE("an iteration is no shorter than its kernel launches, however fast the GPU") {
  job_spec job;
  const auto few = products_of(1e6, 10);
  CHECK(time_kernels(job, kernel_gpu(), few, 2).forward_s == Approx(10 * 70e-6));
  job.kernels = "eager";
  const auto t = time_kernels(job, kernel_gpu(), few, 2);
  CHECK(t.forward_s == Approx(10 * 270e-6));
  CHECK(t.backward_s == Approx(t.forward_s));  // autograd's threads launch it
  CHECK(t.update_s == Approx(10 * 1250e-6));
  // A GPU that waits for its host could sum meanwhile.
  const double work_s = 10 * 20e-6 + 1e6 / 50e12;
  CHECK(t.forward_idle_s == Approx(t.forward_s - work_s));
  CHECK(t.backward_idle_s == Approx(t.backward_s - 2 * work_s));
  CHECK(time_kernels(job, kernel_gpu(), products_of(1e15, 1), 2).forward_idle_s == 0);
  // Full checkpointing launches the forward again.
  CHECK(time_kernels(job, kernel_gpu(), few, 3).backward_s == Approx(2 * t.forward_s));
  for (const auto* others : {"sdpa", "fused", ""}) {
    job.kernels = others;
    const auto o = time_kernels(job, kernel_gpu(), few, 2);
    CHECK(o.backward_s == Approx(2 * o.forward_s));
  }
}

TEST_CASE("programs that divide their model update all parameters at once") {
  job_spec job;
  job.kernels = "eager";
  auto few = products_of(1e6, 10);
  const auto alone = time_kernels(job, kernel_gpu(), few, 2);
  few.divided = true;
  const auto divided = time_kernels(job, kernel_gpu(), few, 2);
  CHECK(divided.update_s == Approx(0.02));
  CHECK(divided.forward_s == alone.forward_s);
  job.kernels.clear();
  CHECK(time_kernels(job, kernel_gpu(), few, 2).update_s == divided.update_s);
}

TEST_CASE("sums among GPUs that wait for their host's launches take no time of their own") {
  cluster c;
  sample::add_nodes(c, kernel_gpu(), 1, 4);
  auto job = sample::job(sample::gpt("small", 256, 12, 4, 64, 8), 1);
  job.kernels = "eager";
  plan how;
  how.tensor_parallel = 4;
  const auto hidden = estimate_iteration(c, job, how, {{0, 4}});
  CHECK(hidden.tensor_s == 0);
  c.nodes[0].intra.gbps = 0.1;
  const auto slow = estimate_iteration(c, job, how, {{0, 4}});
  CHECK(slow.compute_s == hidden.compute_s);
  const double sums_s = 2 * 24 * 1.5 * 2 * 64 * 256 / (0.8 * 0.1e9 / 8);
  CHECK(slow.tensor_s < sums_s);
  CHECK(slow.tensor_s > sums_s - hidden.compute_s);
}

TEST_CASE("elementwise operations take the time of the bytes they move, four per number in fp32") {
  job_spec job;
  auto gpu = kernel_gpu();
  gpu.memory_gbytes_s = 1000;
  auto w = products_of(1e12, 1);
  w.kernels.stream = 1e8;
  w.kernels.matrices = 1e9;
  const double products = 1e12 / 50e12 + 20e-6;
  const double mixed = 2 * (18 * 1e8 + 3 * 1e9) / 625e9;
  CHECK(time_kernels(job, gpu, w, 2).forward_s == Approx(products + mixed));
  job.memory.emplace();
  job.memory->precision = "fp32";
  gpu.fp32_tflops = 100, gpu.fp32_efficiency = 0.5;
  CHECK(time_kernels(job, gpu, w, 2).forward_s == Approx(products + 2 * mixed));
  job.memory.reset();
  job.kernels = "flash";  // no matrix, and attention's forward once more in backward
  w.kernels.attention_flops = 4e11;
  const auto flash = time_kernels(job, gpu, w, 2);
  const double attention = 4e11 / (0.95 * 50e12);  // a kernel with a rate of its own
  const double others = products - 4e11 / 50e12 + attention;
  CHECK(flash.forward_s == Approx(others + 2 * 0.4 * 18 * 1e8 / 625e9));
  CHECK(flash.backward_s == Approx(2 * flash.forward_s + 0.5 * attention));
}

TEST_CASE("flash attention reaches less where only instructions of warp groups reach the peak") {
  job_spec job;
  job.kernels = "flash";
  auto gpu = kernel_gpu();
  gpu.memory_gbytes_s = 0;
  auto w = products_of(1e12, 1);
  w.kernels.attention_flops = 4e11;
  const auto forward_s = [&](double capability) {
    gpu.compute_capability = capability;
    return time_kernels(job, gpu, w, 2).forward_s;
  };
  const double ampere = forward_s(8), rest = 6e11 / 50e12 + 20e-6;
  CHECK(ampere - rest == Approx(4e11 / (0.95 * 50e12)));
  CHECK((forward_s(9) - rest) * 0.629 == Approx(ampere - rest));
  CHECK(forward_s(10) == forward_s(9));
  CHECK(forward_s(12) == ampere);
  job.kernels = "fused";  // attention's products are as all others
  CHECK(forward_s(9) == Approx(1e12 / 50e12 + 20e-6));
}

TEST_CASE("recomputation omits the head, and PyTorch's also each layer's last product") {
  auto job = sample::job(sample::gpt("G", 1024, 6, 16, 512, 1000), 8);
  const auto shape = shape_of(job.model);
  gpu_work w{shape.forward_flops, shape.parameters, 1, 1, shape.kernels};
  auto gpu = kernel_gpu();
  gpu.memory_gbytes_s = 0;
  w.rows = 1000;  // no launch counts
  const double head = 2.0 * 512 * 1024 * 1000, last = 6 * 2.0 * 512 * 4 * 1024 * 1024;
  const auto again = [&](const char* kernels) {
    job.kernels = kernels;
    return layers_again_s(job, gpu, w, true);
  };
  CHECK(again("fused") == Approx(1000 * (shape.forward_flops - head) / 50e12 + 6 * 6 * 20e-6));
  CHECK(again("fused") - again("eager") == Approx(1000 * last / 50e12 + 6 * 20e-6));
  gpu.kernel_us = 0;  // measured as a whole
  CHECK(again("eager") == again("fused"));
}

TEST_CASE("an eager program with flash attention moves no matrix, and its loss all logits often") {
  job_spec job;
  job.kernels = "sdpa";
  auto gpu = kernel_gpu();
  gpu.memory_gbytes_s = 1000;
  auto w = products_of(1e12, 1);
  w.kernels.stream = 1e8, w.kernels.matrices = 1e9, w.kernels.attention_flops = 4e11;
  const double products = 1e12 / 50e12 + 20e-6, streams = 2 * 18 * 1e8 / 625e9;
  const double attention = 4e11 / (0.95 * 50e12);
  const auto layers = time_kernels(job, gpu, w, 2);
  CHECK(layers.forward_s == Approx(products - 4e11 / 50e12 + attention + streams));
  CHECK(layers.backward_s == Approx(2 * layers.forward_s + 0.5 * attention));
  CHECK(layers.update_s == Approx(1250e-6));
  w.kernels.logits = 1e9;
  const auto loss = time_kernels(job, gpu, w, 2);
  CHECK(loss.forward_s + loss.backward_s - layers.forward_s - layers.backward_s ==
        Approx(52 * 1e9 / 625e9));
  CHECK(time_kernels(job, gpu, products_of(1e6, 10), 2).forward_s == Approx(10 * 270e-6));
}

TEST_CASE("a program's stages wait for each micro-batch's messages, and launch after them") {
  cluster c;
  sample::add_nodes(c, kernel_gpu(), 3, 1);
  for (auto& n : c.nodes) n.inter = {"slow", 8, 100};
  auto job = sample::job(sample::gpt("even", 1024, 6, 16, 512, 8), 64);
  job.train.emplace().schedule = "megatron";
  job.train->device = "sim";
  job.pipeline.rows = 2;
  job.pipeline.recompute = false;
  const auto timed = [&] {
    const auto made =
        plan_of_stages(c, idle_index{c}, job, std::vector<stage_request>(3, {0, 4, 1}), 1);
    REQUIRE(made);
    auto t = time_plan(c, job, made->how, made->where);
    REQUIRE(t);
    return *t;
  };
  const auto trainings = timed();
  job.memory.emplace();
  const auto programs = timed();
  // A micro-batch's activations over 1 GB/s and the latency, at both ends, and the sender's launch.
  const double received_s = 2 * 2 * 512 * 1024 / 1e9 + 100e-6, sent_s = received_s + 70e-6;
  const auto& a = trainings.costs;
  const auto& b = programs.costs;
  CHECK(b[0].forward_s - a[0].forward_s == Approx(sent_s));
  CHECK(b[0].backward_s - a[0].backward_s == Approx(received_s));
  CHECK(b[1].forward_s - a[1].forward_s == Approx(sent_s + received_s));
  CHECK(b[1].backward_s - a[1].backward_s == Approx(sent_s + received_s));
  CHECK(b[2].forward_s - a[2].forward_s == Approx(received_s));
  CHECK(b[2].backward_s - a[2].backward_s == Approx(sent_s));
  for (const auto f : {fidelity::closed, fidelity::simulated}) {
    const auto of_program = evaluate(c, job, programs, f);
    REQUIRE(of_program);
    // 32 micro-batches; the middle stage has four messages of each.
    CHECK(of_program->iteration_s >= 32 * (b[1].forward_s + b[1].backward_s));
    CHECK(of_program->iteration_s < 36 * (b[1].forward_s + b[1].backward_s) + 0.1);
  }
}

TEST_CASE(
    "with ZeRO-3 every micro-batch waits for weights, and pays for those that its work hides") {
  cluster c;
  auto gpu = sample::gpu("G", 80, 100);
  gpu.kernel_us = 0, gpu.memory_gbytes_s = 0;
  sample::add_nodes(c, gpu, 2, 1);
  auto job = sample::job(sample::gpt("even", 1024, 6, 16, 512, 8), 8);
  job.memory.emplace().zero = 3;
  plan how;
  how.data_parallel = 2;
  const auto estimate = [&](std::uint32_t microbatches, double gbps) {
    job.microbatches = microbatches;
    for (auto& n : c.nodes) n.inter = {"link", gbps, 0};
    return estimate_iteration(c, job, how, {{0, 1}, {1, 1}});
  };
  const double ring_s = 1.5 * 2 * shape_of(job.model).parameters / (8e9 / 8);
  const auto slow = estimate(4, 8);
  const double each_s = slow.compute_s / 4;
  REQUIRE(each_s < ring_s / 2);
  CHECK(slow.data_s == Approx(4 * (ring_s - each_s)));
  CHECK(estimate(1, 8).data_s == Approx(ring_s - slow.compute_s));
  CHECK(estimate(4, 8000).data_s == Approx(4 * 0.5 * ring_s / 1000));
}

TEST_CASE("a sharded program waits for each layer's hops, of which there are as many as GPUs") {
  cluster c;
  auto gpu = sample::gpu("G", 80, 100);
  gpu.kernel_us = 0, gpu.memory_gbytes_s = 0;
  sample::add_nodes(c, gpu, 4, 8);
  for (auto& n : c.nodes) n.intra = {"inside", 1e9, 3}, n.inter = {"between", 1e9, 5};
  auto job = sample::job(sample::gpt("even", 1024, 6, 16, 512, 8), 64);
  job.memory.emplace();
  const auto waits_s = [&](std::uint32_t zero, std::uint32_t nodes) {
    job.memory->zero = zero;
    plan how;
    how.data_parallel = 8 * nodes;
    allocation where;
    for (node_index n = 0; n < nodes; ++n) where.push_back({n, 8});
    return estimate_iteration(c, job, how, where).data_s;
  };
  // Gathers for the forward and for the backward, and a scatter, of 6 layers each; and half of the
  // one ring that the bytes are counted as.
  CHECK(waits_s(3, 1) == Approx(3 * 6 * 8 * 3e-6 + 7 * 3e-6));
  CHECK(waits_s(3, 4) == Approx(3 * 6 * (28 * 3e-6 + 4 * 5e-6) + 31 * 5e-6));
  CHECK(waits_s(2, 4) == Approx(2 * 6 * (28 * 3e-6 + 4 * 5e-6) + 31 * 5e-6));
  CHECK(waits_s(1, 4) == 0);
}

TEST_CASE("the GPUs that share a program's stage sum their gradients over the node's one card") {
  cluster c;
  sample::add_nodes(c, kernel_gpu(), 2, 2);
  for (auto& n : c.nodes) n.inter = {"card", 8, 0};
  auto job = sample::job(sample::gpt("even", 1024, 6, 16, 512, 8), 8);
  job.memory.emplace();
  job.train.emplace().schedule = "megatron";
  job.train->device = "sim";
  const auto made = plan_of_stages(c, idle_index{c}, job, {{0, 12, 2}}, 2);
  REQUIRE(made);
  const auto t = time_plan(c, job, made->how, made->where);
  REQUIRE(t);
  REQUIRE(t->times.routes.front().peers.size() == 1);
  // Two members: each sends the other's half, for both GPUs.
  const double half = static_cast<double>(t->costs.front().gradient_bytes) / 2;
  CHECK(t->times.routes.front().peers.front().route.alone_s == Approx(2 * half / 1e9));
}

TEST_CASE("layouts of one model on eight GPUs are ranked as their published times are") {
  std::vector<double> errors;
  std::vector<std::pair<double, double>> times;  // published, predicted
  for (const auto& x : compared()) {
    if (x.run.source != "nanotron") continue;
    errors.push_back(x.predicted_s / x.run.iteration_s - 1);
    times.emplace_back(x.run.iteration_s, x.predicted_s);
  }
  REQUIRE(times.size() == 7);
  int agree = 0, pairs = 0;
  for (std::size_t i = 0; i < times.size(); ++i)
    for (std::size_t j = i + 1; j < times.size(); ++j, ++pairs)
      agree += (times[i].first < times[j].first) == (times[i].second < times[j].second);
  CHECK((2.0 * agree - pairs) / pairs >= 0.7);  // Kendall's tau
  const auto s = harness::summary_of(errors);
  CHECK(s.median <= 0.15);
  CHECK(s.worst <= 0.30);
}

TEST_CASE("single precision has its own peak, and TF32 another where the GPU has it") {
  auto gpu = kernel_gpu();
  gpu.fp32_tflops = 20, gpu.fp32_efficiency = 0.8;
  job_spec job;
  CHECK(flops_s(job, gpu) == 50e12);
  job.memory.emplace();
  job.memory->precision = "tf32";
  CHECK(flops_s(job, gpu) == 16e12);
  gpu.tf32_tflops = 40;
  CHECK(flops_s(job, gpu) == 32e12);
  job.memory->precision = "fp32";
  CHECK(flops_s(job, gpu) == 16e12);
}

TEST_CASE("the waiting time of interleaved stages shrinks by the number of their parts") {
  cluster c;
  sample::add_nodes(c, sample::gpu("G", 80, 100), 4, 1);
  for (auto& n : c.nodes) n.inter = {"fast", 1e9, 0};
  auto job = sample::job(sample::gpt("even", 1024, 16, 16, 512, 8), 32);
  job.train.emplace();
  job.train->device = "sim";
  job.train->schedule = "megatron";
  job.pipeline.microbatches = 32;
  job.pipeline.recompute = false;
  for (const std::uint32_t v : {1U, 2U, 4U}) {
    INFO(v << " parts");
    job.pipeline.virtual_stages = v;
    const auto made =
        plan_of_stages(c, idle_index{c}, job, std::vector<stage_request>(4, {0, 8, 1}), 1);
    REQUIRE(made);
    const auto t = time_plan(c, job, made->how, made->where);
    REQUIRE(t);
    const auto closed = evaluate(c, job, *t, fidelity::closed);
    REQUIRE(closed);
    const auto k = t->costs[1];
    CHECK(closed->iteration_s ==
          Approx(interleaved_s(4, v, 32, k.forward_s, k.backward_s)).epsilon(0.01));
    CHECK(evaluate(c, job, *t, fidelity::simulated).has_value() == (v == 1));
  }
}

TEST_CASE("published runs not used for calibration are within 30 %, half of them within 10 %") {
  std::vector<double> errors;
  std::set<std::string> types;
  for (const auto& x : compared()) {
    if (x.run.set != "held") continue;
    errors.push_back(x.predicted_s / x.run.iteration_s - 1);
    types.insert(x.run.gpu);
    INFO(x.run.source << " on " << x.run.gpu << ", " << x.run.rows << " rows");
    CHECK(std::abs(errors.back()) < 0.30);
  }
  CHECK(errors.size() >= 100);
  CHECK(types.size() >= 9);
  CHECK(harness::summary_of(errors).median < 0.10);
}

TEST_CASE("published ratios between GPU types are within 20 %") {
  std::vector<double> errors;
  const auto& all = compared();
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = i + 1; j < all.size(); ++j)
      if (harness::differ_in_gpu_alone(all[i].run, all[j].run))
        errors.push_back(all[j].predicted_s / all[i].predicted_s /
                             (all[j].run.iteration_s / all[i].run.iteration_s) -
                         1);
  REQUIRE(errors.size() >= 35);
  CHECK(harness::summary_of(errors).median < 0.10);
  CHECK(std::ranges::all_of(errors, [](double e) { return std::abs(e) < 0.20; }));
}
