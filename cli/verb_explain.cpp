#include "cli/remote.hpp"
#include "cli/table.hpp"
#include "cli/verb.hpp"

namespace troupe::cli {

namespace {

class explain_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", job_, "A job's number")->required();
    remote_.options(app);
  }

  int run(output& out) override {
    const auto reply = remote_.ask<explanation>(explain_job{0, job_});
    if (!reply) return out.no(reply.error());
    if (reply->job.job == 0) return out.no(reason{reason::kind::unknown, reply->summary});
    out.document(document(*reply));
    out.line("job {} ({}): {}", job_, reply->job.name, reply->summary);
    table plans{{"", "data", "tensor", "GPUs", "GB a GPU", "samples/s", ""}};
    for (const auto& p : reply->plans)
      plans.row({p.chosen ? ">" : "", fmt::to_string(p.what.data_parallel),
                 fmt::to_string(p.what.tensor_parallel), fmt::to_string(p.what.gpus()),
                 fmt::format("{:.2f}", p.what.bytes_per_gpu / bytes_per_gb),
                 fmt::format("{:.3g}", p.what.samples_per_s), p.verdict});
    if (!plans.empty()) out.text("\n" + plans.text());
    for (const auto& m : reply->memory) out.line("{}", memory_line(m));
    return exit_done;
  }

 private:
  static std::string memory_line(const memory_record& m) {
    const auto predicted =
        fmt::format("data {} x tensor {}: predicted {:.2f} GB a GPU", m.what.data_parallel,
                    m.what.tensor_parallel, m.predicted_bytes / bytes_per_gb);
    if (m.out_of_memory) return predicted + ", ran out of memory: the prediction failed";
    return fmt::format("{}, the program reported a peak of {:.2f} GB ({:.1f} % of it)", predicted,
                       m.peak_bytes / bytes_per_gb, 100 * m.peak_bytes / m.predicted_bytes);
  }

  static json document(const explanation& e) {
    json d{{"job", e.job.job},    {"name", e.job.name},     {"state", to_string(e.job.state)},
           {"reason", e.summary}, {"plans", json::array()}, {"memory", json::array()}};
    for (const auto& p : e.plans) {
      auto plan = plan_document(p.what);
      plan["chosen"] = p.chosen;
      plan["verdict"] = p.verdict;
      d["plans"].push_back(std::move(plan));
    }
    for (const auto& m : e.memory)
      d["memory"].push_back({{"plan", plan_document(m.what)},
                             {"predicted_bytes", m.predicted_bytes},
                             {"peak_bytes", m.peak_bytes > 0 ? json(m.peak_bytes) : json()},
                             {"out_of_memory", m.out_of_memory}});
    return d;
  }

  job_id job_ = 0;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_explain() {
  return std::make_unique<explain_verb>();
}

}  // namespace troupe::cli
