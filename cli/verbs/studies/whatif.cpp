#include <algorithm>
#include <iterator>

#include "cli/options/profile_option.hpp"
#include "cli/output/human.hpp"
#include "cli/output/table.hpp"
#include "cli/programs/described_program.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "formats/parse/reader.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/search/datacenter_selection.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::cli {

namespace {

using planners::selection;
using planners::selection_row;

constexpr std::size_t splits_for_people = 20, orders_for_people = 6;

/// Algorithm 1's result, and those of other orders of datacenters.
struct whatif_answer {
  selection table;
  std::vector<planners::order_outcome> orders;
  double seconds = 0;
};

/// Without the numbers of cells that memory or the batch excludes.
std::vector<selection_row> rows_that_fit(const selection& s) {
  std::vector<selection_row> out;
  std::ranges::copy_if(s.rows, std::back_inserter(out), &selection_row::feasible);
  return out;
}

// Stages in each datacenter, by name: the algorithm's own order of datacenters is a result, too.
json partitions_of(const cluster& c, const selection& s, const selection_row& r) {
  json out = json::object();
  for (std::size_t i = 0; i < r.partitions.size(); ++i)
    out[c.datacenters[s.datacenters[i].datacenter].name] = r.partitions[i];
  return out;
}

// One number of DP-cells, a row of Algorithm 1's table.
json row_document(const cluster& c, const selection& s, const selection_row& r) {
  return {{"dp_cells", r.cells},
          {"data_parallel", r.data_parallel},
          {"partitions", partitions_of(c, s, r)},
          {"gpus", r.gpus},
          {"microbatches", r.microbatches},
          {"rows_per_microbatch", r.rows},
          {"feasible", r.feasible()},
          {"iteration_s", r.iteration_s},
          {"pipeline_s", r.pipeline_s},
          {"allreduce_s", r.allreduce_s},
          {"throughput", r.throughput},
          {"samples_per_s", r.samples_per_s},
          {"cost_per_hour", r.cost_per_hour},
          {"traffic_per_iteration", r.traffic_per_iteration},
          {"cost_per_iteration", planners::cost_of_iteration(r)}};
}

// The same search with the datacenters filled in another order: which one is first decides how many
// stages have a WAN hop.
json order_document(const cluster& c, const planners::order_outcome& o) {
  json order = json::array(), parts = json::object();
  for (std::size_t i = 0; i < o.order.size(); ++i) {
    const auto& name = c.datacenters[o.order[i]].name;
    order.push_back(name);
    parts[name] = o.row.partitions[i];
  }
  return {{"order", order},
          {"dp_cells", o.row.cells},
          {"data_parallel", o.row.data_parallel},
          {"partitions", parts},
          {"gpus", o.row.gpus},
          {"iteration_s", o.row.iteration_s},
          {"throughput", o.row.throughput},
          {"samples_per_s", o.row.samples_per_s},
          {"cost_per_hour", o.row.cost_per_hour},
          {"traffic_per_iteration", o.row.traffic_per_iteration},
          {"cost_per_batch", o.cost_per_batch},
          {"wan_rtt_ms", o.wan_rtt_ms}};
}

json document(const cluster& c, const job_spec& job, const whatif_answer& a) {
  json rows = json::array(), orders = json::array(), order = json::array();
  for (const auto& r : rows_that_fit(a.table)) rows.push_back(row_document(c, a.table, r));
  for (const auto& o : a.orders) orders.push_back(order_document(c, o));
  for (const auto& d : a.table.datacenters) order.push_back(c.datacenters[d.datacenter].name);
  return {{"job", job.name},
          {"cluster", c.name},
          {"communication_to_compute", a.table.communication_to_compute},
          {"stages", a.table.stages},
          {"pipelines_per_cell", a.table.cell},
          {"order", order},
          {"rows", rows},
          {"rows_left_out", a.table.rows.size() - rows.size()},
          {"best", a.table.chosen()->cells},
          {"simulated", a.table.simulated},
          {"traffic_is_priced", prices_traffic(c)},
          {"orders", orders},
          {"seconds", a.seconds}};
}

/// "dc1 50, dc2 10"
template <class Names>
std::string parts_text(const std::vector<std::uint32_t>& parts, Names&& name) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i] > 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name(i), parts[i]);
  return out;
}

std::string table_text(const cluster& c, const selection& s, bool slots) {
  std::vector<std::string> heads{"", "cells", "pipelines", "stages by datacenter", "GPUs"};
  if (slots)
    heads.insert(heads.end(), {"iteration slots", "all-reduce slots", "throughput/slot"});
  else
    heads.insert(heads.end(),
                 {"iteration", "all-reduce", "throughput/s", "cost/h", "cost/iteration"});
  table t{heads};
  // A long table is cut to the rows around the best.
  // The neighbours of the best show whether more or fewer cells would cost much.
  const auto rows = rows_that_fit(s);
  const auto best = static_cast<std::size_t>(
      std::ranges::find(rows, s.chosen()->cells, &selection_row::cells) - rows.begin());
  const auto first = best < splits_for_people / 2 ? 0 : best - splits_for_people / 2;
  const auto end = std::min(rows.size(), first + splits_for_people);
  for (auto i = end == rows.size() && end > splits_for_people ? end - splits_for_people : first;
       i < end; ++i) {
    const auto& r = rows[i];
    const auto name = [&](std::size_t dc) {
      return c.datacenters[s.datacenters[dc].datacenter].name;
    };
    const auto known = [&](double x) { return fmt::format("{:.4g}", x); };
    const auto time = [&](double x) { return slots ? known(x) : duration_text(x); };
    std::vector<std::string> cells{i == best ? ">" : "",
                                   fmt::to_string(r.cells),
                                   fmt::to_string(r.data_parallel),
                                   parts_text(r.partitions, name),
                                   fmt::to_string(r.gpus),
                                   time(r.iteration_s),
                                   time(r.allreduce_s),
                                   known(r.throughput)};
    if (!slots) {
      cells.push_back(fmt::format("{:.2f}", r.cost_per_hour));
      cells.push_back(fmt::format("{:.3g}", planners::cost_of_iteration(r)));
    }
    t.row(std::move(cells));
  }
  return t.text(terminal_columns());
}

/// Orders with equal results share a row.
std::string orders_text(const cluster& c, const whatif_answer& a, bool slots) {
  std::vector<std::pair<const planners::order_outcome*, std::size_t>> distinct;
  // As printed: orders that differ only in later digits look equal to people.
  const auto figures = [](const planners::order_outcome& o) {
    return fmt::format("{} {:.4g} {:.2f} {:.3g} {:g}", o.row.gpus, o.row.throughput,
                       o.row.cost_per_hour, o.cost_per_batch, o.wan_rtt_ms);
  };
  for (const auto& o : a.orders) {
    const auto same = std::ranges::find_if(
        distinct, [&](const auto& d) { return figures(*d.first) == figures(o); });
    if (same == distinct.end())
      distinct.emplace_back(&o, 1);
    else
      ++same->second;
  }
  if (distinct.size() == 1)
    return fmt::format("By estimate, all {} orders of these datacenters are equivalent.\n",
                       a.orders.size());
  std::vector<std::string> heads{"datacenter order", "equivalent", "GPUs",
                                 slots ? "throughput/slot" : "throughput/s"};
  if (!slots) heads.insert(heads.end(), {"cost/h", "cost/batch", "WAN rtt ms"});
  table t{heads};
  for (std::size_t i = 0; i < std::min(distinct.size(), orders_for_people); ++i) {
    const auto& [o, alike] = distinct[i];
    const auto name = [&c, &o = o](std::size_t dc) { return c.datacenters[o->order[dc]].name; };
    std::vector<std::string> cells{parts_text(o->row.partitions, name), fmt::to_string(alike),
                                   fmt::to_string(o->row.gpus),
                                   fmt::format("{:.4g}", o->row.throughput)};
    if (!slots) {
      cells.push_back(fmt::format("{:.2f}", o->row.cost_per_hour));
      cells.push_back(fmt::format("{:.3g}", o->cost_per_batch));
      cells.push_back(fmt::format("{:g}", o->wan_rtt_ms));
    }
    t.row(std::move(cells));
  }
  return "Estimates for other datacenter orders:\n\n" + t.text(terminal_columns());
}

/// ATLAS's Algorithm 1 for a job: how many DP-cells over which datacenters give the most
/// throughput, and what other orders of datacenters would change.
class whatif_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", job_, "Job file with a model or slots")->required();
    app.add_option("--cluster", cluster_, "Cluster file")->required();
    app.add_option("--order", order_, "Datacenters in the order in which to fill them")
        ->delimiter(',');
    app.add_option("--stages", stages_,
                   "Pipeline stages (default: the job's, or the fewest that fit)")
        ->check(CLI::Range(1u, 100'000u));
    app.add_option("--profile", profile_,
                   "Profile of the GPUs (troupe profile), instead of the cost model");
    app.add_flag("--fixed-batch", fixed_,
                 "Keep the job's batch (default: the batch grows with the pipelines)");
  }

  int run(output& out) override {
    auto c = formats::load_cluster(cluster_);
    if (!c) return out.bad(c.error());
    const auto job = load_job(job_);
    if (!job) return out.bad(job.error());
    if (!facts_of(*job).has_end)
      return out.bad(fmt::format("{}: a job that serves a model is no training", job_));
    if (auto ok = use_profile(profile_, *job, *c); !ok) return out.bad(ok.error());
    planners::selection_options o;
    o.stages = stages_;
    // Algorithm 1 compares throughput, so each pipeline brings its own batch unless the user wants
    // one global batch.
    o.batch = fixed_ ? planners::batch_rule::whole : planners::batch_rule::each;
    if (auto ok = read_order(*c, o.order); !ok) return out.bad(ok.error());

    // All GPUs are idle here: the question is about the cluster, not about its present load.
    const planners::idle_index idle{*c};
    const runtime::stopwatch watch;
    auto table = planners::select_datacenters(*c, idle, *job, o);
    if (!table) {
      out.document({{"job", job->name},
                    {"rows", json::array()},
                    {"best", nullptr},
                    {"reason", table.error().text}});
      return out.failure(table.error());
    }
    whatif_answer a{std::move(*table), planners::what_if_orders(*c, idle, *job, o), 0};
    a.seconds = watch.s();
    out.document(document(*c, *job, a));
    show(out, *c, *job, a);
    return exit_done;
  }

 private:
  expected<void> read_order(const cluster& c, std::vector<std::uint32_t>& order) const {
    const auto known = formats::names_of(c.datacenters);
    for (const auto& name : order_) {
      const auto at = std::ranges::find(known, name);
      if (at == known.end())
        return refuse(reason::kind::unknown,
                      fmt::format("no datacenter '{}'{}", name, formats::hint(name, known)));
      const auto index = static_cast<std::uint32_t>(at - known.begin());
      // An order with a repeated datacenter would use its GPUs twice.
      if (std::ranges::find(order, index) != order.end())
        return refuse(reason::kind::invalid, fmt::format("--order lists '{}' twice", name));
      order.push_back(index);
    }
    return {};
  }

  void show(const output& out, const cluster& c, const job_spec& job,
            const whatif_answer& a) const {
    const auto& s = a.table;
    const bool slots = !facts_of(job).has_model;
    out.line("{} on {}: pipelines of {}, communication / compute {:.2f}, {} per DP-cell", job.name,
             c.name, counted(s.stages, "stage"), s.communication_to_compute,
             counted(s.cell, "pipeline"));
    out.text("\n" + table_text(c, s, slots) + "\n");
    const auto fit = rows_that_fit(s).size();
    if (fit > splits_for_people)
      out.line("{} more rows (--json has all)\n", fit - splits_for_people);
    if (const auto others = s.rows.size() - fit; others > 0)
      out.line("{} of cells {} fit the memory, or divide the batch\n",
               counted(others, "other number"), others == 1 ? "does not" : "do not");
    if (a.orders.size() > 1) out.text(orders_text(c, a, slots) + "\n");
    const auto& best = *s.chosen();
    const auto what = fmt::format("Best: {} on {}", counted(best.data_parallel, "pipeline"),
                                  counted(best.gpus, "GPU"));
    if (slots)
      out.line("{}, {:.4g} slots per iteration.", what, best.iteration_s);
    else
      out.line("{}, {} per iteration, {:.2f} per hour.", what, duration_text(best.iteration_s),
               best.cost_per_hour);
    if (!slots && best.crosses() && !prices_traffic(c))
      out.line("Its traffic between datacenters is not priced.");
    else if (!slots && best.crosses())
      out.line("Its traffic between datacenters costs {:.4g} per iteration.",
               best.traffic_per_iteration);
    out.line("{} in {}.", s.simulated ? "Simulated" : "Estimated", duration_text(a.seconds));
  }

  std::string job_, cluster_, profile_;
  std::vector<std::string> order_;
  std::uint32_t stages_ = 0;
  bool fixed_ = false;
};

}  // namespace

std::unique_ptr<verb> make_whatif() {
  return std::make_unique<whatif_verb>();
}

}  // namespace troupe::cli
