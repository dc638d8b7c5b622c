#include "cli/jobs_verb.hpp"

#include "cli/remote.hpp"
#include "cli/table.hpp"

namespace troupe::cli {

namespace {

/// `queue`: every job that has not ended; `status`: those that have, and the nodes, or one job.
class jobs_verb final : public verb {
 public:
  explicit jobs_verb(bool everything) : everything_{everything} {}

  void options(CLI::App& app) override {
    if (everything_) app.add_option("JOB", job_, "Only this job, by its number");
    remote_.options(app);
  }

  int run(output& out) override {
    const auto reply = remote_.ask<query_reply>(query_jobs{0, job_});
    if (!reply) return out.no(reply.error());
    if (job_ != 0 && reply->jobs.empty())
      return out.no(reason{reason::kind::unknown, fmt::format("there is no job {}", job_)});
    json document{{"policy", reply->policy}, {"now_s", reply->now_s}, {"jobs", json::array()}};
    table jobs{{"job", "name", "state", "age s", "attempts", "data", "tensor", "GPUs", ""}};
    for (const auto& j : reply->jobs) {
      if (!everything_ && is_final(j.state)) continue;
      document["jobs"].push_back(job_document(j, reply->nodes));
      const bool placed = !j.where.empty();
      const double until_s = j.ended_s > 0 ? j.ended_s : reply->now_s;
      jobs.row({fmt::to_string(j.job), j.name, to_string(j.state),
                fmt::format("{:.0f}", until_s - j.submitted_s), fmt::to_string(j.attempts),
                placed ? fmt::to_string(j.how.data_parallel) : "-",
                placed ? fmt::to_string(j.how.tensor_parallel) : "-",
                placed ? where_text(j, reply->nodes) : "-", is_final(j.state) ? j.detail : ""});
    }
    if (everything_) add_nodes(*reply, document);
    out.document(document);
    if (jobs.empty())
      out.line("No jobs{}.", everything_ ? "" : " wait or run");
    else
      out.text(jobs.text());
    if (everything_ && job_ == 0) show_nodes(out, *reply);
    return exit_done;
  }

 private:
  static void add_nodes(const query_reply& reply, json& document) {
    document["nodes"] = json::array();
    for (const auto& n : reply.nodes)
      document["nodes"].push_back({{"node", n.name},
                                   {"gpu", n.gpu_type},
                                   {"gpus", n.gpus},
                                   {"idle", n.idle},
                                   {"present", n.present}});
    document["gateways_absent"] = reply.gateways_absent;
  }

  static void show_nodes(const output& out, const query_reply& reply) {
    table nodes{{"node", "GPU type", "GPUs", "idle", ""}};
    for (const auto& n : reply.nodes)
      nodes.row({n.name, n.gpu_type, fmt::to_string(n.gpus), fmt::to_string(n.idle),
                 n.present ? "present" : "absent"});
    out.text("\n" + nodes.text());
    for (const auto& g : reply.gateways_absent) out.line("The gateway of {} is not heard.", g);
  }

  bool everything_;
  job_id job_ = 0;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_jobs_verb(bool everything) {
  return std::make_unique<jobs_verb>(everything);
}

}  // namespace troupe::cli
