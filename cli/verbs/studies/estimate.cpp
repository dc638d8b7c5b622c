#include <algorithm>
#include <cmath>

#include "cli/options/profile_option.hpp"
#include "cli/output/human.hpp"
#include "cli/output/table.hpp"
#include "cli/programs/described_program.hpp"
#include "cli/reports/plan_document.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/groups.hpp"
#include "formats/load/load.hpp"
#include "formats/parse/reader.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/schedules.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/devices/guesses.hpp"
#include "planners/model/job_memory.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/plans/fits.hpp"
#include "planners/plans/plan_text.hpp"
#include "planners/search/job_space/searched_placement.hpp"

namespace troupe::cli {

namespace {

/// The time of a plan's iteration: by simulation of its schedule, and by the closed form that
/// planners rank by.
struct estimated_plan {
  planners::placed_plan plan;
  planners::timed_plan timed;
  planners::iteration_estimate simulated, closed;
  std::optional<reason> why_not;  // it does not fit
};

/// The time, memory and cost of stages that the user chose, on GPUs of an idle cluster: what a
/// planner would compute for this one plan.
class estimate_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", job_, "Job file")->required();
    app.add_option("--cluster", cluster_, "Cluster file")->required();
    app.add_option("--stages", stages_,
                   "Stages as GPU:LAYERS or GPU:OPERATORS; layers may be halves")
        ->delimiter(',');
    app.add_option("--groups", groups_,
                   "File of groups of pipelines, instead of --stages: the stages, datacenters and "
                   "numbers of micro-batches of each");
    app.add_option("--data-parallel", pipelines_,
                   "Pipelines, each with samples of its own (of a job with context_parallel c: "
                   "groups of c pipelines)")
        ->check(CLI::Range(1u, 100'000u))
        ->capture_default_str();
    app.add_option("--tensor-parallel", tensor_, "GPUs of one node that share each stage")
        ->check(CLI::Range(1u, 64u))
        ->capture_default_str();
    app.add_option("--schedule", schedule_, "Pipeline schedule (default: the job's)")
        ->check(
            CLI::IsMember(std::vector<std::string>{schedule_names.begin(), schedule_names.end()}));
    app.add_option("--profile", profile_,
                   "Profile of the GPUs (troupe profile), instead of the cost model");
  }

  int run(output& out) override {
    auto c = formats::load_cluster(cluster_);
    if (!c) return out.bad(c.error());
    const auto read = load_job(job_);
    if (!read) return out.bad(read.error());
    // Decoders have no iterations; `troupe plan` shows their memory.
    if (facts_of(*read).serves)
      return out.bad(
          fmt::format("{}: a job that serves a model has no iterations to estimate", job_));
    auto job = as_program(planners::with_device(*read, name_of(device_kind::sim)), *read);
    if (job.slots) return out.bad(fmt::format("{}: a slots job has no model to estimate", job_));
    if (!schedule_.empty()) job.train->schedule = schedule_;
    // A program's stages go backward as early as they can.
    if (facts_of(job).brings_layout && job.train->schedule.empty())
      job.train->schedule = "megatron";
    if (auto ok = use_profile(profile_, job, *c); !ok) return out.bad(ok.error());
    if (stages_.empty() == groups_.empty()) return out.bad("expected one of --stages and --groups");
    std::vector<planners::stage_request> stages;
    formats::chosen_groups groups;
    if (groups_.empty()) {
      auto found = requested(*c, job);
      if (!found) return out.bad(found.error());
      stages = std::move(*found);
    } else {
      auto found = formats::load_groups(groups_, *c);
      if (!found) return out.bad(found.error());
      groups = std::move(*found);
    }
    const auto a = ask(*c, job, stages, groups);
    if (!a) {
      out.document(
          {{"job", job.name}, {"cluster", c->name}, {"fits", false}, {"reason", a.error().text}});
      return out.failure(a.error());
    }
    out.document(document(*c, job, *a));
    show(out, *c, job, *a);
    return a->why_not ? out.failure(*a->why_not) : exit_done;
  }

 private:
  expected<std::vector<planners::stage_request>> requested(const cluster& c,
                                                           const job_spec& job) const {
    const auto known = formats::names_of(c.gpus);
    // Layers may be cut into halves: an attention and an MLP sublayer.
    const double pieces_each = job.model.operators.empty() ? 2 : 1;
    std::vector<planners::stage_request> all;
    for (const auto& text : stages_) {
      const auto colon = text.rfind(':');
      const auto size = colon == std::string::npos
                            ? std::nullopt
                            : formats::parse_number(std::string_view{text}.substr(colon + 1));
      const double pieces = size.value_or(-1) * pieces_each;
      if (pieces < 0 || pieces > 1e6 || pieces != std::floor(pieces))
        return refuse(reason::kind::invalid,
                      fmt::format("--stages: found '{}', expected GPU:{}, e.g. {}:4", text,
                                  pieces_each == 2 ? "LAYERS" : "OPERATORS", known.front()));
      const auto name = text.substr(0, colon);
      const auto at = std::ranges::find(known, name);
      if (at == known.end())
        return refuse(reason::kind::unknown, fmt::format("--stages: {} has no GPU '{}'{}", c.name,
                                                         name, formats::hint(name, known)));
      all.push_back({static_cast<gpu_index>(at - known.begin()), static_cast<std::uint32_t>(pieces),
                     tensor_});
    }
    return all;
  }

  expected<estimated_plan> ask(const cluster& c, const job_spec& job,
                               const std::vector<planners::stage_request>& stages,
                               const formats::chosen_groups& groups) const {
    // On an idle cluster: the nodes are chosen here, only types and sizes are given.
    const planners::idle_index idle{c};
    const auto named = planners::groups_on(c, groups.groups);
    if (!named) return refuse(named.error());
    auto made = groups_.empty()
                    ? planners::plan_of_stages(c, idle, job, stages,
                                               pipelines_ * context_parallel_of(job.pipeline))
                    : planners::plan_of_groups(c, idle, job, *named, groups.rows);
    if (!made) return refuse(made.error());
    if (!groups_.empty()) {
      auto chosen = job;
      chosen.pipeline.groups = groups.groups;
      auto other = planners::place_by_load(c, idle, chosen);
      if (other && planners::is_faster(c, job, *other, *made)) made = std::move(other);
    }
    auto timed = planners::time_plan(c, job, made->how, made->where);
    if (!timed) return refuse(timed.error());
    estimated_plan a;
    // Both figures are shown: planners rank by the closed form, and the simulation shows its error.
    a.closed = *planners::evaluate(c, job, *timed, planners::fidelity::closed);
    a.simulated = a.closed;
    if (facts_of(job).brings_layout && stages.size() == 1 && tensor_ == 1) {
      // The model of replicas without stages: their all-reduce hides behind the last backward.
      // Programs that share their layers among GPUs sum after it (Megatron-LM's default).
      auto whole = made->how;
      whole.stages.clear();
      auto split = job;
      split.microbatches = whole.microbatches;
      a.closed = a.simulated = planners::estimate_iteration(c, split, whole, made->where);
    } else if (job.pipeline.virtual_stages <= 1 && !job.pipeline.overlap.value_or(false)) {
      // Else there is the closed form alone.
      const auto simulated = planners::evaluate(c, job, *timed, planners::fidelity::simulated);
      if (!simulated) return refuse(simulated.error());
      a.simulated = *simulated;
    }
    // Last: a plan that does not fit has a time all the same, which is often the question.
    if (auto ok = planners::fits(c, idle, made->how, made->where); !ok) a.why_not = ok.error();
    a.plan = std::move(*made);
    a.timed = std::move(*timed);
    return a;
  }

  static std::string gpu_of(const cluster& c, const plan_stage& s) { return c.gpus[*s.gpu].name; }

  static std::vector<std::string> guesses_of(const cluster& c, const job_spec& job,
                                             const estimated_plan& a) {
    std::vector<gpu_index> types;
    for (const auto& g : groups_of(a.plan.how))
      for (const auto& s : g.stages) types.push_back(*s.gpu);
    return planners::guesses_of(c, job, types, a.plan.where);
  }

  /// `first`: the group's first pipeline.
  static json stages_of(const cluster& c, const job_spec& job, const estimated_plan& a,
                        const group_view& group, std::uint32_t first) {
    json stages = json::array();
    for (std::uint32_t s = 0; s < group.stages.size(); ++s) {
      const auto& stage = group.stages[s];
      const auto i = first * group.stages.size() + s;
      const auto& k = a.timed.costs[i];
      json nodes = json::array();
      for (auto p = first; p < first + group.pipelines; ++p)
        nodes.push_back(c.nodes[a.timed.layout.at(p, s).node].name);
      stages.push_back(
          {{"gpu", gpu_of(c, stage)},
           {"layers", job.model.operators.empty() ? json(stage.count / 2.0) : json(stage.count)},
           {"first_piece", stage.first},
           {"pieces", stage.count},
           {"tensor_parallel", stage.tensor_parallel},
           {"nodes", nodes},
           {"memory_bytes", std::llround(stage.bytes_per_gpu)},
           {"forward_s", k.forward_s},
           {"recompute_s", k.recompute_s},
           {"backward_s", k.backward_s},
           {"update_s", a.timed.times.stages[i].update},
           {"exchange_s", a.timed.times.stages[i].exchange}});
      if (stage.datacenter) stages.back()["datacenter"] = c.datacenters[*stage.datacenter].name;
    }
    return stages;
  }

  static json document(const cluster& c, const job_spec& job, const estimated_plan& a) {
    const auto& how = a.plan.how;
    const auto& e = a.simulated;
    const auto groups = groups_of(how);
    json d{{"job", job.name},
           {"cluster", c.name},
           {"fits", !a.why_not},
           {"schedule", planners::schedule_name(job)},
           {"iteration_s", e.iteration_s},
           {"closed_form_s", a.closed.iteration_s},
           {"compute_s", e.compute_s},
           {"pipeline_s", e.pipeline_s},
           {"samples_per_s", e.samples_per_s},
           {"data_parallel", how.data_parallel / context_parallel_of(job.pipeline)},
           {"context_parallel", context_parallel_of(job.pipeline)},
           {"microbatches", how.microbatches},
           {"rows_per_microbatch", how.rows},
           {"stages", stages_of(c, job, a, groups.front(), 0)},
           {"guesses", guesses_of(c, job, a)},
           {"reason", a.why_not ? json(a.why_not->text) : json()}};
    d.update(cost_document(c, e));
    if (!how.groups) return d;
    std::uint32_t first = 0;
    for (const auto& g : groups) {
      d["groups"].push_back({{"pipelines", g.pipelines},
                             {"microbatches", g.microbatches},
                             {"stages", stages_of(c, job, a, g, first)}});
      first += g.pipelines;
    }
    return d;
  }

  static void show(const output& out, const cluster& c, const job_spec& job,
                   const estimated_plan& a) {
    const auto& how = a.plan.how;
    const auto groups = groups_of(how);
    out.line("{} on {}: {}, micro-batches of {}{}, schedule {}", job.name, c.name,
             counted(how.data_parallel, "pipeline"), counted(how.rows, "row"),
             how.groups ? "" : fmt::format(" ({} each)", how.microbatches),
             planners::schedule_name(job));
    std::uint32_t first = 0;
    for (const auto& g : groups) {
      if (how.groups)
        out.line("\n{}, {} each:", counted(g.pipelines, "pipeline"),
                 counted(g.microbatches, "micro-batch"));
      show_stages(out, c, job, a, g, first);
      first += g.pipelines;
    }
    out.line("{} per iteration ({} by the closed form), {:.3g} samples/s, {:.2f} per hour.",
             duration_text(a.simulated.iteration_s), duration_text(a.closed.iteration_s),
             a.simulated.samples_per_s, a.simulated.cost_per_hour);
    if (const auto text = traffic_text(c, a.simulated); !text.empty()) out.line("{}", text);
    for (const auto& guess : guesses_of(c, job, a)) out.line("Note: {}.", guess);
  }

  static void show_stages(const output& out, const cluster& c, const job_spec& job,
                          const estimated_plan& a, const group_view& group, std::uint32_t first) {
    const bool named =
        std::ranges::any_of(group.stages, [](const auto& s) { return s.datacenter.has_value(); });
    std::vector<std::string> header{
        "stage", "GPU", "size", "GB/GPU", "forward", "backward", "update, all-reduce"};
    if (named) header.insert(header.begin() + 1, "in");
    table t{header};
    for (std::uint32_t s = 0; s < group.stages.size(); ++s) {
      const auto& stage = group.stages[s];
      const auto& k = a.timed.times.stages[first * group.stages.size() + s];
      std::vector<std::string> row{fmt::to_string(s),
                                   gpu_of(c, stage),
                                   planners::size_text(job.model, stage),
                                   fmt::format("{:.2f}", stage.bytes_per_gpu / bytes_per_gb),
                                   duration_text(k.forward),
                                   duration_text(k.backward),
                                   duration_text(k.update + k.exchange)};
      if (named)
        row.insert(row.begin() + 1,
                   stage.datacenter ? c.datacenters[*stage.datacenter].name : std::string{});
      t.row(row);
    }
    out.text("\n" + t.text(terminal_columns()) + "\n");
  }

  std::string job_, cluster_, profile_, schedule_, groups_;
  std::vector<std::string> stages_;
  std::uint32_t pipelines_ = 1, tensor_ = 1;
};

}  // namespace

std::unique_ptr<verb> make_estimate() {
  return std::make_unique<estimate_verb>();
}

}  // namespace troupe::cli
