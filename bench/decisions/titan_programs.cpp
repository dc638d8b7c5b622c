#include "titan_programs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "formats/load/load.hpp"
#include "formats/traces/generate.hpp"
#include "formats/traces/workload.hpp"
#include "harness/clock.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/statistics.hpp"
#include "planners/plans/trace_duration.hpp"
#include "planners/solver/linear_program.hpp"
#include "planners/titan/titan.hpp"
#include "planners/titan/tuning_problem.hpp"

namespace troupe::bench {
namespace {

using namespace planners;

constexpr double hours = 8;
constexpr int plain_every = 10;  // instances: the plain program takes longer

/// The paper's for (1) on one virtual CPU, and ours with candidates.
struct limits_of_part {
  double mean_ms, max_ms, gap;
};
constexpr limits_of_part without_candidates{5, 160, 0}, with_candidates{40, 1000, 1e-4};

/// A cluster without work, and the jobs of a seed, all waiting.
class instances {
 public:
  static expected<instances> make() {
    auto c = formats::load_cluster(formats::configs_directory() / "clusters" / "titan.yaml");
    if (!c) return refuse(c.error());
    return instances{std::move(*c)};
  }

  expected<void> wait(std::uint64_t seed) {
    formats::titan_workload w;
    w.hours = hours;
    w.seed = seed;
    const auto seconds = [this](const job_spec& j, std::uint32_t gpus) {
      return reference_iteration_s(*cluster_, j, gpus);
    };
    auto jobs = formats::assign(formats::make_titan_trace(w), "titan", seed, *cluster_, seconds);
    if (!jobs) return refuse(jobs.error());
    waiting_.clear();
    for (auto& j : *jobs) {
      planning_budget budget;
      auto plans = policy_->plans_of(*cluster_, j.spec, budget);
      if (!plans) return refuse(plans.error());
      job_view v;
      v.id = waiting_.size() + 1;
      v.submitted_s = j.at_s;
      v.plans = std::make_shared<const std::vector<plan>>(std::move(*plans));
      v.spec = std::make_shared<const job_spec>(std::move(j.spec));
      waiting_.emplace(v.id, std::move(v));
    }
    return {};
  }

  /// (1) has no weights.
  titan_problem problem(bool merges) const {
    titan_options o;
    o.merges = merges;
    o.aging_s = 0;
    const idle_index idle{*cluster_};
    const job_views running;
    return make_tuning_problem({hours * 3600, *cluster_, idle, waiting_, running}, idle, o,
                               *tables_)
        .program;
  }

 private:
  explicit instances(cluster c) : cluster_{std::make_unique<cluster>(std::move(c))} {}

  std::unique_ptr<cluster> cluster_;
  std::unique_ptr<policy> policy_ = make_titan(titan_options{});
  std::unique_ptr<tuning_tables> tables_ = std::make_unique<tuning_tables>(nullptr);
  job_views waiting_;
};

/// The program as a user of CBC would write it: a row a job and one for all GPUs (11), without the
/// relaxation's answer, without a first solution.
double plain_objective(const titan_problem& p, const titan_limits& limits) {
  double largest = 0, gpus = 0;
  for (const auto& c : p.columns) largest = std::max(largest, c.value);
  for (const auto& pool : p.pools)
    for (const auto idle : pool.idle) gpus += idle;
  linear_program all;
  for (std::uint32_t job = 0; job < p.jobs; ++job) all.add_row(-linear_program::infinite, 1);
  const auto capacity = all.add_row(-linear_program::infinite, gpus);
  for (const auto& c : p.columns) {
    std::vector<linear_program::entry> entries;
    for (const auto job : c.jobs) entries.push_back({job, 1});
    entries.push_back({capacity, static_cast<double>(c.gpus)});
    all.add_column(std::move(entries), -c.value / largest, 1);
  }
  search_limits l;
  l.relative_gap = limits.gap;
  l.max_nodes = limits.max_nodes;
  l.min_improvement = 1e-12;
  const auto found = linear_solver::of(all, true)->search(l);
  double objective = 0;
  for (std::size_t c = 0; found && c < p.columns.size(); ++c)
    if (found->x[c] > 0.5) objective += p.columns[c].value;
  return objective;
}

/// One part of the bench: the programs of one kind.
struct part {
  const char* name;
  bool merges;
  limits_of_part limits;
  std::vector<double> ms{}, plain_ms{}, beside_plain_ms{}, columns{};
  double gap_max = 0;
  double lost_max = 0;  // share of the plain program's objective; negative: it is smaller

  void solve(const titan_problem& p, bool plain) {
    const titan_limits l;
    const double begin_s = clock_s(CLOCK_MONOTONIC);
    const auto answer = solve_titan(p, l);
    ms.push_back(1e3 * (clock_s(CLOCK_MONOTONIC) - begin_s));
    columns.push_back(static_cast<double>(p.columns.size()));
    gap_max = std::max(gap_max, answer.gap());
    if (!plain) return;
    const double plain_s = clock_s(CLOCK_MONOTONIC);
    const double objective = plain_objective(p, l);
    plain_ms.push_back(1e3 * (clock_s(CLOCK_MONOTONIC) - plain_s));
    beside_plain_ms.push_back(ms.back());
    const double lost = 1 - answer.objective / objective;
    lost_max = plain_ms.size() == 1 ? lost : std::max(lost_max, lost);
  }

  double mean_ms() const { return statistics::mean(ms); }
  double max_ms() const { return statistics::quantile(ms, 1); }
  double ratio() const { return statistics::mean(plain_ms) / statistics::mean(beside_plain_ms); }
  bool holds() const {
    return mean_ms() <= limits.mean_ms && max_ms() <= limits.max_ms && gap_max <= limits.gap;
  }

  nlohmann::ordered_json json() const {
    return {
        {"columns_mean", statistics::mean(columns)},
        {"mean_ms", mean_ms()},
        {"max_ms", max_ms()},
        {"gap_max", gap_max},
        {"limits", {{"mean_ms", limits.mean_ms}, {"max_ms", limits.max_ms}, {"gap", limits.gap}}},
        {"plain_cbc_mean_ms", statistics::mean(plain_ms)},
        {"plain_cbc_ratio", ratio()},
        {"lost_against_plain_max", lost_max},
        {"holds", holds()}};
  }
};

void print_table(const std::vector<part>& parts, int count) {
  fmt::print(
      "{} instances of 320 jobs of TITAN's workload that wait for 64 GPUs. Plain CBC on every {}th "
      "of\n"
      "them; lost: of its objective, at most\n\n"
      "{:<18}{:>9}{:>19}{:>19}{:>19}{:>11}{:>9}{:>10}  holds\n",
      count, plain_every, "", "columns", "mean ms / limit", "max ms / limit", "gap max / limit",
      "CBC ms", "ratio", "lost");
  for (const auto& p : parts)
    fmt::print("{:<18}{:>9.0f}{:>19}{:>19}{:>19}{:>11.1f}{:>9.1f}{:>10.1e}  {}\n", p.name,
               statistics::mean(p.columns),
               fmt::format("{:.2f} / {:g}", p.mean_ms(), p.limits.mean_ms),
               fmt::format("{:.1f} / {:g}", p.max_ms(), p.limits.max_ms),
               fmt::format("{:.1e} / {:g}", p.gap_max, p.limits.gap), statistics::mean(p.plain_ms),
               p.ratio(), p.lost_max, p.holds() ? "yes" : "NO");
}

struct titan_arguments {
  int instances = 100;
  bool json = false, check = false;
};

expected<titan_arguments> parse(int count, char** words) {
  titan_arguments a;
  for (int i = 0; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--json")
      a.json = true;
    else if (word == "--check")
      a.check = true;
    else if (const int n = std::atoi(word.c_str()); n > 0)
      a.instances = n;
    else
      return refuse(reason::kind::invalid,
                    "titan: found '{}', expected a number of instances, --json or --check", word);
  }
  return a;
}

expected<std::vector<part>> measured(int count) {
  auto all = instances::make();
  if (!all) return refuse(all.error());
  std::vector<part> parts{{"(1)", false, without_candidates},
                          {"with candidates", true, with_candidates}};
  for (int i = 0; i < count; ++i) {
    if (const auto ok = all->wait(static_cast<std::uint64_t>(i) + 1); !ok)
      return refuse(ok.error());
    for (auto& p : parts) p.solve(all->problem(p.merges), i % plain_every == 0);
  }
  return parts;
}

int refused(const reason& why) {
  fmt::print(stderr, "{}\n", why.text);
  return 2;
}

}  // namespace

int time_titan_programs(int count, char** arguments) {
  const auto a = parse(count, arguments);
  if (!a) return refused(a.error());
  const auto parts = measured(a->instances);
  if (!parts) return refused(parts.error());
  const bool holds = std::ranges::all_of(*parts, &part::holds);
  if (a->json)
    fmt::print("{}\n", nlohmann::ordered_json{{"kind", "titan_programs"},
                                              {"instances", a->instances},
                                              {"jobs", 320},
                                              {"gpus", 64},
                                              {"equation_1", parts->at(0).json()},
                                              {"with_candidates", parts->at(1).json()},
                                              {"holds", holds}}
                           .dump(2));
  else
    print_table(*parts, a->instances);
  return a->check && !holds ? 1 : 0;
}

}  // namespace troupe::bench
