#include "cli/reports/comparison.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <variant>

#include "cli/output/human.hpp"
#include "cli/output/progress.hpp"
#include "cli/output/table.hpp"
#include "cli/reports/against.hpp"
#include "cli/reports/reference_times.hpp"
#include "cli/reports/unions.hpp"
#include "cli/reports/usage_picture.hpp"
#include "formats/load/load.hpp"
#include "formats/traces/replay.hpp"
#include "formats/traces/workload.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/plans/trace_duration.hpp"
#include "planners/policy/adaptive_plan.hpp"
#include "planners/policy/replayed_jobs.hpp"

namespace troupe::cli {

namespace {

using studies::policy_result;

/// Seconds that the job would take as its user asked for it, without its start.
// The unit of normalized throughput: a job's work is the time that its user's request would take,
// whatever plan a policy gives it.
double own_s(const comparison& c, const job_spec& spec, reference_times& reference) {
  const auto iterations = static_cast<double>(spec.iterations);
  if (!c.times) return reference(spec, spec.request.gpus) * iterations;
  const auto at = c.times->find(spec.name);
  if (at == c.times->end() || at->second.times.empty()) return never;
  const auto& best = *std::ranges::min_element(at->second.times, {}, &replayed_time::iteration_s);
  return best.iteration_s * iterations;
}

/// Work that was finished, in seconds of what the trace's users asked for, a second: how many jobs
/// ran at their own speed at a time.
double normalized_throughput(const comparison& c, const policy_result& r) {
  double work_s = 0;
  reference_times reference{c.on};
  auto at = c.workload.begin();
  for (const auto& [id, j] : r.record->jobs()) {
    // Jobs are numbered in the order of their arrival.
    if (at == c.workload.end()) break;
    const auto& spec = (at++)->spec;
    // Work of jobs that failed is lost, so it does not count.
    if (j.state != job_state::finished) continue;
    if (const double s = own_s(c, spec, reference); s < never) work_s += s;
  }
  return r.makespan_s > 0 ? work_s / r.makespan_s : 0;
}

/// Limits of the failures that are printed: in the table's notes, and in a document.
constexpr std::size_t noted_failures = 3, listed_failures = 100;

const std::map<job_id, std::string>& failures_of(const comparison& c, const policy_result& r) {
  static const std::map<job_id, std::string> none;
  // Results and failures are parallel lists; figures are asked for by the result.
  const auto i = static_cast<std::size_t>(&r - c.results.data());
  return i < c.failures.size() ? c.failures[i] : none;
}

json failures_row(const comparison& c, const policy_result& r) {
  json rows = json::array();
  for (const auto& [id, why] : failures_of(c, r)) {
    if (rows.size() == listed_failures) break;
    rows.push_back({{"job", r.record->jobs().at(id).name}, {"reason", why}});
  }
  return rows;
}

/// A sentence as a field of a CSV file.
// Reasons have commas and quotes; RFC 4180 doubles the quotes.
std::string csv_sentence(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string{c == '\n' ? ' ' : c};
  return out + '"';
}

std::string jobs_csv(const comparison& of, const policy_result& r) {
  const auto& c = of.on;
  const auto& failures = failures_of(of, r);
  std::string text =
      "job,name,state,submit_s,start_s,end_s,held_s,gpu_seconds,attempts,out_of_memory,data_"
      "parallel,"
      "tensor_parallel,nodes,reason,merged_with\n";
  for (const auto& [id, j] : r.record->jobs()) {
    std::string nodes;
    for (const auto n : j.nodes) nodes += (nodes.empty() ? "" : " ") + c.nodes[n].name;
    const auto why = failures.find(id);
    text += fmt::format("{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{},{},{},{},{},{},{}\n", j.job,
                        j.name, to_string(j.state), j.submitted_s, j.started_s, j.ended_s, j.held_s,
                        j.gpu_seconds, j.attempts, j.out_of_memory, j.how.data_parallel,
                        j.how.tensor_parallel, nodes,
                        why == failures.end() ? std::string{} : csv_sentence(why->second),
                        fmt::join(j.merged_with, ";"));
  }
  return text;
}

std::string usage_csv(const policy_result& r) {
  std::string text = "at_s,gpus_held,jobs_waiting\n";
  for (const auto& p : r.record->usage())
    text += fmt::format("{:.3f},{},{}\n", p.at_s, p.gpus_held, p.jobs_waiting);
  return text;
}

/// For jobs whose times are given: what they take is not to include messages.
cluster with_instant_messages(cluster c) {
  for (auto& n : c.nodes) {
    n.inter.gbps = std::numeric_limits<double>::infinity();
    n.inter.latency_us = 0;
  }
  return c;
}

/// Below the table: the first jobs that failed under each policy, and why.
std::string failure_notes(const comparison& c) {
  table t{{"policy", "failed job", "reason"}};
  for (const auto& r : c.results) {
    const auto& failures = failures_of(c, r);
    std::size_t noted = 0;
    for (const auto& [id, why] : failures) {
      if (noted++ == noted_failures) break;
      t.row({r.policy, r.record->jobs().at(id).name, why});
    }
    if (failures.size() > noted_failures)
      t.row({r.policy, fmt::format("{} more", failures.size() - noted_failures), ""});
  }
  return t.empty() ? "" : "\n" + t.text(terminal_columns());
}

struct replayed {
  policy_result result;
  std::map<job_id, std::string> failures;
};

expected<replayed> replay_one(const comparison& c, const std::shared_ptr<const planners::policy>& p,
                              const fault_plan& faults) {
  const auto on = std::make_shared<const cluster>(c.times ? with_instant_messages(c.on) : c.on);
  studies::simulation_options o{on, {}, c.seed, faults, {}};
  work_progress progress;
  o.progress = [&](std::size_t ended, std::size_t all, double at_s) {
    progress.show(
        fmt::format("{}: {} of {} jobs ended, day {:.1f}", p->name(), ended, all, at_s / 86400),
        static_cast<double>(ended) / static_cast<double>(std::max<std::size_t>(all, 1)));
  };
  std::map<job_id, std::string> failures;
  // The record keeps figures only; the sentences are in the journal's entries.
  o.on_entry = [&failures](const journal_entry& e) {
    const auto* end = std::get_if<job_ended>(&e);
    if (end && end->final_state == job_state::failed) failures[end->job] = end->detail;
  };
  auto r =
      studies::simulate(o, c.workload, c.times ? planners::with_replayed_times(p, c.times) : p);
  progress.clear();
  if (!r) return refuse(r.error());
  return replayed{std::move(*r), std::move(failures)};
}

// The words of the table and the document.
constexpr const char *without_pipelines = "data x tensor", *with_all = "data x tensor x pipeline";

bool has_pipelines(const comparison& c, const policy_result& r) {
  const auto i = static_cast<std::size_t>(&r - c.results.data());
  return i < c.has_pipelines.size() && c.has_pipelines[i];
}

/// Null where jobs' times are given, whatever their plans.
// A comparison is fair only within one plan space, so each row names its own.
json plan_space(const comparison& c, const policy_result& r) {
  if (c.times) return {};
  return has_pipelines(c, r) ? with_all : without_pipelines;
}

/// The figures in the plan space that all have; null if it was not asked.
json with_pipelines_row(const comparison& c, const policy_result& r) {
  const auto at = c.with_pipelines.find(r.policy);
  if (c.times || (at == c.with_pipelines.end() && !has_pipelines(c, r))) return {};
  const auto& x = at == c.with_pipelines.end() ? r : at->second;
  return {{"average_jct_s", x.average_jct_s},
          {"p99_jct_s", x.p99_jct_s},
          {"restarts_per_job", x.restarts_per_job}};
}

}  // namespace

expected<void> replay(comparison& c, const policy_list& policies, const fault_plan& faults) {
  for (const auto& p : policies) {
    if (c.log) *c.log = {};
    auto r = replay_one(c, p, faults);
    if (!r) return refuse(r.error());
    c.results.push_back(std::move(r->result));
    c.has_pipelines.push_back(plans_pipelines(*p, c.workload_name, c.parallelism));
    c.failures.push_back(std::move(r->failures));
    c.solved.push_back(c.log ? *c.log : studies::solve_log{});
  }
  return {};
}

// Only if a policy of the list plans pipelines by itself: the others are replayed once more with
// plans of the same space, which is the comparison that isolates the decisions.
expected<void> replay_with_pipelines(comparison& c, const policy_list& policies,
                                     const fault_plan& faults) {
  const auto mine = [&](const auto& p) {
    return plans_pipelines(*p, c.workload_name, c.parallelism);
  };
  if (c.times || std::ranges::none_of(policies, mine)) return {};
  for (const auto& p : policies) {
    if (mine(p)) continue;
    auto r = replay_one(c, planners::with_adaptive_parallelism(p), faults);
    if (!r) return refuse(r.error());
    c.with_pipelines.insert_or_assign(std::string{p->name()}, std::move(r->result));
  }
  return {};
}

json row_of(const comparison& c, std::size_t policy) {
  const auto& r = c.results[policy];
  json row{{"policy", r.policy},
           {"finished", r.finished},
           {"failed", r.failed},
           {"average_jct_s", r.average_jct_s},
           {"p50_jct_s", r.p50_jct_s},
           {"p99_jct_s", r.p99_jct_s},
           {"average_queue_s", r.average_queue_s},
           {"makespan_s", r.makespan_s},
           {"average_throughput", r.average_throughput},
           {"gpu_utilization", r.gpu_utilization},
           {"restarts_per_job", r.restarts_per_job},
           {"oom_failures", r.oom_failures},
           {"cluster_throughput_avg", r.cluster_throughput_avg},
           {"cluster_throughput_peak", r.cluster_throughput_peak},
           {"normalized_throughput_avg", normalized_throughput(c, r)},
           {"deadline_ratio", r.with_deadline > 0 ? json(static_cast<double>(r.met_deadline) /
                                                         static_cast<double>(r.with_deadline))
                                                  : json()},
           {"dropped", r.dropped},
           {"moves", r.moves},
           {"scale_ups", r.scale_ups},
           {"scale_downs", r.scale_downs},
           {"suspended", r.suspended},
           {"lost_iterations", r.lost_iterations},
           {"decision_us",
            {{"mean", r.decision_mean_us}, {"p99", r.decision_p99_us}, {"max", r.decision_max_us}}},
           {"plan_space", plan_space(c, r)},
           {"with_pipelines", with_pipelines_row(c, r)},
           // A string: JSON's numbers are doubles to most readers.
           {"fingerprint", fmt::format("{:016x}", r.fingerprint)},
           {"wall_s", r.wall_s},
           {"failures", failures_row(c, r)}};
  row.update(unions_row(c, r));
  row.update(against_row(c, r));
  return row;
}

json document_of(const comparison& c) {
  json document{{"cluster", c.on.name},
                {"jobs", c.workload.size()},
                {"workload", c.workload_name},
                {"invented_models", c.invented},
                {"seed", c.seed},
                {"against", c.against.empty() ? json() : json(c.against)},
                {"policies", json::array()}};
  for (std::size_t p = 0; p < c.results.size(); ++p) document["policies"].push_back(row_of(c, p));
  return document;
}

std::string table_of(const comparison& c) {
  table t{{"policy", "finished", "failed", "avg JCT", "p50", "p99", "queued", "makespan",
           "samples/s", "GPU use", "restarts", "OOM", "decision us", "fingerprint", "wall"}};
  for (const auto& r : c.results)
    t.row({r.policy, fmt::to_string(r.finished), fmt::to_string(r.failed),
           duration_text(r.average_jct_s), duration_text(r.p50_jct_s), duration_text(r.p99_jct_s),
           duration_text(r.average_queue_s), duration_text(r.makespan_s),
           fmt::format("{:.1f}", r.average_throughput),
           fmt::format("{:.0f} %", 100 * r.gpu_utilization),
           fmt::format("{:.2f}", r.restarts_per_job), fmt::to_string(r.oom_failures),
           fmt::format("{:.1f}", r.decision_mean_us), fmt::format("{:016x}", r.fingerprint),
           duration_text(r.wall_s)});
  std::vector<json> rows;
  for (std::size_t p = 0; p < c.results.size(); ++p) rows.push_back(row_of(c, p));
  return t.text(terminal_columns()) + plan_spaces_table(rows) + unions_table(rows) +
         against_table(rows, c.against) + failure_notes(c);
}

std::string plan_spaces_table(const std::vector<json>& rows) {
  if (rows.size() < 2 || rows.front().at("plan_space").is_null()) return {};
  // Where no policy plans pipelines there is nothing to compare.
  if (std::ranges::all_of(rows, [](const json& r) { return r.at("with_pipelines").is_null(); }))
    return {};
  table t{{"policy", "avg JCT, all with pipelines", "p99", "restarts", "plans otherwise"}};
  for (const auto& row : rows) {
    const auto& x = row.at("with_pipelines");
    const auto time = [&](const char* key) {
      return x.is_null() ? "" : duration_text(x.at(key).get<double>());
    };
    t.row({row.at("policy").get<std::string>(), time("average_jct_s"), time("p99_jct_s"),
           x.is_null() ? "" : fmt::format("{:.2f}", x.at("restarts_per_job").get<double>()),
           row.at("plan_space").get<std::string>()});
  }
  return "\n" + t.text(terminal_columns());
}

// Invented models decide the result as much as a policy does, so the title always has their share.
std::string title_of(const comparison& c) {
  std::string how;
  if (c.workload_name == job_files)
    how = "from their files";
  else if (c.workload_name == as_is)
    how = "as they are in the trace (as-is; --workload frenzy invents models for them)";
  else if (c.times)
    how = "at measured speeds (" + c.workload_name + ")";
  else if (c.invented == c.workload.size())
    how = fmt::format("with invented models ({})", c.workload_name);
  else if (c.invented > 0)
    how = fmt::format("with {} of their models invented ({})", c.invented, c.workload_name);
  else
    how = fmt::format("with their own models ({})", c.workload_name);
  return fmt::format("{} jobs on {}, replayed {}, simulated in virtual time, seed {}",
                     c.workload.size(), c.on.name, how, c.seed);
}

expected<void> save(const comparison& c, const std::string& directory) {
  const std::filesystem::path dir{directory};
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  if (failed)
    return refuse(reason::kind::invalid,
                  fmt::format("{}: cannot be created: {}", directory, failed.message()));
  auto ok =
      formats::save_text(dir / "result.json",
                         document_of(c).dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  if (ok) ok = formats::save_text(dir / "usage.html", usage_picture(c));
  for (const auto& r : c.results) {
    if (ok) ok = formats::save_text(dir / fmt::format("jobs-{}.csv", r.policy), jobs_csv(c, r));
    if (ok) ok = formats::save_text(dir / fmt::format("usage-{}.csv", r.policy), usage_csv(r));
  }
  return ok;
}

bool plans_pipelines(const planners::policy& p, std::string_view workload,
                     std::string_view parallelism) {
  if (p.traits().any_parallelism) return true;
  return parallelism.empty() ? workload.starts_with("crius") : parallelism == "adaptive";
}

std::shared_ptr<const planners::policy> as_simulated(std::shared_ptr<const planners::policy> p,
                                                     std::string_view workload,
                                                     std::string_view parallelism) {
  if (p->traits().any_parallelism || !plans_pipelines(*p, workload, parallelism)) return p;
  return planners::with_adaptive_parallelism(std::move(p));
}

// An invented model changes what a job takes, which only who asks for models can want.
std::string usual_workload(std::span<const formats::trace_row> rows) {
  const bool plain = std::ranges::all_of(rows, [](const formats::trace_row& row) {
    return row.duration_s > 0 && row.model.empty() && !row.global_batch && !row.iterations &&
           row.dataset_card.empty();
  });
  return plain ? std::string{as_is} : "frenzy";
}

expected<std::vector<arrival>> workload_of(std::span<const formats::trace_row> rows,
                                           std::string_view workload, std::uint64_t seed,
                                           const cluster& c) {
  reference_times reference{c};
  return formats::assign(
      rows, workload, seed, c,
      [&](const job_spec& job, std::uint32_t gpus) { return reference(job, gpus); },
      [&](const job_spec& job, std::uint32_t gpus) {
        return planners::nominal_iteration_s(c, job, gpus);
      });
}

expected<std::vector<arrival>> load_workload(const std::string& trace, const std::string& workload,
                                             std::uint64_t seed, const cluster& c) {
  const auto rows = formats::load_trace(trace);
  if (!rows) return refuse(rows.error());
  return workload_of(*rows, workload, seed, c);
}

expected<comparison> comparison_of(std::span<const formats::trace_row> rows,
                                   const std::string& workload, const formats::throughputs* speeds,
                                   std::uint64_t seed, const cluster& c) {
  comparison out{c, {}, workload, seed, {}};
  if (!speeds && workload != as_is) {
    auto jobs = workload_of(rows, workload, seed, c);
    if (!jobs) return refuse(jobs.error());
    out.workload = std::move(*jobs);
    out.invented = static_cast<std::size_t>(
        std::ranges::count_if(rows, [](const auto& row) { return row.model.empty(); }));
    return out;
  }
  auto replayed = speeds ? formats::replay_measured(rows, *speeds, c) : formats::replay_as_is(rows);
  if (!replayed) return refuse(replayed.error());
  if (speeds) out.workload_name = std::filesystem::path{speeds->file}.filename().string();
  out.workload = std::move(replayed->jobs);
  out.times = std::make_shared<const replayed_times>(std::move(replayed->times));
  return out;
}

namespace {

/// "FILE@SECONDS", if the text behind the last @ is a time: file names may have the character.
std::pair<std::string, double> file_and_time(const std::string& text) {
  const auto at = text.rfind('@');
  if (at == std::string::npos) return {text, 0};
  double at_s = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data() + at + 1, end, at_s);
  if (failed != std::errc{} || rest != end || !(at_s >= 0 && std::isfinite(at_s))) return {text, 0};
  return {text.substr(0, at), at_s};
}

}  // namespace

expected<std::vector<arrival>> load_arrivals(std::span<const std::string> files) {
  std::vector<arrival> out;
  for (const auto& text : files) {
    const auto [file, at_s] = file_and_time(text);
    auto job = formats::load_job(file);
    if (!job) return refuse(job.error());
    const auto work = facts_of(*job);
    const char* more = !work.has_end     ? "serve"
                       : !work.has_model ? "slots"
                       : work.has_stages ? "train"
                                         : nullptr;
    if (more)
      return refuse(reason::kind::invalid,
                    "{}: found a job with '{}', expected a program or simulated work (troupe train "
                    "JOB --world virtual simulates a training)",
                    file, more);
    out.push_back({at_s, std::move(*job)});
  }
  std::ranges::stable_sort(out, {}, &arrival::at_s);
  return out;
}

comparison of_job_files(std::vector<arrival> jobs, std::uint64_t seed, const cluster& c) {
  comparison out{c, std::move(jobs), std::string{job_files}, seed, {}};
  // Each policy's own plans: a program's layout is not a policy's choice.
  out.parallelism = "own";
  return out;
}

}  // namespace troupe::cli
