#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "cli/options/lookup_option.hpp"
#include "cli/options/policy_option.hpp"
#include "cli/options/profile_option.hpp"
#include "cli/output/human.hpp"
#include "cli/output/output_file.hpp"
#include "cli/output/table.hpp"
#include "cli/programs/described_program.hpp"
#include "cli/reports/cells.hpp"
#include "cli/reports/plan_document.hpp"
#include "cli/verbs/studies/plan_in_space.hpp"
#include "cli/verbs/studies/plan_titan.hpp"
#include "cli/verbs/studies/provision.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "formats/parse/reader.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/devices/guesses.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/places.hpp"
#include "planners/policy/bound_warning.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/estimate.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/policy.hpp"
#include "planners/search/selection_table.hpp"
#include "planners/serving/decoder_memory.hpp"
#include "planners/serving/scheduled_policy.hpp"

namespace troupe::cli {

namespace {

constexpr job_id the_job = 1;
constexpr std::size_t rows_for_people = 12;

/// A policy's decision for one job on an empty cluster.
struct answer {
  std::vector<plan> plans;            // the policy's, best first
  std::optional<std::size_t> chosen;  // index; a baseline may choose none of these
  plan how;
  allocation where;  // empty: not placed
  planners::iteration_estimate estimate;
  std::optional<reason> why;  // why not
  std::string warning;        // the job's limits exclude its best plan
};

std::string gpu_names(const cluster& c, const std::vector<gpu_index>& types) {
  std::string out;
  for (const auto g : types) out += (out.empty() ? "" : ", ") + c.gpus[g].name;
  return out;
}

/// A plan on GPUs with too little memory would fail at the start.
std::optional<reason> too_large(const cluster& c, const job_spec& job, const answer& a) {
  const auto lack = planners::find_memory_shortage(c, job, a.how, a.where);
  if (!lack) return {};
  const auto& gpu = c.gpus[lack->gpu];
  return reason{
      reason::kind::infeasible,
      fmt::format(
          "it would run out of memory at startup: it needs {:.2f} GB per GPU, and {} has {:g}",
          lack->needed_bytes / bytes_per_gb, gpu.name, gpu.memory_gb)};
}

/// More take seconds to simulate step by step.
constexpr std::uint32_t max_simulated_gpus = 2048;

/// The job as the controller's estimator shows it: trainings are marked.
planners::job_view view_of(const cluster& c, const job_spec& job, answer& a) {
  planners::job_view view;
  view.id = the_job;
  view.training = planners::runs_as_pipelines(job, &a.plans);
  view.spec = std::make_shared<const job_spec>(job);
  view.plans = std::make_shared<const std::vector<plan>>(a.plans);
  if (facts_of(job).elastic) {
    view.plans = planners::plans_of_elastic(c, view);
    if (!a.plans.empty() && view.plans->empty())
      a.why =
          reason{reason::kind::infeasible, "`elastic` allows none of its plans on this cluster"};
    a.plans = *view.plans;
  }
  if (a.why) view.why = *a.why;
  return view;
}

// The same calls as the scheduler's, on a snapshot with one job and an idle cluster, so that the
// answer is what the controller would do.
answer ask(const cluster& c, const job_spec& job, const planners::policy& p) {
  answer a;
  planners::planning_budget budget;
  auto plans = p.plans_of(c, job, budget);
  if (plans)
    a.plans = std::move(*plans);
  else
    a.why = plans.error();

  const planners::idle_index idle{c};
  planners::job_views alone{{the_job, view_of(c, job, a)}};
  a.warning = planners::bound_warning(c, job, a.plans, p);
  planners::wait_notes notes;
  planners::snapshot s{0, c, idle, alone, planners::no_jobs};
  s.notes = &notes;

  // Fixed: the same question has the same answer.
  random_source random{1};
  for (const auto& d : p.decide(s, random)) {
    if (d.what == planners::decision::kind::give_up && !a.why) a.why = d.why;
    // Nothing runs that could be moved or stopped.
    if (d.what != planners::decision::kind::start) continue;
    a.how = d.how;
    a.where = d.where;
    if (facts_of(job).serves) {  // it has no iterations to evaluate
      a.estimate.cost_per_hour = price_per_hour(c, d.where.front().node);
      a.chosen = 0;
      continue;
    }
    const auto e =
        planners::evaluate(c, planners::with_device(job, name_of(device_kind::sim)), d.how, d.where,
                           d.how.gpus() <= max_simulated_gpus ? planners::fidelity::simulated
                                                              : planners::fidelity::closed);
    if (e) a.estimate = *e;
    if (e && facts_of(job).elastic) {
      a.estimate.iteration_s =
          planners::estimate_start(c, alone.at(the_job), d.how, d.where).iteration_s;
      a.estimate.samples_per_s = job.global_batch / a.estimate.iteration_s;
    }
    // Some baselines ignore memory, as in their papers: their plan is shown with the reason why it
    // would fail.
    a.why = e ? too_large(c, job, a) : e.error();
    if (auto ok = planners::within_bounds(c, job, d.where); !ok) a.why = ok.error();
    // A baseline may run the job as its user asked for it, which is none of the ranked plans.
    if (const auto at = std::find(a.plans.begin(), a.plans.end(), d.how); at != a.plans.end())
      a.chosen = static_cast<std::size_t>(at - a.plans.begin());
    if (!e) continue;
    // One plan, one speed: on these GPUs, rather than on the slowest that it could have had.
    planners::set_figures(a.how, a.estimate);
    if (a.chosen) a.plans[*a.chosen] = a.how;
  }
  // On an empty cluster a job waits only for what the cluster does not have.
  if (a.where.empty() && !a.why) a.why = p.why_waiting(s, the_job);
  return a;
}

std::string origin_of(const cluster& c, const job_spec& job, const answer& a) {
  return source_of(c, job, a.how, a.where.front().node);
}

/// The speeds by which the plans shown are ranked.
std::vector<std::string> guesses_of(const cluster& c, const job_spec& job, const answer& a) {
  return facts_of(job).serves ? std::vector<std::string>{}
                              : planners::guesses_of(c, job, a.plans, a.where);
}

/// A decoder's memory by purpose, in bytes.
json decoder_document(const job_spec& job, const answer& a) {
  const auto m = planners::decoder_memory_of(*job.serve);
  return {{"weight_bytes", std::llround(m.weights)},
          {"cache_bytes", std::llround(m.cache)},
          {"scratch_bytes", std::llround(m.scratch)},
          {"cost_per_hour", a.estimate.cost_per_hour}};
}

json estimate_document(const cluster& c, const job_spec& job, const answer& a) {
  if (facts_of(job).serves) return decoder_document(job, a);
  const auto& e = a.estimate;
  json d{{"from", origin_of(c, job, a)},    {"compute_s", e.compute_s},
         {"tensor_s", e.tensor_s},          {"data_s", e.data_s},
         {"pipeline_s", e.pipeline_s},      {"iteration_s", e.iteration_s},
         {"samples_per_s", e.samples_per_s}};
  d.update(cost_document(c, e));
  return d;
}

json document(const cluster& c, const job_spec& job, const std::string& policy, const answer& a) {
  json plans = json::array(), where = json::array();
  for (const auto& p : a.plans) plans.push_back(plan_document(c, job, p));
  for (const auto& share : a.where)
    where.push_back({{"node", c.nodes[share.node].name},
                     {"gpu", c.gpu_of(share.node).name},
                     {"gpus", share.gpus}});
  const bool runs = !a.where.empty();
  return {{"policy", policy},
          {"job", job.name},
          {"cluster", c.name},
          {"feasible", !a.why},
          {"plans", plans},
          {"chosen", a.chosen ? json(*a.chosen) : json()},
          {"plan", runs ? plan_document(c, job, a.how) : json()},
          {"allocation", where},
          {"estimate", runs ? estimate_document(c, job, a) : json()},
          {"reason", a.why ? json(a.why->text) : json()},
          {"guesses", guesses_of(c, job, a)},
          {"warnings", a.warning.empty() ? json::array() : json::array({a.warning})}};
}

/// A variant of Crius chooses from Cells.
// Programs, slots jobs and decoders have no chain of operators to cut.
bool has_cells(const std::string& policy, const job_spec& job) {
  const auto work = facts_of(job);
  return policy.starts_with("crius") && !work.brings_layout && work.has_model && work.has_end;
}

std::string table_of(const cluster& c, const answer& a, std::size_t max, bool known_memory) {
  table t{{"", "data", "tensor", "pipeline", "GPUs", "GB/GPU", "samples/s", "cost/h", "GPU types"}};
  for (std::size_t i = 0; i < a.plans.size(); ++i) {
    // The chosen plan is always shown, however low its rank.
    if (i >= max && i != a.chosen) continue;
    const auto& p = a.plans[i];
    t.row({i == a.chosen ? ">" : "", fmt::to_string(p.data_parallel),
           fmt::to_string(p.tensor_parallel), fmt::to_string(p.pipeline_parallel),
           fmt::to_string(p.gpus()),
           known_memory ? fmt::format("{:.2f}", p.bytes_per_gpu / bytes_per_gb) : "-",
           fmt::format("{:.3g}", p.samples_per_s), fmt::format("{:.2f}", p.cost_per_hour),
           gpu_names(c, p.gpu_types)});
  }
  return t.text(terminal_columns());
}

/// A policy's plans for one job on an idle cluster, and the one that it would run: what the
/// controller would decide, without a controller.
class plan_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", files_, "Job file; of titan's policies any number, which all wait")
        ->required();
    app.add_option("--cluster", cluster_, "Cluster file")->required();
    app.add_option("--policy", policy_, "Scheduling policy: " + known_policies())
        ->capture_default_str();
    add_policy_option(app, settings_);
    app.add_option("--objective", objective_, "Rank plans by: efficient, fastest, cheapest")
        ->check(CLI::IsMember({"efficient", "fastest", "cheapest"}));
    app.add_option("--profile", profile_,
                   "Profile of the GPUs (troupe profile), instead of the cost model");
    app.add_flag("--all", all_, "Show all plans, not just the first dozen");
    app.add_option(
        "--space", space_,
        "The best plan of a space of pipelines, whatever the policy, for simulated work and "
        "trainings: full, alike (no pipelines of several kinds), sailor (whole layers, equal "
        "numbers of micro-batches)");
    app.add_option("--placer", placer_,
                   "espresso: how a set of GPUs is placed: exact, greedy (the paper's), or as sia, "
                   "whale and hph choose and place")
        ->check(CLI::IsMember({"exact", "greedy", "sia", "whale", "hph"}))
        ->capture_default_str();
    app.add_flag("--closed-form", closed_form_,
                 "espresso: the cheapest by the closed form, without simulating schedules");
    limit_ =
        app.add_option(
               "--time-limit", limit_s_,
               "espresso: seconds after which the best plan so far is given (0: none); --space: "
               "as many for the bound, counted in steps")
            ->check(CLI::NonNegativeNumber)
            ->capture_default_str();
    app.add_flag("--spot", spot_,
                 "espresso: use spot instances where the cluster has their prices");
    auto* pareto = app.add_option("--pareto", pareto_,
                                  "espresso: write an HTML page of cost against time, with the "
                                  "cheapest plan for every time");
    app.add_option("--sweep-slo", sweep_s_,
                   "espresso: compare all placers under each of these limits on the time, in "
                   "seconds, such as 500,1000,2000")
        ->delimiter(',')
        ->check(CLI::PositiveNumber)
        ->excludes(pareto);
    auto* ratios = app.add_flag("--explain-cmr", explain_ratios_,
                                "espresso: show the ratios that the greedy placer compares");
    app.add_option("--layers-in-memory", max_in_memory_,
                   "with --explain-cmr: l_m of a GPU type, such as A6000=54")
        ->needs(ratios);
    app.add_option("--idle", idle_,
                   "titan: only this many GPUs are idle, the cluster's first ones");
    app.add_option(
        "--lut", lut_,
        "titan: lookup table (JSON) of fine-tuning iterations, instead of the cost model");
    app.add_flag("--paper", paper_,
                 "titan: the paper's program: weights without age, starts that take no time, and "
                 "candidates of any ratio of durations. Its one row for all GPUs is the rows for "
                 "places where whole nodes are idle");
  }

  int run(output& out) override {
    const auto policy = find_policy(policy_, {settings_, cluster_, {}, {}});
    if (!policy) return out.bad(policy.error());
    auto c = formats::load_cluster(cluster_);
    if (!c) return out.bad(c.error());
    const auto catalogue = formats::load_catalogue(formats::catalogue_for(cluster_));
    if (!catalogue) return out.bad(catalogue.error());
    const auto jobs = load_jobs(*catalogue, *c);
    if (!jobs) return out.bad(jobs.error());
    if (auto ok = check_titan_options(**policy, *jobs); !ok) return out.bad(ok.error());
    const auto& job = jobs->front();

    if (!space_.empty()) return plan_in_space(out, {*c, job, space_, asked_limit_s()});

    // Espresso buys GPUs instead of dividing those that there are, so its answer has other figures:
    // cost, time, and the bound of the search.
    if ((*policy)->name() == "espresso" && facts_of(job).has_end) return provision(out, *c, job);
    if (closed_form_ || spot_ || explain_ratios_ || !pareto_.empty() || !sweep_s_.empty())
      return out.bad(
          "--closed-form, --spot, --pareto, --sweep-slo and --explain-cmr need --policy "
          "espresso");
    if (auto titan = planners::titan_options_of(**policy);
        titan && std::ranges::all_of(*jobs, is_placed_by_titan))
      return tune(out, *c, *jobs, std::move(*titan), *catalogue);
    const auto a = ask(*c, job, *planners::as_scheduled(*policy));
    const std::string name{(*policy)->name()};
    auto made = document(*c, job, name, a);
    if (has_cells(name, job)) made.update(cells_document(*c, job, a.how));
    out.document(made);
    show(out, *c, job, name, a);
    return a.why ? out.failure(a.why->text) : exit_done;
  }

 private:
  std::optional<double> asked_limit_s() const {
    return limit_->count() > 0 ? std::optional{limit_s_} : std::nullopt;
  }

  expected<std::vector<job_spec>> load_jobs(std::span<const gpu_type> catalogue, cluster& c) const {
    std::vector<job_spec> jobs;
    for (const auto& file : files_) {
      auto job = load_job(file, catalogue);
      if (!job) return refuse(job.error());
      if (!objective_.empty()) job->objective = objective_;
      if (auto ok = use_profile(profile_, *job, c); !ok) return refuse(ok.error());
      jobs.push_back(std::move(*job));
    }
    return jobs;
  }

  /// Refuses options, and several jobs, of policies and jobs that do not have them.
  expected<void> check_titan_options(const planners::policy& p,
                                     std::span<const job_spec> jobs) const {
    if (jobs.size() == 1 && !idle_ && !paper_ && lut_.empty()) return {};
    if (!planners::titan_options_of(p))
      return refuse(reason::kind::invalid,
                    "several jobs, --idle, --lut and --paper are for the policies of titan; found "
                    "{}, expected titan, titan-no-merger or titan-no-switch",
                    p.name());
    const auto other = std::ranges::find_if_not(jobs, is_placed_by_titan);
    if (other == jobs.end()) return {};
    return refuse(reason::kind::invalid,
                  "several jobs, --idle, --lut and --paper are for jobs that titan places; found "
                  "'{}', which {}, expected simulated work or programs",
                  other->name, !facts_of(*other).has_end ? "serves a model" : "runs as a pipeline");
  }

  /// The one decision of titan about all jobs.
  int tune(const output& out, const cluster& c, std::vector<job_spec> jobs,
           planners::titan_options options, std::span<const gpu_type> catalogue) const {
    auto measured = load_lookup_option(lut_, catalogue);
    if (!measured) return out.bad(measured.error());
    options.measured = std::move(*measured);
    if (paper_) {
      options.aging_s = 0;
      options.start_s = 0;
      options.merging.duration_ratio = std::numeric_limits<double>::infinity();
    }
    return show_tuning(out, {c, std::move(jobs), std::move(options), idle_});
  }

  int provision(const output& out, const cluster& c, const job_spec& job) const {
    const provision_request r{
        c, job, {*planners::provision_placer_named(placer_), spot_, !closed_form_}, limit_s_};
    if (!sweep_s_.empty()) return sweep_limits(out, r, sweep_s_);
    if (!pareto_.empty()) {
      if (auto ok = can_write(pareto_); !ok) return out.bad(ok.error());
      return show_pareto(out, r, pareto_);
    }
    ratio_wish ratios{explain_ratios_, {}};
    for (const auto& text : max_in_memory_)
      if (auto ok = read_layers(c, text, ratios.max_in_memory); !ok) return out.bad(ok.error());
    return show_provision(out, r, ratios);
  }

  /// GPU=LAYERS
  static expected<void> read_layers(const cluster& c, const std::string& text,
                                    std::map<gpu_index, double>& out) {
    const auto equals = text.find('=');
    const auto number = equals == text.npos
                            ? std::nullopt
                            : formats::parse_number(std::string_view{text}.substr(equals + 1));
    if (!number || *number <= 0)
      return refuse(reason::kind::invalid,
                    fmt::format("--layers-in-memory: found '{}', expected a GPU type and its "
                                "layers, such as A6000=54",
                                text));
    const auto name = text.substr(0, equals);
    const auto gpu = std::ranges::find(c.gpus, name, &gpu_type::name);
    if (gpu == c.gpus.end())
      return refuse(
          reason::kind::invalid,
          fmt::format("--layers-in-memory: no node of cluster '{}' has GPU '{}'", c.name, name));
    out[static_cast<gpu_index>(gpu - c.gpus.begin())] = *number;
    return {};
  }

  void show(const output& out, const cluster& c, const job_spec& job, const std::string& policy,
            const answer& a) const {
    if (a.plans.empty() && a.where.empty()) return;  // the reason is the whole answer
    if (!facts_of(job).has_end) return show_decoder(out, c, job, a);
    if (job.assumed.model)
      out.line("{} on {} under {}", job.name, c.name, policy);
    else
      out.line("{} ({}, batch {}) on {} under {}", job.name, job.model.name, job.global_batch,
               c.name, policy);
    const auto max = all_ ? a.plans.size() : rows_for_people;
    if (has_cells(policy, job)) out.text("\n" + cells_table(c, job));
    if (!a.plans.empty())
      out.text("\n" + table_of(c, a, max, facts_of(job).has_known_memory) + "\n");
    if (a.plans.size() > max) out.line("{} more plans (--all shows them)\n", a.plans.size() - max);
    if (!a.warning.empty()) out.line("Warning: {}.", a.warning);
    for (const auto& guess : guesses_of(c, job, a)) out.line("Note: {}.", guess);
    if (const auto marp = marp_of(c, job, a))
      out.line("Memory is what the CUDA device asks for; MARP's formula predicts {:.2f} GB/GPU.",
               *marp / bytes_per_gb);
    if (a.where.empty()) return;
    std::string nodes;
    for (const auto& share : a.where)
      nodes += fmt::format("{}{} ({} of {})", nodes.empty() ? "" : ", ", c.nodes[share.node].name,
                           share.gpus, c.gpu_of(share.node).name);
    out.line("{} on {}: {} per iteration, {:.3g} samples/s, {:.2f} per hour.",
             a.why ? "Would be started" : "Runs", nodes, duration_text(a.estimate.iteration_s),
             a.estimate.samples_per_s, a.estimate.cost_per_hour);
    if (const auto traffic = traffic_text(c, a.estimate); !traffic.empty()) out.line("{}", traffic);
    if (const auto without = planners::left_out(c, job); !without.empty())
      out.line("Not on all GPUs{}.", without);
    if (const auto from = origin_of(c, job, a); from != "the cost model")
      out.line("Estimated from {}.", from);
  }

  /// MARP's prediction for the chosen plan, or else for the best.
  static std::optional<double> marp_of(const cluster& c, const job_spec& job, const answer& a) {
    if (a.where.empty() && a.plans.empty()) return {};
    return planners::bytes_by_marp(c, job, a.where.empty() ? a.plans.front() : a.how);
  }

  static void show_decoder(const output& out, const cluster& c, const job_spec& job,
                           const answer& a) {
    const auto m = planners::decoder_memory_of(*job.serve);
    out.line(
        "{} serves '{}' on one GPU of {}: {:.2f} GB (weights {:.2f}, cache {:.2f}, scratch "
        "{:.2f})",
        job.name, job.serve->model.name, gpu_names(c, a.plans.front().gpu_types),
        a.plans.front().bytes_per_gpu / bytes_per_gb, m.weights / bytes_per_gb,
        m.cache / bytes_per_gb, m.scratch / bytes_per_gb);
    if (a.where.empty()) return;
    const auto n = a.where.front().node;
    out.line("Runs on {} ({}), {:.2f} per hour, until it is cancelled.", c.nodes[n].name,
             c.gpu_of(n).name, a.estimate.cost_per_hour);
  }

  std::vector<std::string> files_, settings_;
  std::string lut_;
  std::optional<std::uint32_t> idle_;
  std::string cluster_, policy_ = default_policy, objective_, profile_, placer_ = "exact", space_;
  std::string pareto_;
  std::vector<double> sweep_s_;
  std::vector<std::string> max_in_memory_;
  bool all_ = false, closed_form_ = false, spot_ = false, explain_ratios_ = false, paper_ = false;
  double limit_s_ = 60;
  CLI::Option* limit_ = nullptr;
};

}  // namespace

std::unique_ptr<verb> make_plan() {
  return std::make_unique<plan_verb>();
}

}  // namespace troupe::cli
