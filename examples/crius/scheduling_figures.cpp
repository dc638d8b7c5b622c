// Figures 14 to 21: traces under Crius, its variants and its baselines.
#include <algorithm>
#include <map>
#include <numeric>

#include "crius/figures.hpp"
#include "planners/crius/crius.hpp"
#include "planners/policy/adaptive_plan.hpp"
#include "planners/policy/policy.hpp"
#include "studies/workload_simulation.hpp"

namespace {

using rows = std::vector<formats::trace_row>;

/// As `troupe simulate` has it for Crius' workloads: baselines' jobs run with the best parallelism
/// on the GPUs that they grant.
std::shared_ptr<const planners::policy> policy_named(const std::string& name,
                                                     std::uint32_t search_depth) {
  if (auto crius = planners::crius_variant(name)) {
    crius->search_depth = search_depth;
    return planners::make_crius(*crius);
  }
  return planners::with_adaptive_parallelism(planners::make_policy(name));
}

struct study {
  std::string cluster;
  rows trace;
  std::uint64_t seeds = 1;
  std::string workload = "crius";
};

/// Means over seeds.
struct outcome {
  double jct_min = 0, queued_min = 0, throughput = 0, peak = 0, restarts = 0;
  double failed = 0, in_time = 0;  // in_time: ended before the last submission
  double met = 0, with_deadline = 0, late = 0;
  double decision_us = 0, decision_p99_us = 0;
  std::vector<double> parts;  // cluster's samples/s, of the last seed
  double submitting = 0;      // their mean
};

/// The cluster's mean samples/s in twelve equal parts of the time until the last submission.
std::vector<double> by_part(const studies::workload_record& record, double until_s) {
  std::vector<double> speed(12, 0.0);
  const double each_s = until_s / static_cast<double>(speed.size());
  const auto& usage = record.usage();
  for (std::size_t i = 0; i + 1 < usage.size(); ++i)
    for (std::size_t p = 0; p < speed.size(); ++p) {
      const double from_s = std::max(usage[i].at_s, static_cast<double>(p) * each_s),
                   to_s = std::min(usage[i + 1].at_s, static_cast<double>(p + 1) * each_s);
      if (to_s > from_s) speed[p] += usage[i].samples_per_s * (to_s - from_s) / each_s;
    }
  return speed;
}

void add(outcome& o, const study& s, const studies::policy_result& r) {
  const double n = static_cast<double>(s.seeds);
  o.jct_min += r.average_jct_s / 60 / n, o.queued_min += r.average_queue_s / 60 / n;
  o.throughput += r.cluster_throughput_avg / n, o.peak += r.cluster_throughput_peak / n;
  o.restarts += r.restarts_per_job / n, o.failed += double(r.failed) / n;
  o.met += double(r.met_deadline) / n, o.with_deadline += double(r.with_deadline) / n;
  o.decision_us += r.decision_mean_us / n, o.decision_p99_us += r.decision_p99_us / n;
  for (const auto& [id, j] : r.record->jobs()) {
    const bool done = j.state == job_state::finished;
    o.in_time += done && j.ended_s <= s.trace.back().submit_s ? 1 / n : 0;
    const bool met = done && j.deadline_s && j.completion_s() <= *j.deadline_s;
    o.late += j.deadline_s && j.attempts > 0 && !met ? 1 / n : 0;
  }
  o.parts = by_part(*r.record, s.trace.back().submit_s);
  o.submitting = std::accumulate(o.parts.begin(), o.parts.end(), 0.0) / double(o.parts.size());
}

outcome run(const study& s, const std::string& policy,
            std::uint32_t search_depth = planners::crius_options{}.search_depth) {
  outcome o;
  const auto c = cluster_named(s.cluster);
  for (std::uint64_t seed = 1; seed <= s.seeds; ++seed) {
    add(o, s,
        must(studies::simulate({c, {}, seed, {}, {}}, workload_of(*c, s.trace, s.workload, seed),
                               policy_named(policy, search_depth))));
  }
  return o;
}

using outcomes = std::map<std::string, outcome>;

outcomes run_all(const study& s, const std::vector<std::string>& policies) {
  outcomes all;
  fmt::print("  {:16}{:>9}{:>9}{:>12}{:>9}{:>10}{:>9}{:>9}\n", "policy", "JCT", "queued",
             "samples/s", "at most", "restarts", "failed", "in time");
  for (const auto& name : policies) {
    const auto& o = all[name] = run(s, name);
    fmt::print("  {:16}{:9.1f}{:9.1f}{:12.0f}{:9.0f}{:10.2f}{:9.1f}{:9.1f}\n", name, o.jct_min,
               o.queued_min, o.throughput, o.peak, o.restarts, o.failed, o.in_time);
  }
  return all;
}

std::string change(double ours, double theirs) {
  return fmt::format("{:+.1f} %", 100 * (ours / theirs - 1));
}
std::string ratio(double ours, double theirs) {
  return fmt::format("{:.2f}", ours / theirs);
}

const std::vector<std::string> baselines{"fcfs", "gandiva", "gavel", "elasticflow-ls"};

/// Throughput against the worst and the best baseline.
std::string against_all(const outcomes& all, double outcome::*what) {
  double min = 1e300, max = 0;
  for (const auto& b : baselines)
    min = std::min(min, all.at(b).*what), max = std::max(max, all.at(b).*what);
  return fmt::format("{} to {}", ratio(all.at("crius").*what, max),
                     ratio(all.at("crius").*what, min));
}

void compare_variants(const std::string& where, const outcomes& all) {
  const auto& crius = all.at("crius");
  const struct {
    const char *name, *jct, *throughput, *peak;
  } paper[] = {{"crius-na", "2.54", "-13.6 %", "-14.1 %"},
               {"crius-nh", "3.53", "-17.3 %", "-17.7 %"}};
  for (const auto& p : paper) {
    const auto& o = all.at(p.name);
    const auto what = fmt::format("20: {}, {}: ", p.name, where);
    compared.push_back({what + "JCT / Crius'", p.jct, ratio(o.jct_min, crius.jct_min),
                        "other jobs: the paper's sizes and types are drawn at random"});
    compared.push_back({what + "throughput, peak", fmt::format("{}, {}", p.throughput, p.peak),
                        change(o.throughput, crius.throughput) + ", " + change(o.peak, crius.peak),
                        "same"});
  }
}

}  // namespace

rows superposed(const rows& trace, std::uint32_t copies, double hours) {
  rows all;
  for (std::uint32_t i = 0; i < copies; ++i)
    for (auto row : trace) {
      row.job_id += fmt::format("-{}", i);
      row.submit_s += i * hours * 3600 / copies;
      if (row.submit_s >= hours * 3600) row.submit_s -= hours * 3600;
      all.push_back(std::move(row));
    }
  std::ranges::stable_sort(all, {}, &formats::trace_row::submit_s);
  return all;
}

void figure14(const extent& e) {
  const study s{"crius-testbed", trace_named("philly-6h"), e.seeds};
  fmt::print(
      "\nFigure 14: {} jobs on 32 A40 and 32 A10, means of {} seeds. JCT and queueing in minutes; "
      "throughput of the\ncluster; in time: ended before the last was submitted\n\n",
      s.trace.size(), s.seeds);
  const auto all = run_all(s, {"crius", "fcfs", "gandiva", "gavel", "elasticflow-ls"});
  const auto& crius = all.at("crius");
  const std::map<std::string, std::string> why{
      {"fcfs", "it never changes a request, and fails what does not fit"},
      {"gandiva", "it places blindly; the spread over seeds is wide"},
      {"gavel", ""},
      {"elasticflow-ls", "it gives a job up to four times its GPUs (docs/papers/crius.md)"}};
  for (const auto& b : baselines)
    compared.push_back({"14a: JCT against " + b, "up to -48.9 %",
                        change(crius.jct_min, all.at(b).jct_min), why.at(b)});
  compared.push_back({"14b: queueing against fcfs", "up to -71.0 %",
                      change(crius.queued_min, all.at("fcfs").queued_min), ""});
  compared.push_back({"14b: queueing against elasticflow-ls", "up to -71.0 %",
                      change(crius.queued_min, all.at("elasticflow-ls").queued_min),
                      "here it knows the fewest GPUs that hold a model"});
  compared.push_back({"14c: throughput against the best and the worst", "up to 1.49",
                      against_all(all, &outcome::throughput), ""});
  compared.push_back({"14c: peak throughput, the same", "up to 1.36",
                      against_all(all, &outcome::peak), "not examined"});
}

void figures16_17_and20(const std::string& what, const rows& trace) {
  const study s{"crius-sim", trace};
  fmt::print("\nFigures 17 and 20: 1,280 GPUs, {}: {} jobs, seed 1\n\n", what, trace.size());
  const auto all =
      run_all(s, {"crius", "fcfs", "gandiva", "gavel", "elasticflow-ls", "crius-na", "crius-nh"});
  fmt::print(
      "\nFigure 16: samples/s of the cluster, in twelve equal parts of the time of "
      "submissions\n\n");
  for (const auto& b : {"crius", "fcfs", "gandiva", "gavel", "elasticflow-ls"}) {
    fmt::print("  {:16}", b);
    for (const double x : all.at(b).parts) fmt::print("{:7.0f}", x);
    fmt::print("\n");
  }
  const auto& crius = all.at("crius");
  const auto prefix = fmt::format("17, {}: ", what);
  const std::map<std::string, std::string> paper{{"fcfs", "-81.3 %"},
                                                 {"gandiva", "-80.1 %"},
                                                 {"gavel", "-66.4 %"},
                                                 {"elasticflow-ls", "-75.8 %"}};
  for (const auto& b : baselines)
    compared.push_back({prefix + "JCT against " + b, paper.at(b),
                        change(crius.jct_min, all.at(b).jct_min), "another load"});
  compared.push_back({prefix + "jobs ended, of the baselines'", "up to 1.29",
                      against_all(all, &outcome::in_time), "same; until the last submission"});
  compared.push_back({prefix + "throughput, until the last submission", "up to 1.54",
                      against_all(all, &outcome::submitting), "same"});
  compared.push_back({prefix + "throughput, until the last end", "",
                      against_all(all, &outcome::throughput),
                      "elasticflow-ls gives the last jobs more GPUs"});
  compared.push_back(
      {prefix + "peak throughput", "up to 1.57", against_all(all, &outcome::peak), "same"});
  compared.push_back(
      {prefix + "restarts a job", "2.29", fmt::format("{:.2f}", crius.restarts), "same"});
  compare_variants(what, all);
}

void figure19(const extent& e) {
  const study s{"crius-testbed", trace_named("philly-6h"), e.seeds, "crius-deadlines"};
  fmt::print(
      "\nFigure 19: deadlines of 0.5 to 1.5 times the duration, the same trace and cluster, means "
      "of {} seeds\n\n  {:16}{:>9}{:>9}{:>9}{:>12}{:>9}\n",
      s.seeds, "policy", "met, %", "late", "JCT", "samples/s", "at most");
  outcomes all;
  for (const auto* name : {"crius-ddl", "elasticflow"}) {
    const auto& o = all[name] = run(s, name);
    fmt::print("  {:16}{:9.1f}{:9.1f}{:9.1f}{:12.0f}{:9.0f}\n", name, 100 * o.met / o.with_deadline,
               o.late, o.jct_min, o.throughput, o.peak);
  }
  const auto &ddl = all["crius-ddl"], &ef = all["elasticflow"];
  const std::string why = "the paper's deadlines are not published";
  compared.push_back({"19: deadlines met / ElasticFlow's", "1.69", ratio(ddl.met, ef.met), why});
  compared.push_back({"19: jobs that began and missed theirs", "none (guaranteed)",
                      fmt::format("{:g}; ElasticFlow {:.1f}", ddl.late, ef.late), ""});
  compared.push_back({"19: JCT of what ends", "-33.1 %", change(ddl.jct_min, ef.jct_min), why});
  compared.push_back({"19: throughput, peak / ElasticFlow's", "1.72, 1.96",
                      ratio(ddl.throughput, ef.throughput) + ", " + ratio(ddl.peak, ef.peak), why});
}

void figure20(const extent& e) {
  const study s{"crius-testbed", trace_named("philly-6h"), e.seeds};
  fmt::print("\nFigure 20 on the testbed, means of {} seeds\n\n", s.seeds);
  compare_variants("testbed", run_all(s, {"crius", "crius-na", "crius-nh"}));
}

void figure21(const extent& e) {
  study s{"crius-testbed", trace_named("philly-6h"), e.seeds};
  constexpr double denser = 6;
  for (auto& row : s.trace) row.submit_s /= denser;
  fmt::print(
      "\nFigure 21: search depth, arrivals {:g} times as dense on the testbed, means of {} "
      "seeds\n\n  {:>6}{:>9}{:>9}{:>12}{:>10}\n",
      denser, s.seeds, "depth", "JCT", "queued", "samples/s", "restarts");
  std::vector<outcome> all;
  for (std::uint32_t depth = 1; depth <= 6; ++depth) {
    const auto& o = all.emplace_back(run(s, "crius", depth));
    fmt::print("  {:6}{:9.1f}{:9.1f}{:12.1f}{:10.2f}\n", depth, o.jct_min, o.queued_min,
               o.throughput, o.restarts);
    fmt::print(stderr, "Figure 21a: depth {}: a decision takes {:.0f} us, 99th percentile {:.0f}\n",
               depth, o.decision_us, o.decision_p99_us);
  }
  const auto &one = all.front(), &six = all.back();
  compared.push_back({"21a: time of a decision, depth 1 to 6", "0.88 to 5.98 s",
                      "on standard error", "wall clock; estimates are not measured then"});
  compared.push_back({"21b: JCT, depth 6 against 1", "-14.6 %", change(six.jct_min, one.jct_min),
                      "deeper choices restart more jobs"});
  compared.push_back(
      {"21c: throughput, the same", "+1.03 %", change(six.throughput, one.throughput), "same"});
}
