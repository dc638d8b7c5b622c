#pragma once

#include <catch2/catch.hpp>

#include "actors/control/scheduling/job_views.hpp"
#include "actors/control/status/job_explainer.hpp"

// The state that the status desk explains jobs by.

namespace troupe::actors::tests {

/// Three types of GPU; nodes a-0 and a-1 of 40 GB, b-0 of 80 GB and c-0 of 16 GB.
inline cluster four_nodes() {
  cluster c;
  c.name = "four";
  c.gpus.push_back({"A100-40GB", 40, 312, 19.5, 1555, 0.45, 3.67, ""});
  c.gpus.push_back({"A100-80GB", 80, 312, 19.5, 1555, 0.45, 3.67, ""});
  c.gpus.push_back({"V100-16GB", 16, 125, 15.7, 900, 0.45, 1.5, ""});
  c.datacenters = {{"east", ""}, {"west", ""}};
  for (const auto& [name, gpu] : {std::pair{"a-0", 0u}, {"a-1", 0u}, {"b-0", 1u}, {"c-0", 2u}}) {
    troupe::node n;
    n.name = name;
    n.gpu = gpu;
    n.gpus = 4;
    c.nodes.push_back(n);
  }
  return c;
}

inline plan a_plan(std::uint32_t gpus, double gb, double samples_per_s, double cost = 2) {
  plan p;
  p.data_parallel = gpus;
  p.bytes_per_gpu = gb * 1e9;
  p.samples_per_s = samples_per_s;
  p.cost_per_hour = cost;
  return p;
}

/// The status desk's sources, as each test has them.
struct known_state {
  cluster c = four_nodes();
  std::unique_ptr<const planners::policy> policy = planners::make_policy("frenzy");
  std::shared_ptr<planners::idle_index> idle = std::make_shared<planners::idle_index>(c);
  cluster_state state{
      std::make_shared<const cluster>(c),       ledger{c}, shared_value{std::vector<bool>(4, true)},
      shared_value{std::vector<bool>(2, true)}, {},        idle};
  std::map<job_id, plans_reply> plans;
  std::map<job_id, progress_report> progress;
  std::map<job_id, placement_note> notes;
  std::map<std::uint32_t, gateway_traffic> traffic;
  bool starting = false;
  std::optional<planners::kept_gpus> kept;

  known_state() {
    for (node_index n = 0; n < 4; ++n) idle->set_idle(n, 4);
  }
  job_explainer explainer() const {
    return job_explainer{
        {c, *policy, state, plans, progress, notes, traffic, starting, 1000, {}, kept}};
  }
  job_spec spec() const {
    job_spec s;
    s.name = "one";
    s.iterations = 100;
    s.program.command = {"a program"};
    return s;
  }
  void submit(const job_spec& s) {
    REQUIRE(state.book.apply(job_accepted{1, 7, 1, s, "somebody"}));
  }
  /// Another one, which comes before the first.
  void submit_another() { REQUIRE(state.book.apply(job_accepted{2, 8, 1, spec(), "somebody"})); }
  void grant(const plan& how, std::vector<lease_part> parts) {
    lease_granted g;
    g.lease = 1;
    g.job = 1;
    g.at_s = 2;
    g.how = how;
    g.predicted_bytes = 10e9;
    g.parts = std::move(parts);
    REQUIRE(state.book.apply(g));
  }
  void plan_for(std::vector<plan> all, double factor = 1) {
    plans[1] = {1, std::make_shared<const std::vector<plan>>(std::move(all)), {}, factor, {}};
  }
  std::string waiting_reason() const {
    return explainer().status_of(*state.book.job(1)).waiting_reason;
  }
  explanation explained() const {
    const planners::snapshot now{0, c, *idle, planners::no_jobs, planners::no_jobs};
    const auto made = plans.find(1);
    const auto* known = made == plans.end() ? nullptr : made->second.plans.get();
    return explainer().explain(1, {why_waiting_text(*policy, now, 1, known), idle});
  }
};

}  // namespace troupe::actors::tests
