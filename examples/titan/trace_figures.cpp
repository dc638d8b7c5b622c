// Tables 3 and 4 and Figure 5: TITAN's workload under TITAN, its variants and its baselines.
#include <algorithm>
#include <array>
#include <cmath>

#include "studies/completion_shares.hpp"
#include "titan/figures.hpp"

namespace {

struct row_of_table3 {
  contestant who;
  double jct_h, makespan_h;  // the paper's
  const char* why;
};

const std::array<row_of_table3, 5> table3_rows{{
    {{"srtf"}, 1.68, 33.09, "the durations are chosen so"},
    {{"tiresias"}, 1.67, 33.09, "each preemption costs a start; its thresholds are ours"},
    {{"titan-no-merger"}, 1.23, 33.11, ""},
    {{"titan-no-switch"}, 1.16, 29.01, ""},
    {{"titan"}, 1.04, 29.01, ""},
}};
const contestant titan{"titan"}, srtf{"srtf"};
constexpr std::array densities{0.5, 1.0, 1.5, 2.0};

double jct_h(const one_run& r) {
  return r.jct_h;
}
double makespan_h(const one_run& r) {
  return r.makespan_h;
}
double ratio(double ours, double theirs) {
  return ours / theirs;
}
std::string change(double by) {
  return fmt::format("{:+.0f} %", 100 * (by - 1));
}

/// Jobs whose JCT is at least 10 % shorter, or longer, than under SRTF.
studies::completion_shares mean_shares(runs& all, const contestant& who, double density,
                                       std::uint64_t seeds) {
  studies::completion_shares sum;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto s = studies::compare_completions(*all.of(who, density, seed).record,
                                                *all.of(srtf, density, seed).record)
                       .value();
    sum.better += s.better / static_cast<double>(seeds);
    sum.worse += s.worse / static_cast<double>(seeds);
  }
  return sum;
}

void print_row3(runs& all, const extent& e, const row_of_table3& row) {
  const auto mean = [&](auto what) { return all.mean(row.who, 1, e.seeds, what); };
  fmt::print("  {:18}{:7.2f}{:7.2f}{:9.2f}{:10.2f}{:9.2f}{:9.1f}{:9.1f}{:9.1f}{:10.1f}\n",
             row.who.name, row.jct_h, mean(jct_h),
             mean([](const one_run& r) { return r.queued_h; }), row.makespan_h, mean(makespan_h),
             mean([](const one_run& r) { return r.unions; }),
             mean([](const one_run& r) { return r.merged_jobs; }),
             mean([](const one_run& r) { return r.followers; }),
             mean([](const one_run& r) { return r.start_s; }));
}

void print_programs(const runs& all) {
  for (const auto* name : {"titan-no-merger", "titan"}) {
    const auto& p = all.programs_of(name);
    fmt::print("  {}: {} programs, gap at most {:.1e}\n", name, p.count, p.gap_max);
    fmt::print(stderr, "{}: {} programs in {:.2f} ms on average, {:.0f} ms at most\n", name,
               p.count, p.sum_ms / static_cast<double>(p.count), p.max_ms);
  }
}

}  // namespace

void table3(runs& all, const extent& e) {
  fmt::print(
      "\nTable 3: 320 jobs in 8 hours on 64 V100, means of {} seeds. JCT, queueing and makespan in "
      "hours;\n"
      "unions, their jobs, jobs that followed another on its GPUs, and seconds of a start\n\n"
      "  {:18}{:>14}{:>9}{:>19}{:>9}{:>9}{:>9}{:>10}\n"
      "  {:18}{:>7}{:>7}{:>9}{:>10}{:>9}\n",
      e.seeds, "policy", "JCT", "queued", "makespan", "unions", "merged", "followed", "start", "",
      "paper", "here", "here", "paper", "here");
  std::size_t jobs = 0, finished = 0;
  for (const auto& row : table3_rows) {
    print_row3(all, e, row);
    const double here = all.mean(row.who, 1, e.seeds, jct_h);
    compared.push_back({"Table 3: mean JCT, " + row.who.name, fmt::format("{:.2f} h", row.jct_h),
                        fmt::format("{:.2f} h", here), row.why});
    for (std::uint64_t seed = 1; seed <= e.seeds; ++seed) {
      jobs += all.of(row.who, 1, seed).jobs;
      finished += all.of(row.who, 1, seed).finished;
    }
  }
  fmt::print("\n  finished: {} of {} jobs\n", finished, jobs);
  print_programs(all);
  const auto against = [&](const char* other, auto what) {
    return ratio(all.mean(titan, 1, e.seeds, what), all.mean({other}, 1, e.seeds, what));
  };
  compared.push_back(
      {"Table 3: JCT, titan against srtf", "-38 %", change(against("srtf", jct_h)), ""});
  compared.push_back(
      {"Table 3: the merger's part", "-15 %", change(against("titan-no-merger", jct_h)), ""});
  compared.push_back(
      {"Table 3: the switch's part", "-10 %", change(against("titan-no-switch", jct_h)), ""});
  compared.push_back({"Table 3: makespan, titan against srtf", "-12 %",
                      change(against("srtf", makespan_h)),
                      "(5) values long jobs least; FMTrace's longest are not known"});
  compared.push_back({"Table 3: makespan, against no merger", "-12 %",
                      change(against("titan-no-merger", makespan_h)), ""});
}

void figure5_and_table4(runs& all, const extent& e) {
  const struct { double better, worse; } paper[] = {{18, 6}, {19, 8}, {20, 7}, {19, 11}};
  fmt::print(
      "\nFigure 5 and Table 4: 320 jobs times the density, means of {} seed{}. JCT in hours; % of "
      "jobs whose\n"
      "JCT is at least 10 % shorter, and longer, than under srtf\n\n  {:>7}",
      e.seeds_by_density, e.seeds_by_density == 1 ? "" : "s", "density");
  for (const auto& row : table3_rows) fmt::print("{:>17}", row.who.name);
  fmt::print("{:>10}{:>8}\n", "shorter", "longer");
  std::string ours, theirs;
  std::vector<double> gaps;
  for (std::size_t i = 0; i < densities.size(); ++i) {
    fmt::print("  {:7.1f}", densities[i]);
    for (const auto& row : table3_rows)
      fmt::print("{:17.2f}", all.mean(row.who, densities[i], e.seeds_by_density, jct_h));
    const auto s = mean_shares(all, titan, densities[i], e.seeds_by_density);
    fmt::print("{:10.0f}{:8.0f}\n", 100 * s.better, 100 * s.worse);
    const auto* comma = i == 0 ? "" : ", ";
    theirs += fmt::format("{}{}/{}", comma, paper[i].better, paper[i].worse);
    ours += fmt::format("{}{:.0f}/{:.0f}", comma, 100 * s.better, 100 * s.worse);
    gaps.push_back(all.mean(srtf, densities[i], e.seeds_by_density, jct_h) -
                   all.mean(titan, densities[i], e.seeds_by_density, jct_h));
  }
  compared.push_back({"5: srtf's JCT less titan's, densities 0.5 to 2", "grows",
                      fmt::format("{:.2f} to {:.2f} h", gaps.front(), gaps.back()), ""});
  compared.push_back({"Table 4: jobs that gain / lose 10 %, in %", theirs, ours,
                      "here most jobs get other GPUs than they asked for"});
}

void sensitivity(runs& all, const extent& e) {
  const std::array<contestant, 4> variants{{
      {"titan"},
      {"titan, at most twice the request",
       [](planners::titan_options& o) { o.max_request_factor = 2; }},
      {"titan, q = 2", [](planners::titan_options& o) { o.rules.merge_exponent = 2; }},
      {"titan, samples add up", [](planners::titan_options& o) { o.rules.merge_exponent = 1; }},
  }};
  fmt::print(
      "\nWhat the gain depends on, means of {} seeds: q is the exponent of the samples that a "
      "union needs,\n"
      "1 where they add up; JCT over srtf's\n\n  {:34}{:>9}{:>9}{:>9}{:>9}\n",
      e.seeds, "", "JCT, h", "/ srtf", "unions", "shorter");
  const double base = all.mean(srtf, 1, e.seeds, jct_h);
  for (const auto& v : variants) {
    const double here = all.mean(v, 1, e.seeds, jct_h);
    const double unions = all.mean(v, 1, e.seeds, [](const one_run& r) { return r.unions; });
    const auto s = mean_shares(all, v, 1, e.seeds);
    fmt::print("  {:34}{:9.2f}{:9.2f}{:9.1f}{:7.0f} %\n", v.name, here, ratio(here, base), unions,
               100 * s.better);
    if (v.change)
      compared.push_back(
          {"ours: JCT / srtf's, " + v.name, "", fmt::format("{:.2f}", here / base), ""});
  }
}
