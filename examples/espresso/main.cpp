// The Espresso paper's Figures 8 to 10 and Table IV: README.md. Nothing in the output depends on
// the clock.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/load/load.hpp"
#include "harness/must.hpp"
#include "planners/core/plan_text.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/espresso/cmr_placer.hpp"
#include "planners/espresso/cost_tree.hpp"
#include "planners/pipeline/placement.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

constexpr std::uint64_t steps = 40'000'000;  // of a search's planning budget

struct study {
  std::string name;
  job_spec job;
};

const cluster& the_cluster() {
  static const cluster c =
      must(formats::load_cluster(formats::configs_directory() / "clusters/espresso.yaml"));
  return c;
}

std::vector<study> studies() {
  std::vector<study> all;
  for (const std::string name : {"llama-1.3b", "llama-3b", "llama-7b", "vit"}) {
    auto job = must(formats::load_job(formats::configs_directory() / ("jobs/" + name + "-slo.yaml"),
                                      the_cluster().gpus));
    job = with_device(std::move(job), "sim");
    job.train->schedule = "megatron";
    all.push_back({name, std::move(job)});
  }
  return all;
}

provision search(const job_spec& job, const provision_options& options) {
  planning_budget budget{steps};
  return cheapest_plan(the_cluster(), idle_index{the_cluster()}, job, budget, options);
}

std::string cost_text(const provision& p) {
  return p.plan       ? fmt::format("{:.3f}{}", p.cost, p.complete ? "" : "?")
         : p.complete ? "none"
                      : "?";
}

std::string stages_text(const job_spec& job, const provision& p) {
  std::string text = fmt::format("DP {}:", p.plan->how.data_parallel);
  for (const auto& s : p.plan->how.stages)
    text += fmt::format(" {} {},", the_cluster().gpus[*s.gpu].name, size_text(job.model, s));
  text.pop_back();
  return text;
}

void table4(const study& s) {
  const auto p = search(s.job, {});
  fmt::print("  {:11} {:>6.0f} {:>7} {:>9.1f}  {}\n", s.name, *s.job.slo_s, cost_text(p), p.total_s,
             stages_text(s.job, p));
}

/// Limits from the cheapest plan's time down to 0.95 of it, in equal ratios.
std::vector<double> limits(const job_spec& job) {
  constexpr int count = 12;
  auto free = job;
  free.slo_s.reset();
  const double slowest = search(free, {}).total_s;
  std::vector<double> all;
  for (int i = 0; i < count; ++i)
    all.push_back(std::ceil(slowest * std::pow(0.95, 1 - i / (count - 1.0)) * 10) / 10);
  return all;
}

struct gap_range {
  double most = 0;
  int points = 0, none = 0;
  void add(const provision& exact, const provision& other) {
    if (!exact.plan) return;
    if (!other.plan) return void(++none);
    ++points;
    most = std::max(most, other.cost / exact.cost - 1);
  }
  std::string text() const {
    return fmt::format("{} of {} limits met, at most {:.1f} % dearer", points, points + none,
                       100 * most);
  }
};

void figure8(const study& s) {
  fmt::print("  {}\n  {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", s.name, "SLO, s", "exact", "greedy",
             "sia", "whale", "hph");
  auto job = s.job;
  gap_range greedy, sia, whale, hph;
  for (const double slo_s : limits(s.job)) {
    job.slo_s = slo_s;
    const auto by = [&](provision_placer p) { return search(job, {.placer = p}); };
    const auto exact = by(provision_placer::exact), g = by(provision_placer::greedy),
               a = by(provision_placer::sia), w = by(provision_placer::whale),
               h = by(provision_placer::hph);
    greedy.add(exact, g), sia.add(exact, a), whale.add(exact, w), hph.add(exact, h);
    fmt::print("  {:8.1f} {:>8} {:>8} {:>8} {:>8} {:>8}\n", slo_s, cost_text(exact), cost_text(g),
               cost_text(a), cost_text(w), cost_text(h));
  }
  fmt::print("  greedy: {}\n  sia:    {}\n  whale:  {}\n  hph:    {}\n\n", greedy.text(),
             sia.text(), whale.text(), hph.text());
}

void figure9() {
  fmt::print(
      "Figure 9: compute-memory ratios of ViT in two pipelines, stage 0 with 22 layers, the "
      "paper's "
      "l_m\n  {:10} {:>5} {:>8} {:>8}\n",
      "GPU", "l_m", "paper", "here");
  const struct {
    const char* gpu;
    double max_in_memory, max_hidden, paper;
  } rows[] = {{"RTX3090", 26, 22, 6.99}, {"A6000", 54, 22, 7.91}, {"A4000", 22, 22, 4.75}};
  for (const auto& r : rows) {
    const auto& gpu = *std::ranges::find(the_cluster().gpus, r.gpu, &gpu_type::name);
    fmt::print("  {:10} {:>5} {:>8.2f} {:>8.2f}\n", r.gpu, r.max_in_memory, r.paper,
               compute_memory_ratio(gpu.fp16_tflops, gpu.memory_gb, r.max_in_memory, r.max_hidden));
  }
  fmt::print("\n");
}

void figure10(const study& s) {
  const auto pruned = search(s.job, {});
  const auto all = search(s.job, {.pruning = false});
  const auto& p = pruned.search;
  // Where the search without pruning was not through, it opens more nodes than that.
  fmt::print("  {:11} {:>8} {:>1}{:>8} {:>9} {:>9} {:>9} {:>9}\n", s.name, p.opened,
             all.complete ? "" : ">", all.search.opened, p.pruned_boundary, p.pruned_time,
             p.pruned_capacity, p.pruned_cost);
}

}  // namespace

int main() {
  const auto all = studies();
  fmt::print(
      "Table IV: the cheapest plan within the paper's limit (100 iterations)\n"
      "  {:11} {:>6} {:>7} {:>9}  {}\n",
      "model", "SLO, s", "cost", "time, s", "stages in order, with their layers");
  for (const auto& s : all) table4(s);
  fmt::print("\nFigure 8: cost of 100 iterations by limit and placer\n");
  for (const auto& s : all) figure8(s);
  figure9();
  fmt::print(
      "Figure 10a: nodes opened with and without pruning, and what each rule drops\n"
      "  {:11} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
      "model", "pruned", "all", "boundary", "time", "capacity", "cost");
  for (const auto& s : all) figure10(s);
}
