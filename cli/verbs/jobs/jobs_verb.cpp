#include <algorithm>
#include <functional>

#include <fmt/ranges.h>

#include "cli/connection/controller_connection.hpp"
#include "cli/connection/job_selection.hpp"
#include "cli/output/human.hpp"
#include "cli/output/table.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "web/dashboard/job_json.hpp"

namespace troupe::cli {

namespace {

/// A column of the table of jobs; empty columns are left out.
struct column {
  const char* title;
  std::function<std::string(const job_status&)> cell;
};

// Programs report iterations only if they follow the protocol, so 0 may mean that nothing is known.
std::string iteration_text(const job_status& j) {
  const bool unknown = j.iteration == 0 && (has_processes(j) || j.state != job_state::running);
  if (j.iterations == 0) return j.iteration > 0 ? grouped(j.iteration) : "-";
  // A job without a known length has one iteration.
  if (j.iterations == 1 || unknown) return "-";
  return fmt::format("{}/{}", grouped(j.iteration), grouped(j.iterations));
}

/// Why it is waiting, how it ended, or with whom it runs.
std::string reason_text(const job_status& j) {
  if (j.merged_with) return fmt::format("merged with {}", fmt::join(*j.merged_with, ", "));
  if (j.retry_in_s)
    return fmt::format("{}, {} (before: {})", j.waiting_reason, duration_text(*j.retry_in_s),
                       j.detail);
  if (j.waiting_reason.empty() || j.detail.empty())
    return j.waiting_reason.empty() && j.detail.empty() ? "-" : j.waiting_reason + j.detail;
  if (j.detail.starts_with(j.waiting_reason)) return j.detail;  // "suspended", "suspended by bob"
  return fmt::format("{} (before: {})", j.waiting_reason, j.detail);
}

std::vector<column> job_columns(const query_reply& reply, bool everything) {
  const auto seconds = [&reply](const job_status& j) {
    return (j.ended_s > 0 ? j.ended_s : reply.now_s) - j.submitted_s;
  };
  // The title names the parts of the cells; the third is there only if a job of the list has
  // pipelines.
  const bool pipelines = std::ranges::any_of(reply.jobs, [](const job_status& j) {
    return web::is_placed(j) && j.how.pipeline_parallel > 1;
  });
  const column split{
      pipelines ? "data x tensor x pipeline" : "data x tensor", [pipelines](const job_status& j) {
        if (!web::is_placed(j)) return std::string{"-"};
        const auto both = fmt::format("{} x {}", j.how.data_parallel, j.how.tensor_parallel);
        return pipelines ? fmt::format("{} x {}", both, j.how.pipeline_parallel) : both;
      }};
  std::vector<column> all{
      {"job", [](const job_status& j) { return fmt::to_string(j.job); }},
      {"name", [](const job_status& j) { return j.name; }},
      {"owner",
       [](const job_status& j) { return j.owner.empty() || j.owner == "local" ? "-" : j.owner; }},
      {"state", [](const job_status& j) { return std::string{to_string(j.state)}; }},
      {"priority",
       [](const job_status& j) { return j.priority ? fmt::to_string(j.priority) : "-"; }},
      {"model", [](const job_status& j) { return j.model.empty() ? "-" : j.model; }}};
  if (everything) {
    // A job that has ended has no age any more.
    all.push_back({"age", [=](const job_status& j) {
                     return (is_final(j.state) ? "took " : "") + duration_text(seconds(j));
                   }});
    all.push_back(
        {"attempts", [](const job_status& j) { return fmt::to_string(j.progress.attempts); }});
    all.push_back(split);
  } else {
    all.push_back({"submitted", [](const job_status& j) { return time_text(j.submitted_s); }});
  }
  const std::vector<column> rest{
      {"GPUs",
       [&reply](const job_status& j) {
         return web::is_placed(j) ? where_text(j, reply.nodes) : "-";
       }},
      {"iteration", iteration_text},
      {"loss", [](const job_status& j) { return j.loss ? fmt::format("{:.4f}", *j.loss) : "-"; }},
      {"held-out loss",
       [](const job_status& j) {
         return j.held_out ? fmt::format("{:.4f}", j.held_out->loss) : "-";
       }},
      {"tokens/s",
       [](const job_status& j) {
         return j.tokens_per_s ? grouped(static_cast<std::uint64_t>(*j.tokens_per_s)) : "-";
       }},
      {"ETA", [](const job_status& j) { return duration_or(j.eta_s); }},
      {"exit",
       [](const job_status& j) {
         return is_final(j.state) && j.exit_code ? fmt::to_string(*j.exit_code) : "-";
       }},
      {"reason", reason_text}};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

table table_of(const std::vector<const job_status*>& jobs, std::vector<column> columns) {
  // A small cluster's jobs have no owners, priorities or losses: without those columns rows fit a
  // terminal.
  std::erase_if(columns, [&](const column& c) {
    return std::all_of(jobs.begin(), jobs.end(), [&](const auto* j) { return c.cell(*j) == "-"; });
  });
  std::vector<std::string> titles;
  for (const auto& c : columns) titles.emplace_back(c.title);
  table t{titles};
  for (const auto* j : jobs) {
    std::vector<std::string> cells;
    for (const auto& c : columns) cells.push_back(c.cell(*j));
    t.row(std::move(cells));
  }
  return t;
}

/// `queue`: every job that has not ended; `status`: those that have, and the nodes, or one job.
class jobs_verb final : public verb {
 public:
  explicit jobs_verb(bool everything) : everything_{everything} {}

  void options(CLI::App& app) override {
    if (everything_) numbers_.options(app, "Show only these jobs");
    if (everything_)
      app.add_flag("--job-file", job_file_,
                   "Print the job's file, with what was measured of an elastic program");
    selection_.options(app);
    app.add_option("--last", last_, "Only the last N of them")->check(CLI::PositiveNumber);
    remote_.options(app);
  }

  int run(output& out) override {
    const auto ids = numbers_.ids();
    if (!ids) return out.bad(ids.error());
    if (job_file_) return print_job_file(out, *ids);
    std::vector<job_id> unknown;
    const auto reply = ids->empty() ? remote_.ask_all_jobs() : ask(*ids, unknown);
    if (!reply) return out.failure(reply.error());
    if (!unknown.empty() && unknown.size() == ids->size())
      return out.failure(none_of(unknown.front()));
    json document{{"policy", reply->policy}, {"now_s", reply->now_s}, {"jobs", json::array()}};
    std::vector<const job_status*> shown;
    for (const auto& j : reply->jobs) {
      if (!everything_ && is_final(j.state)) continue;
      if (selection_.holds(j, remote_.caller())) shown.push_back(&j);
    }
    // After the filters, so that --last counts what the user asked for.
    if (last_ > 0 && shown.size() > last_)
      shown.erase(shown.begin(), shown.end() - static_cast<std::ptrdiff_t>(last_));
    for (const auto* j : shown) document["jobs"].push_back(web::job_document(*reply, *j));
    const bool older = everything_ && ids->empty() && reply->older_left_out.value_or(false);
    if (everything_) {
      document["older_left_out"] = older;
      add_nodes(*reply, document);
    }
    out.document(document);
    if (shown.empty())
      out.line("No {}jobs{}.", selection_.empty() ? "" : "such ",
               everything_ ? "" : " wait or run");
    else
      out.text(table_of(shown, job_columns(*reply, everything_)).text(terminal_columns()));
    if (older) print_left_out(out, *reply);
    for (const auto* j : shown)
      if (everything_ && web::is_placed(*j) && j->groups)
        for (const auto& group : *j->groups) out.line("Job {}: {}.", j->job, group);
    if (shown.size() == 1 && shown.front()->elastic) show_elastic(out, *shown.front()->elastic);
    // A question about some jobs is not one about the nodes.
    if (everything_ && numbers_.empty() && selection_.empty() && last_ == 0)
      show_nodes(out, *reply);
    for (const auto id : unknown) out.note("troupe: {}", none_of(id).text);
    return unknown.empty() ? exit_done : exit_no;
  }

 private:
  static reason none_of(job_id id) { return {reason::kind::unknown, fmt::format("no job {}", id)}; }

  /// The jobs with these numbers in one reply; those that do not exist are `unknown`.
  expected<query_reply> ask(const std::vector<job_id>& ids, std::vector<job_id>& unknown) {
    expected<query_reply> all = query_reply{};
    std::vector<job_status> jobs;
    // One question each: the protocol asks for one job or for all, and all may be many.
    for (const auto id : ids) {
      all = remote_.ask<query_reply>(query_jobs{0, id});
      if (!all) return all;
      if (all->jobs.empty())
        unknown.push_back(id);
      else
        jobs.push_back(std::move(all->jobs.front()));
    }
    all->jobs = std::move(jobs);
    return all;
  }

  int print_job_file(output& out, const std::vector<job_id>& ids) {
    if (ids.size() != 1) return out.bad("--job-file: expected the number of one job");
    query_jobs question{0, ids.front()};
    question.spec = true;
    const auto reply = remote_.ask<query_reply>(question);
    if (!reply) return out.failure(reply.error());
    if (reply->jobs.empty()) return out.failure(none_of(ids.front()));
    const auto& j = reply->jobs.front();
    if (!reply->spec)
      return out.failure(
          reason{reason::kind::refused,
                 fmt::format("job {} belongs to {}: only its owner and operators see its "
                             "file",
                             j.job, j.owner)});
    auto job = *reply->spec;
    if (job.program.elastic && j.elastic) take_measured(*job.program.elastic, *j.elastic);
    const auto text = formats::job_text(job);
    out.document({{"job", j.job}, {"file", text}});
    out.text(text);
    return exit_done;
  }

  /// Costs as measured in place of those that the user gave.
  static void take_measured(elastic& e, const elastic_status& measured) {
    if (measured.start_s) e.start_s = measured.start_s;
    if (measured.save_s) e.save_s = measured.save_s;
    if (measured.rates.empty()) return;
    e.rates.clear();
    for (const auto& r : measured.rates) e.rates.push_back(r.measured);
  }

  static void show_elastic(const output& out, const elastic_status& e) {
    const auto seconds = [](const std::optional<double>& s) {
      return s ? fmt::format("{:.3g} s", *s) : "unknown";
    };
    out.line("Elastic: saved up to iteration {}; stopped {} times, {} iterations lost.", e.saved,
             e.stops, e.lost_iterations);
    out.line("Starting takes {}, saving {}; its last pause took {}.", seconds(e.start_s),
             seconds(e.save_s), seconds(e.pause_s));
    for (const auto& r : e.rates)
      out.line("{:.4g} samples/s on {} {} ({:.4g} estimated).", r.measured.samples_per_s,
               r.measured.gpus, r.measured.gpu, r.estimated_samples_per_s);
  }

  void print_left_out(const output& out, const query_reply& reply) const {
    const auto ended =
        std::ranges::count_if(reply.jobs, [](const job_status& j) { return is_final(j.state); });
    out.line(
        "Of the jobs that have ended, only the newest {} {}. `troupe status 1-50` shows jobs by "
        "number.",
        ended, selection_.empty() && last_ == 0 ? "are shown" : "were searched");
  }

  static void add_nodes(const query_reply& reply, json& document) {
    document["nodes"] = json::array();
    for (const auto& n : reply.nodes)
      if (!n.removed.value_or(false))
        document["nodes"].push_back({{"node", n.name},
                                     {"gpu", n.gpu_type},
                                     {"gpus", n.gpus},
                                     {"idle", n.idle},
                                     {"present", n.present},
                                     {"state", state_of(n)}});
    document["gateways_absent"] = reply.gateways_absent;
    document["gateways"] = json::array();
    for (const auto& g : reply.gateways)
      document["gateways"].push_back({{"datacenter", g.datacenter},
                                      {"wan_sent_bytes", g.traffic.wan_sent_bytes},
                                      {"wan_received_bytes", g.traffic.wan_received_bytes},
                                      {"relayed_bytes", g.traffic.relayed_bytes}});
  }

  static void show_nodes(const output& out, const query_reply& reply) {
    table nodes{{"node", "GPU type", "GPUs", "idle", "state"}};
    for (const auto& n : reply.nodes)
      if (!n.removed.value_or(false))
        nodes.row({n.name, n.gpu_type, fmt::to_string(n.gpus), fmt::to_string(n.idle),
                   fmt::format("{}{}", state_of(n),
                               n.drained.value_or(false) && !n.present ? ", absent" : "")});
    out.text("\n" + nodes.text());
    table gateways{{"gateway", "WAN sent", "WAN received", "relayed inside"}};
    for (const auto& g : reply.gateways)
      if (g.traffic != gateway_traffic{})
        gateways.row({g.datacenter, size_text(g.traffic.wan_sent_bytes),
                      size_text(g.traffic.wan_received_bytes), size_text(g.traffic.relayed_bytes)});
    if (!gateways.empty()) out.text("\n" + gateways.text());
    for (const auto& g : reply.gateways_absent) out.line("The gateway of {} is not reachable.", g);
  }

  bool everything_;
  bool job_file_ = false;
  job_numbers numbers_;
  job_selection selection_;
  std::size_t last_ = 0;  // 0: all
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_queue() {
  return std::make_unique<jobs_verb>(false);
}

std::unique_ptr<verb> make_status() {
  return std::make_unique<jobs_verb>(true);
}

}  // namespace troupe::cli
