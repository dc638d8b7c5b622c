// The policy over a trace, in virtual time, while hosts die and come back.
#define CATCH_CONFIG_MAIN
#include "shortest_first.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "formats/load/load.hpp"
#include "formats/traces/trace.hpp"
#include "formats/traces/workload.hpp"
#include "messages/wire/journal.hpp"
#include "planners/plans/trace_duration.hpp"
#include "studies/workload_simulation.hpp"

using namespace troupe;

namespace {

const std::string here = MY_POLICY_FILES;

template <class T>
T must(expected<T> x) {
  if (!x) FAIL(x.error().text);
  return std::move(*x);
}

/// The GPUs that jobs hold, by the controller's own journal.
class gpu_holders {
 public:
  void take(const journal_entry& entry) {
    if (const auto* granted = std::get_if<lease_granted>(&entry)) {
      for (const auto& part : granted->parts)
        for (const auto gpu : part.devices) twice_ += held_.insert({part.node, gpu}).second ? 0 : 1;
      parts_[granted->lease] = granted->parts;
    } else if (const auto* ended = std::get_if<part_ended>(&entry)) {
      const auto& part = parts_.at(ended->lease)[ended->part];
      for (const auto gpu : part.devices) held_.erase({part.node, gpu});
    }
  }
  int held_twice() const { return twice_; }
  std::size_t held() const { return held_.size(); }

 private:
  std::set<std::pair<node_index, std::uint16_t>> held_;
  std::map<lease_id, std::vector<lease_part>> parts_;
  int twice_ = 0;
};

struct run {
  studies::policy_result result;
  gpu_holders gpus;
};

run simulate(std::shared_ptr<const planners::policy> policy, std::uint64_t seed,
             const fault_plan& faults) {
  const auto c =
      std::make_shared<const cluster>(must(formats::load_cluster(here + "/cluster.yaml")));
  const auto rows = must(formats::load_trace(here + "/trace.csv"));
  auto workload =
      must(formats::assign(rows, "frenzy", 1, *c, [&](const job_spec& job, std::uint32_t gpus) {
        return planners::reference_iteration_s(*c, job, gpus);
      }));
  run r;
  studies::simulation_options options;
  options.cluster = c;
  options.seed = seed;
  options.faults = faults;
  options.on_entry = [&r](const journal_entry& entry) { r.gpus.take(entry); };
  r.result = must(studies::simulate(options, std::move(workload), std::move(policy)));
  return r;
}

const auto mine = std::make_shared<const shortest_first>();

}  // namespace

TEST_CASE("under faults every job ends well, no GPU is held twice, and a seed gives the same run") {
  const auto faults = must(formats::load_faults(here + "/faults.yaml"));
  std::set<std::uint64_t> fingerprints;
  double restarts = 0;
  for (const std::uint64_t seed : {1, 2, 3}) {
    INFO("seed " << seed);
    const auto first = simulate(mine, seed, faults), second = simulate(mine, seed, faults);
    CHECK(first.result.jobs == 24);
    CHECK(first.result.finished == first.result.jobs);
    CHECK(first.gpus.held_twice() == 0);
    CHECK(first.gpus.held() == 0);
    CHECK(first.result.fingerprint == second.result.fingerprint);
    fingerprints.insert(first.result.fingerprint);
    restarts += first.result.restarts_per_job;
  }
  CHECK(fingerprints.size() == 3);
  CHECK(restarts > 0);  // the faults did hit jobs
}

TEST_CASE("jobs end sooner on average than in the order of their arrival") {
  const auto ours = simulate(mine, 1, {});
  const auto frenzy = simulate(planners::make_policy("frenzy"), 1, {});
  CHECK(ours.result.average_jct_s < 0.95 * frenzy.result.average_jct_s);
}
