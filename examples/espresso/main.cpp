// The Espresso paper's Table IV and Figures 2 and 8 to 10: README.md. Nothing in the output depends
// on the clock.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/load/load.hpp"
#include "harness/must.hpp"
#include "messages/domain/device_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/espresso/cheapest_plan.hpp"
#include "planners/espresso/cmr_placer.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/plans/fits.hpp"
#include "planners/plans/plan_text.hpp"
#include "planners/policy/placement.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

constexpr std::uint64_t steps = 20'000'000;  // of a search's planning budget

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
    job = with_device(std::move(job), name_of(device_kind::sim));
    job.train->schedule = "megatron";
    all.push_back({name, std::move(job)});
  }
  return all;
}

provision search(const job_spec& job, const provision_options& options) {
  planning_budget budget{steps};
  auto unbounded = options;
  unbounded.bounded = false;
  return cheapest_plan(the_cluster(), idle_index{the_cluster()}, job, budget, unbounded);
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

/// A plan as it was asked for.
struct given_plan {
  placed_plan plan;
  bool fits = true;
  double total_s = 0, cost = 0;
};

given_plan evaluated(const job_spec& job, const std::vector<stage_request>& stages) {
  const auto& c = the_cluster();
  const idle_index idle{c};
  given_plan out;
  out.plan = must(plan_of_stages(c, idle, job, stages, 1));
  out.fits = fits(c, idle, out.plan.how, out.plan.where).has_value();
  const auto e = must(evaluate(c, job, out.plan.how, out.plan.where, fidelity::simulated));
  out.total_s = e.iteration_s * static_cast<double>(job.iterations);
  out.cost = e.cost_per_hour * out.total_s / 3600;
  return out;
}

gpu_index type_named(const std::string& name) {
  const auto& gpus = the_cluster().gpus;
  return static_cast<gpu_index>(std::ranges::find(gpus, name, &gpu_type::name) - gpus.begin());
}

/// Table IV of the paper counts the embedding, the last norm and the head as layers; the first
/// stage has the one, the last stage the others.
const std::map<std::string, std::vector<std::pair<std::string, std::uint32_t>>> papers_plans{
    {"llama-1.3b", {{"A4000", 5}, {"A6000", 6}, {"A30", 6}, {"A30", 6}}},
    {"llama-3b", {{"A6000", 18}, {"A6000", 17}, {"RTX3090", 7}}},
    {"llama-7b", {{"A6000", 13}, {"A6000", 14}, {"A6000", 15}, {"A6000", 14}, {"A4000", 2}}},
    // With four such layers, of which one is in front.
    {"vit", {{"A4000", 13}, {"A4000", 14}, {"RTX3090", 14}, {"A6000", 14}, {"A30", 11}}}};

void table4(const study& s) {
  const auto row = [&](const char* whose, double cost, double total_s, const std::string& text) {
    fmt::print("  {:11} {:>6.0f}  {:5} {:>7.3f} {:>9.1f}  {}\n", s.name, *s.job.limits.slo_s, whose,
               cost, total_s, text);
  };
  std::vector<stage_request> stages;
  for (const auto& [gpu, layers] : papers_plans.at(s.name))
    stages.push_back({type_named(gpu), 2 * layers, 1});
  const auto theirs = evaluated(s.job, stages);
  std::string memory;
  for (const auto& x : theirs.plan.how.stages) {
    const auto& gpu = the_cluster().gpus[*x.gpu];
    memory += fmt::format("{}{} {:g}: {:.1f} of {:g} GB", memory.empty() ? "" : ", ", gpu.name,
                          x.count / 2.0, x.bytes_per_gpu / bytes_per_gb, gpu.memory_gb);
  }
  const bool in_time = theirs.total_s <= *s.job.limits.slo_s;
  row("paper", theirs.cost, theirs.total_s,
      fmt::format("{}{}", memory,
                  !theirs.fits ? "; does not fit"
                  : in_time    ? ""
                               : "; later than the limit"));
  const auto p = search(s.job, {});
  row("here", p.cost, p.total_s, stages_text(s.job, p));
}

/// The cost of each placer's plan within the paper's limit.
void costs_by_placer(const study& s) {
  const auto cost = [&](provision_placer p) { return cost_text(search(s.job, {.placer = p})); };
  using enum provision_placer;
  fmt::print("  {:11} {:>8} {:>8} {:>8} {:>8} {:>8}\n", s.name, cost(exact), cost(greedy),
             cost(sia), cost(whale), cost(hph));
}

/// The sets of A6000, A30 and RTX3090 within Table I's quotas that train LLaMA-3B in 40 s an
/// iteration as Whale places them, as in the paper.
class figure2_study {
 public:
  explicit figure2_study(job_spec job)
      : job_{std::move(job)}, idle_{the_cluster()}, placer_{the_cluster(), idle_, job_} {
    const auto& all = placer_.divisions();
    const auto one = [](const division& d) { return d.pipelines == 1 && d.tensor == 1; };
    division_ = static_cast<std::size_t>(std::ranges::find_if(all, one) - all.begin());
    for (const auto& t : all[division_].types) names_.push_back(the_cluster().gpus[t.gpu].name);
  }

  void print() {
    std::uint32_t small = 0, all = 0, alike = 0;
    std::string named;
    each_set([&](const stage_counts& counts) {
      const auto p =
          place_with(provision_placer::whale, placer_, the_cluster(), division_, counts, limit_s);
      if (!p.plan || p.iteration_s > limit_s) return;
      const auto gpus = std::accumulate(counts.begin(), counts.end(), 0U);
      const auto types = std::ranges::count_if(counts, [](auto n) { return n > 0; });
      ++all;
      if (gpus > largest_named) return;
      ++small;
      alike += types == 1;
      if (is_named(counts))
        named += fmt::format("    {:24} {:>5.1f} s {:>7.4f}\n", text_of(counts), p.iteration_s,
                             p.plan->how.cost_per_hour * p.iteration_s / 3600);
    });
    fmt::print(
        "Figure 2: LLaMA-3B, sets of A6000, A30 and RTX3090 within {:.0f} s an iteration, placed "
        "as Whale does\n"
        "  paper 35, of which 2 of one type; here {} of at most {} GPUs, of which {} of one type; "
        "{} of at most 40\n"
        "  the sets that the paper names, with time and cost of an iteration:\n{}\n",
        limit_s, small, largest_named, alike, all, named);
  }

 private:
  static constexpr double limit_s = 40;
  static constexpr std::uint32_t largest_named = 8;

  std::size_t at(const std::string& type) const {
    return static_cast<std::size_t>(std::ranges::find(names_, type) - names_.begin());
  }
  stage_counts set_of(std::uint32_t a6000, std::uint32_t a30, std::uint32_t rtx3090) const {
    stage_counts counts(names_.size(), 0);
    counts[at("A6000")] = a6000, counts[at("A30")] = a30, counts[at("RTX3090")] = rtx3090;
    return counts;
  }
  template <class F>
  void each_set(F&& f) const {
    for (std::uint32_t a = 0; a <= 8; ++a)
      for (std::uint32_t b = 0; b <= 16; ++b)
        for (std::uint32_t c = 0; c <= 16; ++c)
          if (a + b + c > 0) f(set_of(a, b, c));
  }
  bool is_named(const stage_counts& counts) const {
    return counts == set_of(1, 0, 5) || counts == set_of(1, 7, 0) || counts == set_of(0, 7, 0) ||
           counts == set_of(0, 8, 0);
  }
  std::string text_of(const stage_counts& counts) const {
    std::string text;
    for (std::size_t t = 0; t < counts.size(); ++t)
      if (counts[t] > 0)
        text += fmt::format("{}{}: {}", text.empty() ? "[" : ", ", names_[t], counts[t]);
    return text + "]";
  }

  job_spec job_;
  idle_index idle_;
  stage_placer placer_;
  std::size_t division_ = 0;
  std::vector<std::string> names_;
};

/// Limits from the cheapest plan's time down to 0.95 of it, in equal ratios.
std::vector<double> limits(const job_spec& job) {
  constexpr int count = 12;
  auto free = job;
  free.limits.slo_s.reset();
  const double slowest = search(free, {}).total_s;
  std::vector<double> all;
  for (int i = 0; i < count; ++i)
    all.push_back(std::ceil(slowest * std::pow(0.95, 1 - i / (count - 1.0)) * 10) / 10);
  return all;
}

struct gap_range {
  double max = 0;
  int points = 0, none = 0;
  void add(const provision& exact, const provision& other) {
    if (!exact.plan) return;
    if (!other.plan) return void(++none);
    ++points;
    max = std::max(max, other.cost / exact.cost - 1);
  }
  std::string text() const {
    return fmt::format("{} of {} limits met, at most {:.1f} % dearer", points, points + none,
                       100 * max);
  }
};

void figure8(const study& s) {
  fmt::print("  {}\n  {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", s.name, "SLO, s", "exact", "greedy",
             "sia", "whale", "hph");
  auto job = s.job;
  gap_range greedy, sia, whale, hph;
  for (const double slo_s : limits(s.job)) {
    job.limits.slo_s = slo_s;
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

/// The search's work by the model's size: plans that were valued stand for the paper's seconds.
void figure10b(const study& s) {
  fmt::print("  {:11}", s.name);
  for (const double share : {0.5, 0.75, 1.0, 1.25, 1.5}) {
    auto job = s.job;
    job.model.layers = static_cast<std::uint32_t>(share * job.model.layers);
    job.limits.slo_s = *job.limits.slo_s * share;
    const auto p = search(job, {});
    fmt::print(" {:>4} {:>6} {:>7}", job.model.layers, p.search.valued, cost_text(p));
  }
  fmt::print("\n");
}

}  // namespace

int main() {
  const auto all = studies();
  fmt::print(
      "Table IV: the paper's plan, and the cheapest within the paper's limit (100 iterations)\n"
      "  {:11} {:>6}  {:5} {:>7} {:>9}  {}\n",
      "model", "SLO, s", "plan", "cost", "time, s", "stages in order, with their layers");
  for (const auto& s : all) table4(s);
  fmt::print("\nCost of 100 iterations within the paper's limit, by placer\n");
  fmt::print("  {:11} {:>8} {:>8} {:>8} {:>8} {:>8}\n", "model", "exact", "greedy", "sia", "whale",
             "hph");
  for (const auto& s : all) costs_by_placer(s);
  fmt::print("\n");
  figure2_study{all[1].job}.print();
  fmt::print("Figure 8: cost of 100 iterations by limit and placer\n");
  for (const auto& s : all) figure8(s);
  figure9();
  fmt::print(
      "Figure 10b: plans valued and cost by the number of layers, within as much time a layer\n");
  for (const auto& s : all) figure10b(s);
}
