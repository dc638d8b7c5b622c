#include "cli/verbs/studies/plan_titan.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cli/output/human.hpp"
#include "cli/output/table.hpp"
#include "messages/base/folds.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/policy/placement.hpp"
#include "planners/serving/scheduled_policy.hpp"
#include "planners/titan/tuning_problem.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::cli {

namespace {

/// More jobs have too many pairs to be read.
constexpr std::size_t max_paired_jobs = 32;

/// The jobs that wait and the GPUs that are idle: a snapshot refers to them.
struct tuning_queue {
  planners::job_views waiting;
  planners::idle_index idle;
};

struct tuning_answer {
  planners::tuning_problem problem;
  planners::titan_answer solved;
  double seconds = 0;
};

/// The first GPUs of the cluster.
expected<planners::idle_index> idle_gpus(const tuning_request& r) {
  planners::idle_index idle{r.c};
  if (!r.idle) return idle;
  if (*r.idle > idle.total_idle())
    return refuse(reason::kind::invalid, "--idle: found {}, expected at most {}, the GPUs of '{}'",
                  *r.idle, idle.total_idle(), r.c.name);
  auto left = *r.idle;
  for (node_index n = 0; n < r.c.nodes.size(); ++n) {
    const auto of_node = std::min(left, idle.idle(n));
    idle.set_idle(n, of_node);
    left -= of_node;
  }
  return idle;
}

/// Jobs are numbered in the order of their files.
planners::job_views waiting_jobs(const tuning_request& r, const planners::policy& p) {
  planners::job_views out;
  planners::planning_budget budget;
  for (const auto& job : r.jobs) {
    planners::job_view view;
    view.id = out.size() + 1;
    view.spec = std::make_shared<const job_spec>(job);
    auto plans = p.plans_of(r.c, job, budget);
    if (!plans) view.why = plans.error();
    view.plans =
        std::make_shared<const std::vector<plan>>(plans ? std::move(*plans) : std::vector<plan>{});
    out.emplace(view.id, std::move(view));
  }
  return out;
}

json names_of(const planners::tuning_problem& p, const std::vector<std::uint32_t>& jobs) {
  return mapped(jobs, [&](std::uint32_t j) { return p.jobs[j]->spec->name; });
}

std::string names_text(const json& names) {
  return fmt::format("{}", fmt::join(names.get<std::vector<std::string>>(), " + "));
}

std::string source_text(const planners::tuning_option* o) {
  if (o == nullptr) return to_string(row_source::cost_model);
  if (o->outside) return "outside";
  return o->interpolated ? "interpolated" : to_string(o->row->from);
}

json plan_row(const plan& how) {
  return {{"data_parallel", how.data_parallel},
          {"tensor_parallel", how.tensor_parallel},
          {"gpus", how.gpus()},
          {"bytes_per_gpu", std::llround(how.bytes_per_gpu)},
          {"samples_per_s", how.samples_per_s}};
}

json configuration_row(const planners::tuning_option& o, double epochs, const plan& how) {
  return {{"batch", o.shape.batch},
          {"accumulate", o.shape.accumulate},
          {"frozen_layers", o.shape.frozen_layers},
          {"amp", o.shape.amp},
          {"recompute", o.shape.recompute},
          {"epochs", epochs},
          {"plan", plan_row(how)}};
}

class tuning_document {
 public:
  tuning_document(const tuning_request& r, const planners::tuning_tables& tables,
                  const tuning_answer& a)
      : r_{r}, tables_{tables}, a_{a}, p_{a.problem} {}

  json make(const tuning_queue& q, const planners::policy& p) const {
    json assignments = json::array();
    for (const auto column : a_.solved.taken) assignments.push_back(assignment(column));
    return {{"policy", r_.options.name},
            {"cluster", r_.c.name},
            {"assignments", std::move(assignments)},
            {"waiting", waiting(q, p)},
            {"objective", a_.solved.objective},
            {"bound", a_.solved.bound},
            {"gap", a_.solved.gap()},
            {"candidates", candidates()},
            {"rejected_pairs", rejected_pairs()},
            {"seconds", a_.seconds}};
  }

 private:
  json assignment(std::size_t column) const {
    const auto& c = p_.program.columns[column];
    const auto& meaning = p_.columns[column];
    const auto gpu = p_.pools[c.pool].gpu;
    const auto* option = option_of(column);
    const double rows = sum_of(c.jobs, [&](std::uint32_t j) {
      return planners::data_of(*p_.jobs[j]->spec, r_.options.rules).rows;
    });
    const double progress_per_s = 1 / (meaning.start_s + meaning.run_s);
    return {{"jobs", names_of(p_, c.jobs)},
            {"merged", c.jobs.size() > 1 ? json(to_string(p_.kind_of(column))) : json()},
            {"gpus", c.gpus},
            {"gpu", r_.c.gpus[gpu].name},
            {"progress_per_s", progress_per_s},
            {"weight", c.value / progress_per_s},
            {"configuration", option != nullptr ? configuration_row(*option, meaning.samples / rows,
                                                                    p_.plan_of(column))
                                                : json()},
            {"from", source_text(option)}};
  }

  /// The lookup table's option behind a column; null: a program has none. Valid as long as the
  /// tables.
  // A job's plan is made of the option that ends first, which is found again here.
  const planners::tuning_option* option_of(std::size_t column) const {
    const auto& meaning = p_.columns[column];
    if (meaning.option != nullptr) return meaning.option;
    const auto& c = p_.program.columns[column];
    const auto& spec = *p_.jobs[c.jobs.front()]->spec;
    if (!facts_of(spec).malleable) return nullptr;
    const auto options = tables_.options_of(r_.c, p_.pools[c.pool].gpu, spec, {});
    const auto& rules = r_.options.rules;
    const auto best = planners::best_configuration(options->at(meaning.how->gpus()),
                                                   planners::data_of(spec, rules), 0, rules);
    return best ? best->option : nullptr;
  }

  /// The jobs that do not start, in the order of their files.
  json waiting(const tuning_queue& q, const planners::policy& p) const {
    std::vector<job_id> started;
    for (const auto column : a_.solved.taken)
      for (const auto j : p_.program.columns[column].jobs) started.push_back(p_.jobs[j]->id);
    const planners::snapshot s{0, r_.c, q.idle, q.waiting, planners::no_jobs};
    json out = json::array();
    for (const auto& [id, j] : q.waiting)
      if (std::ranges::find(started, id) == started.end())
        out.push_back({{"job", j.spec->name}, {"why", p.why_waiting(s, id).text}});
    return out;
  }

  /// The column of the candidate that ends first; nothing: it has no room.
  std::optional<std::size_t> best_column(const planners::merge_candidate& k) const {
    const auto end_s = [&](std::size_t i) { return p_.columns[i].start_s + p_.columns[i].run_s; };
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < p_.columns.size(); ++i)
      if (p_.program.columns[i].jobs == k.jobs && (!best || end_s(i) < end_s(*best))) best = i;
    return best;
  }

  json candidates() const {
    json out = json::array();
    for (const auto& k : p_.candidates) {
      const auto best = best_column(k);
      const auto known = [&](auto value) { return best ? json(value(p_.columns[*best])) : json(); };
      out.push_back({{"jobs", names_of(p_, k.jobs)},
                     {"similarity", k.similarity},
                     {"duration_ratio", k.duration_ratio},
                     {"samples", known([](const auto& c) { return c.samples; })},
                     {"duration_s", known([](const auto& c) { return c.start_s + c.run_s; })},
                     {"gpus", best ? json(p_.program.columns[*best].gpus) : json()}});
    }
    return out;
  }

  json rejected_pairs() const {
    json out = json::array();
    const auto jobs = static_cast<std::uint32_t>(p_.mergeable.size());
    if (!r_.options.merges || jobs > max_paired_jobs) return out;
    for (std::uint32_t a = 0; a < jobs; ++a)
      for (std::uint32_t b = a + 1; b < jobs; ++b)
        if (auto why =
                planners::why_not_merged(p_.mergeable[a], p_.mergeable[b], r_.options.merging);
            !why.empty())
          out.push_back({{"jobs", names_of(p_, {a, b})}, {"why", std::move(why)}});
    return out;
  }

  const tuning_request& r_;
  const planners::tuning_tables& tables_;
  const tuning_answer& a_;
  const planners::tuning_problem& p_;
};

// -- for people

std::string assignments_table(const json& d) {
  table t{{"starts", "merged", "GPUs", "of", "ends in", "weight", "batch", "accumulate", "how",
           "from"}};
  for (const auto& a : d.at("assignments")) {
    const auto& how = a.at("configuration");
    const auto figure = [&](const char* key) {
      return how.is_null() ? "" : fmt::to_string(how.at(key).get<std::uint32_t>());
    };
    std::string modes;
    for (const std::string key : {"amp", "recompute"})
      if (!how.is_null() && how.at(key).get<bool>()) modes += (modes.empty() ? "" : ", ") + key;
    t.row({names_text(a.at("jobs")),
           a.at("merged").is_null() ? "" : a.at("merged").get<std::string>(),
           fmt::to_string(a.at("gpus").get<std::uint32_t>()), a.at("gpu").get<std::string>(),
           duration_text(1 / a.at("progress_per_s").get<double>()),
           fmt::format("{:.3g}", a.at("weight").get<double>()), figure("batch"),
           figure("accumulate"), modes, a.at("from").get<std::string>()});
  }
  return t.empty() ? "" : t.text(terminal_columns()) + "\n";
}

std::string waiting_table(const json& d) {
  table t{{"waits", "why"}};
  for (const auto& w : d.at("waiting"))
    t.row({w.at("job").get<std::string>(), w.at("why").get<std::string>()});
  return t.empty() ? "" : t.text(terminal_columns()) + "\n";
}

std::string candidates_table(const json& d) {
  table t{{"could be merged", "similarity", "ratio of times", "ends in", "on GPUs"}};
  for (const auto& k : d.at("candidates")) {
    const bool known = !k.at("duration_s").is_null();
    t.row({names_text(k.at("jobs")), fmt::format("{:.2f}", k.at("similarity").get<double>()),
           fmt::format("{:.2f}", k.at("duration_ratio").get<double>()),
           known ? duration_text(k.at("duration_s").get<double>()) : "no room",
           known ? fmt::to_string(k.at("gpus").get<std::uint32_t>()) : ""});
  }
  return t.empty() ? "" : t.text(terminal_columns()) + "\n";
}

std::string rejected_table(const json& d) {
  table t{{"not merged", "why"}};
  for (const auto& pair : d.at("rejected_pairs"))
    t.row({names_text(pair.at("jobs")), pair.at("why").get<std::string>()});
  return t.empty() ? "" : t.text(terminal_columns()) + "\n";
}

void show(const output& out, const tuning_request& r, const json& d) {
  out.line("{} on {} under {}\n", counted(r.jobs.size(), "waiting job"), r.c.name, r.options.name);
  out.text(assignments_table(d) + waiting_table(d) + candidates_table(d) + rejected_table(d));
  out.line("Objective {:.6g}, at most {:.6g} (gap {:.3f} %), decided in {}.",
           d.at("objective").get<double>(), d.at("bound").get<double>(),
           100 * d.at("gap").get<double>(), duration_text(d.at("seconds").get<double>()));
}

}  // namespace

bool is_placed_by_titan(const job_spec& job) {
  const auto work = facts_of(job);
  return !work.pipelines && work.has_end;
}

// The policy's own functions in its order, instead of its decide(): a decision does not say which
// unions there were, and what they were worth.
int show_tuning(const output& out, const tuning_request& r) {
  auto idle = idle_gpus(r);
  if (!idle) return out.bad(idle.error());
  const auto policy = planners::as_scheduled(planners::make_titan(r.options));
  const tuning_queue q{waiting_jobs(r, *policy), std::move(*idle)};
  const planners::tuning_tables tables{r.options.measured};
  const planners::snapshot s{0, r.c, q.idle, q.waiting, planners::no_jobs};
  const runtime::stopwatch watch;
  tuning_answer a{planners::make_tuning_problem(s, q.idle, r.options, tables), {}, 0};
  if (!a.problem.program.columns.empty())
    a.solved = r.options.solve(a.problem.program, r.options.limits);
  a.seconds = watch.s();
  const auto d = tuning_document{r, tables, a}.make(q, *policy);
  out.document(d);
  show(out, r, d);
  for (const auto& [id, j] : q.waiting)
    if (j.plans->empty())
      return out.failure(fmt::format("{}: {}", j.spec->name, planners::why_none(j).text));
  return exit_done;
}

}  // namespace troupe::cli
