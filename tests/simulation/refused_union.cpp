#include "simulation/refused_union.hpp"

#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "actors/worlds/virtual_cluster.hpp"
#include "harness/small_cluster.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::simulation {

namespace {

/// The first job gets the whole first node; two others are then to share half of it.
struct hasty final : planners::queue_policy {
  mutable int unions = 0;

  std::string_view name() const override { return "hasty"; }
  std::vector<planners::decision> decide(const planners::snapshot& s,
                                         random_source&) const override {
    if (s.waiting.empty()) return {};
    auto at = s.waiting.begin();
    const auto on = [&](std::uint32_t gpus) {
      plan how;
      how.data_parallel = gpus;
      auto d = planners::start_job(at->first, how, {{0, gpus}});
      d.expected = planners::start_estimate{1, 1e9, false, 5.0};
      return d;
    };
    if (at->first == 1) return {on(4)};
    if (s.waiting.size() < 2) return {};
    ++unions;
    auto d = on(2);
    d.with.push_back(std::next(at)->first);
    d.kind_of_union = merge_kind::shared;
    return {std::move(d)};
  }

 private:
  reason why_waits(const planners::snapshot&, const planners::job_view&) const override {
    return {reason::kind::insufficient, "waits for the first node"};
  }
};

}  // namespace

std::string run_refused_union(std::uint64_t seed) {
  actors::virtual_cluster_options o;
  o.cluster = harness::small_cluster();
  const auto policy = std::make_shared<hasty>();
  o.policy = policy;
  o.seed = seed;
  actors::virtual_cluster v{o};
  std::vector<arrival> workload;
  for (double at_s : {0.0, 5.0, 6.0}) {
    auto job = harness::small_job("tuning", 60);
    job.merging.dataset_card = {"photo", "animals"};
    workload.push_back({at_s, std::move(job)});
  }
  v.submit(std::move(workload));
  v.world().run_until(2000);
  for (job_id id = 1; id <= 3; ++id) {
    const auto a = v.ask(query_jobs{id, id});
    const auto* reply = a.reply ? std::get_if<query_reply>(&a.reply->first) : nullptr;
    if (!reply || reply->jobs.empty()) return fmt::format("nothing is known of job {}", id);
    if (reply->jobs[0].state != job_state::finished)
      return fmt::format("job {} is {}", id, to_string(reply->jobs[0].state));
  }
  return policy->unions > 1 ? "" : "no union was refused";
}

}  // namespace troupe::simulation
