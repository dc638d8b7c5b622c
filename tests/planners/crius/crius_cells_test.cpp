#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "messages/base/random.hpp"
#include "messages/base/time.hpp"
#include "planners/crius/cell.hpp"
#include "planners/crius/cell_estimate.hpp"
#include "planners/crius/cell_tuner.hpp"
#include "planners/plans/fits.hpp"
#include "planners/sample.hpp"

// Crius' Cells against trying everything.

using namespace troupe;
using namespace troupe::planners;

namespace {

// -- stage determination

std::vector<chain_operator> random_chain(random_source& r) {
  std::vector<chain_operator> chain(1 + r.below(10));
  for (auto& op : chain) {
    op.flops = 1 + static_cast<double>(r.below(20));
    op.output_bytes = 1 + static_cast<double>(r.below(6));
  }
  return chain;
}

struct cut_value {
  double slowest = never, bytes = never, squares = never;
  std::uint32_t fewest = 1U << 30, max = 0;  // GPUs of a stage
};

/// Calls f for every cut into so many stages and every division of the GPUs into powers of two.
void for_cuts(const std::vector<chain_operator>& chain, std::uint32_t gpus, std::uint32_t stages,
              std::uint32_t spread, const std::function<void(const cut_value&)>& f) {
  const std::function<void(std::size_t, std::uint32_t, std::uint32_t, cut_value)> go =
      [&](std::size_t from, std::uint32_t left, std::uint32_t more, cut_value v) {
        if (more == 0) {
          const bool alike = spread == 0 || v.max <= spread * v.fewest;
          if (from == chain.size() && left == 0 && alike) f(v);
          return;
        }
        double work = 0;
        for (auto end = from + 1; end <= chain.size(); ++end) {
          work += chain[end - 1].flops;
          for (std::uint32_t n = 1; n <= left; n *= 2) {
            auto next = v;
            next.slowest = std::max(v.slowest, work / n);
            next.squares += work * work / n;
            next.fewest = std::min(v.fewest, n);
            next.max = std::max(v.max, n);
            if (more > 1) next.bytes += chain[end - 1].output_bytes;
            go(end, left - n, more - 1, next);
          }
        }
      };
  go(0, gpus, stages, {0, 0, 0});
}

cut_value best_cut(const std::vector<chain_operator>& chain, std::uint32_t gpus,
                   std::uint32_t stages, double balance, std::uint32_t spread) {
  double min = never;
  for_cuts(chain, gpus, stages, spread, [&](const auto& v) { min = std::min(min, v.slowest); });
  cut_value best;
  for_cuts(chain, gpus, stages, spread, [&](const cut_value& v) {
    if (v.slowest > min * (1 + balance) * (1 + 1e-12)) return;
    if (v.bytes < best.bytes || (v.bytes == best.bytes && v.squares < best.squares)) best = v;
  });
  return best;
}

// -- assemblies

/// Stages with random plans, of which some do not fit.
cell_space random_space(random_source& r, std::size_t stages, std::size_t plans) {
  cell_space s;
  s.microbatches = 1 + static_cast<std::uint32_t>(r.below(32));
  for (std::size_t i = 0; i < stages; ++i) {
    auto& all = s.plans.emplace_back(1 + r.below(plans));
    for (auto& p : all) {
      p.work_s = 0.1 + r.uniform();
      p.tail_s = r.chance(0.5) ? 0 : 10 * r.uniform();
      p.recompute_s = r.chance(0.5) ? 0 : 0.3 * p.work_s * r.uniform();
      p.fits = !r.chance(0.1);
    }
    auto& sends = s.send_s.emplace_back();
    if (i > 0)
      for (std::size_t k = 0; k < s.plans[i - 1].size() * all.size(); ++k)
        sends.push_back(0.3 * r.uniform());
  }
  return s;
}

double best_of_products(const cell_space& s) {
  double best = never;
  std::vector<std::uint32_t> chosen;
  const std::function<void()> go = [&] {
    const auto i = chosen.size();
    if (i == s.plans.size()) {
      best = std::min(best, assembled(s, chosen).estimate_s);
      return;
    }
    for (std::uint32_t p = 0; p < s.plans[i].size(); ++p) {
      if (!s.plans[i][p].fits) continue;
      chosen.push_back(p);
      go();
      chosen.pop_back();
    }
  };
  go();
  return best;
}

cluster two_types() {
  cluster c;
  c.name = "two types";
  sample::add_nodes(c, sample::gpu("fast", 40, 300), 8, 4);
  sample::add_nodes(c, sample::gpu("slow", 24, 120), 8, 2);
  return c;
}

}  // namespace

TEST_CASE("a Cell's stages are the best of all cuts with powers of two") {
  random_source r{11};
  int found = 0, cheapest = 0;
  for (int i = 0; i < 400; ++i) {
    const auto chain = random_chain(r);
    const auto gpus = 1 + static_cast<std::uint32_t>(r.below(16));
    const auto stages = 1 + static_cast<std::uint32_t>(r.below(std::min<std::uint64_t>(gpus, 6)));
    const double balance = r.chance(0.5) ? 0.05 : 0.3;
    const std::uint32_t spread = r.chance(0.5) ? 0 : 1U << r.below(3);
    const auto cell = determine_stages(chain, gpus, stages, balance, spread);
    const auto best =
        stages > chain.size() ? cut_value{} : best_cut(chain, gpus, stages, balance, spread);
    INFO("case " << i);
    REQUIRE(cell.stages.empty() == (best.bytes == never));
    if (cell.stages.empty()) continue;
    ++found;
    cheapest += cell.cheapest_edges;
    REQUIRE(cell.stages.size() == stages);
    double bytes = 0, squares = 0;
    std::uint32_t next = 0, used = 0;
    for (const auto& s : cell.stages) {
      REQUIRE(s.first == next);
      double work = 0;
      for (auto k = s.first; k < s.first + s.count; ++k) work += chain[k].flops;
      squares += work * work / s.gpus;
      next += s.count;
      used += s.gpus;
      if (next < chain.size()) bytes += chain[next - 1].output_bytes;
    }
    CHECK(next == chain.size());
    CHECK(used == gpus);
    CHECK(bytes == best.bytes);
    CHECK(cell.cut_bytes == best.bytes);
    CHECK(squares == Approx(best.squares).epsilon(1e-12));
  }
  CHECK(found > 150);
  CHECK(cheapest > 20);
  CHECK(cheapest < found);
}

TEST_CASE("the stages of Figure 7 are found: six operators, eight GPUs, four stages") {
  // FLOPs in sixteenths of the model. The cheapest edges are those after operators 1, 3 and 5.
  const std::vector<chain_operator> chain{{4, 1}, {1, 9}, {3, 2}, {2, 8}, {2, 3}, {4, 0}};
  const auto cell = determine_stages(chain, 8, 4);
  CHECK(cell.stages == std::vector<cell_stage>{{0, 1, 2}, {1, 2, 2}, {3, 2, 2}, {5, 1, 2}});
  CHECK(cell.cheapest_edges);
}

TEST_CASE("the best assembly is the best of all combinations, on 2,000 random tables") {
  random_source r{12};
  int impossible = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto space = random_space(r, 1 + r.below(10), 2);
    const double min = best_of_products(space);
    const auto best = best_assembly(space);
    INFO("case " << i);
    REQUIRE(best.has_value() == (min < never));
    if (!best) {
      ++impossible;
      continue;
    }
    CHECK(best->estimate_s == Approx(min).epsilon(1e-12));
    CHECK(best->estimate_s == assembled(space, best->chosen).estimate_s);
  }
  CHECK(impossible > 20);
  CHECK(impossible < 1000);
}

TEST_CASE("the best assembly over all divisions is the best of all combinations") {
  random_source r{13};
  for (int i = 0; i < 300; ++i) {
    const auto space = random_space(r, 1 + r.below(5), 5);
    const auto best = best_assembly(space);
    const double min = best_of_products(space);
    REQUIRE(best.has_value() == (min < never));
    if (best) CHECK(best->estimate_s == Approx(min).epsilon(1e-12));
  }
}

TEST_CASE("an assembly's time is the paper's formula plus its longest tail") {
  cell_space s;
  s.microbatches = 8;
  s.plans = {{{1, 1, 2.0, 1, 0, 0, 0.5, 0, true}}, {{1, 1, 3.0, 1, 0, 0, 0.25, 0, true}}};
  s.send_s = {{}, {0.125}};
  const auto a = assembled(s, {0, 0});
  CHECK(a.printed_s == 2 + 3 + 0.125 + 7 * 3);  // what is sent is hidden but for the first time
  CHECK(a.estimate_s == a.printed_s + 0.5);
  CHECK(a.bottleneck == 1);
  // Only the slowest stage's recomputing takes time that nothing else hides.
  s.plans[0][0].recompute_s = 0.5;
  s.plans[1][0].recompute_s = 0.75;
  CHECK(assembled(s, {0, 0}).printed_s == a.printed_s);
  CHECK(assembled(s, {0, 0}).estimate_s == a.estimate_s - 0.5);
}

TEST_CASE("a Cell's stages take as long as their node's emulated CPUs, and hand out gradients") {
  auto c = two_types();
  auto job = sample::job(sample::gpt2_350m, 64, 2);
  job.train.emplace().device = "cpu";
  job.train->costs.resize(1);
  auto& costs = job.train->costs.front();
  costs.forward_s = 2, costs.backward_s = 4, costs.update_s = 1, costs.gradients_s = 0.5;
  const auto pools = pools_of(c, idle_index{c});
  const auto stages = determine_stages(chain_of(job.model), 2, 1);
  const auto plans = space_of(c, pools.front(), job, stages).plans.at(0);
  REQUIRE(plans.size() == 2);
  CHECK(plans[0].work_s == 6);
  CHECK(plans[0].data == 2);
  CHECK(plans[0].update_s == 1.5);
  CHECK(plans[1].tensor == 2);
  CHECK(plans[1].update_s == 1);
  for (auto& n : c.nodes) n.emulate_speed = 0.25;
  const auto slow = space_of(c, pools.front(), job, stages).plans.at(0);
  CHECK(slow[0].work_s == 24);
  CHECK(slow[0].backward_s == 16);
  CHECK(slow[0].update_s == 6);
}

TEST_CASE("a node's link is shared by its stages' sums of gradients") {
  const auto c = two_types();
  const auto pools = pools_of(c, idle_index{c});
  const auto job = sample::job(sample::gpt2_350m, 64, 8);
  const cell_stages stages{{{0, 12, 2}, {12, 12, 2}, {24, 12, 2}, {36, 12, 2}}, 0, false};
  const auto plans = space_of(c, pools.front(), job, stages).plans;
  REQUIRE(plans.size() == 4);
  // Two pipelines, each on a node. The last stage's sums begin first, and the link is through when
  // those of all have been sent.
  const auto& last = plans[3][0];
  REQUIRE(last.data == 2);
  double sums = 0, hidden = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    sums += plans[i][0].sync_s;
    if (i < 3) hidden += plans[i][0].backward_s;
  }
  CHECK(sums > last.sync_s);
  CHECK(last.tail_s == Approx(std::max(0.0, sums - hidden) + last.update_s));
  CHECK(plans[0][0].tail_s == Approx(plans[0][0].sync_s + plans[0][0].update_s));
}

TEST_CASE("the tuner keeps the half of a stage's plans that the estimate favours") {
  const auto kept = [](std::uint32_t gpus, bool data) {
    std::vector<std::uint32_t> out;
    for (std::uint32_t t = 1; t <= gpus; t *= 2)
      if (kept_by_tuner(gpus, data, t)) out.push_back(t);
    return out;
  };
  using list = std::vector<std::uint32_t>;
  CHECK(kept(1, true) == list{1});
  CHECK(kept(2, true) == list{1, 2});
  CHECK(kept(4, true) == list{1, 2});
  CHECK(kept(4, false) == list{2, 4});
  CHECK(kept(8, true) == list{1, 2, 4});
  CHECK(kept(8, false) == list{2, 4, 8});
  CHECK(kept(16, true) == list{1, 2, 4});
  CHECK(kept(16, false) == list{4, 8, 16});
}

TEST_CASE("a tuned Cell is no slower than its estimate, and no faster than the exact best") {
  const auto c = two_types();
  const auto pools = pools_of(c, idle_index{c});
  int cells = 0, within = 0;
  double measured = 0, full = 0;
  for (const std::uint32_t gpus : {2, 8, 16})
    for (const auto& m : {sample::gpt2_7b, sample::gpt2_350m}) {
      auto job = sample::job(m, 128, gpus);
      const auto all = cells_of(c, pools, job);
      for (const auto& x : all) {
        if (!x.estimated) continue;
        ++cells;
        const auto t = tune(x);
        const auto whole = full_space(all, x);
        CHECK(whole.best_s <= t.exact.estimate_s);
        const double plans = assemblies_of(x.space);
        CHECK(whole.plans >= plans);
        within += whole.best_s == t.exact.estimate_s;
        CHECK(t.favoured.estimate_s <= x.estimated->estimate_s * (1 + 1e-12));
        CHECK(t.exact.estimate_s <= t.favoured.estimate_s * (1 + 1e-12));
        CHECK(t.measured_plans <= plans);
        measured += t.measured_plans, full += plans;
      }
    }
  CHECK(cells > 20);
  CHECK(within > 5);  // the best number of stages is one of them
  CHECK(within < cells);
  CHECK(measured < full);
}

TEST_CASE("the plans of the best Cells fit their GPUs, and their times are near the estimate") {
  const auto c = two_types();
  const auto pools = pools_of(c, idle_index{c});
  const auto job = sample::job(sample::gpt("gpt", 2048, 24, 16), 128, 8);
  const auto cells = best_cells(c, pools, job);
  REQUIRE(cells.size() >= 4);
  const idle_index idle{c};
  for (const auto& x : cells) {
    REQUIRE(x.tuned.has_value());
    CHECK(x.tuned->gpus() == x.gpus);
    CHECK(fits(c, idle, *x.tuned, pack(pools[x.pool], x.gpus)));
    CHECK(x.tuned->samples_per_s > 0);
    CHECK(x.tuned->stages.size() == x.stages.stages.size());
    // The estimate, which ranks, and the plan, which runs, have the same GPUs but other formulas.
    const double tuned_s = job.global_batch / x.tuned->samples_per_s;
    CHECK(tuned_s == Approx(x.estimated->estimate_s).epsilon(0.5));
  }
}

TEST_CASE("Cells are made for half, all and double the GPUs that a job requests") {
  auto job = sample::job(sample::gpt2_350m, 64, 4);
  CHECK(cell_counts(job) == std::vector<std::uint32_t>{2, 4, 8});
  job.request.gpus = 1;
  CHECK(cell_counts(job) == std::vector<std::uint32_t>{1, 2});
  job.limits.max_gpus = 1;
  CHECK(cell_counts(job) == std::vector<std::uint32_t>{1});
  job.limits.max_gpus.reset();
  job.pipeline.stages = 2;
  job.pipeline.data_parallel = 2;
  CHECK(cell_counts(job) == std::vector<std::uint32_t>{2, 4, 8});
  CHECK(cell_depths(job, 8) == std::vector<std::uint32_t>{1, 2, 4, 8});
  job.model.layers = 2;  // four pieces
  CHECK(cell_depths(job, 8) == std::vector<std::uint32_t>{1, 2, 4});
}

TEST_CASE("all Cells of a training divide its batch into micro-batches of the same size") {
  auto job = sample::job(sample::gpt2_350m, 64, 4);
  CHECK(with_common_rows(job) == job);
  job.train.emplace();
  const auto same = with_common_rows(job);
  CHECK(same.pipeline.rows == 2);  // eight samples a pipeline of one GPU, in four micro-batches
  const auto c = two_types();
  for (const auto& x : best_cells(c, pools_of(c, idle_index{c}), same)) CHECK(x.tuned->rows == 2);
  job.pipeline.rows = 8;
  CHECK(with_common_rows(job) == job);
}
