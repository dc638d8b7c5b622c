#include "actors/control/status/known_state.hpp"

#include <fmt/format.h>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

TEST_CASE("nodes and gateways are listed with their presence and traffic") {
  known_state k;
  k.state.nodes_present = shared_value{std::vector<bool>{true, false, true, true}};
  k.state.gateways_present = shared_value{std::vector<bool>{false, true}};
  k.idle->set_idle(2, 1);
  k.traffic[1].wan_sent_bytes = 77;
  const auto r = k.explainer().nodes();
  CHECK(r.policy == "frenzy");
  REQUIRE(r.nodes.size() == 4);
  CHECK(r.nodes[1].name == "a-1");
  CHECK_FALSE(r.nodes[1].present);
  CHECK(r.nodes[2].present);
  CHECK(r.nodes[2].idle == 1);
  CHECK(r.gateways_absent == std::vector<std::string>{"east"});
  REQUIRE(r.gateways.size() == 2);
  CHECK(r.gateways[0].traffic.wan_sent_bytes == 0);
  CHECK(r.gateways[1].traffic.wan_sent_bytes == 77);
}

TEST_CASE("a job waits for its plans, for nodes, for GPUs, or for its turn") {
  known_state k;
  k.submit(k.spec());
  CHECK(k.waiting_reason() == "planning");
  CHECK(k.explained().summary == "planning is in progress");
  k.plan_for({a_plan(4, 30, 10)}, 2);  // plans for another memory factor
  CHECK(k.waiting_reason() == "planning");
  k.plan_for({a_plan(4, 30, 10)});
  k.starting = true;
  CHECK(k.waiting_reason() == "nodes to report");
  k.state.nodes_present = shared_value{std::vector<bool>{true, false, true, false}};
  CHECK(k.explained().summary ==
        "the controller has just started and waits for reports from nodes a-1, c-0");
  k.starting = false;
  CHECK(k.waiting_reason() == "resources");  // nobody comes before the only one that waits
  k.policy = planners::make_policy("sia");
  CHECK(k.waiting_reason() == "next round");
  k.policy = planners::make_policy("frenzy");
  k.submit_another();
  CHECK(k.waiting_reason() == "priority");
  k.plan_for({a_plan(13, 30, 10), a_plan(12, 30, 10)});
  CHECK(k.waiting_reason() == "priority");  // 12 GPUs have more
  k.plan_for({a_plan(13, 30, 10)});
  CHECK(k.waiting_reason() == "resources");
  k.plan_for({});
  CHECK(k.waiting_reason() == "no feasible plan");
  REQUIRE(k.state.book.apply(job_suspended{1, 3, true, "somebody", 9}));
  CHECK(k.waiting_reason() == "suspended");
  CHECK(k.explained().summary ==
        "suspended after iteration 0 of 100; `troupe resume 1` resumes it");
}

TEST_CASE("why a job waits counts what is idle of its plans' types, and what it may have of them") {
  known_state k;
  auto s = k.spec();
  auto how = a_plan(4, 30, 10);
  how.gpu_types = {0};
  k.submit_another();
  const auto lose = [&k](std::vector<std::uint32_t> idle) {
    for (node_index n = 0; n < 4; ++n) k.idle->set_idle(n, idle[n]);
  };
  SECTION("of lost nodes none are, and those of other types are no help") {
    k.submit(s);
    k.plan_for({how});
    CHECK(k.waiting_reason() == "priority");
    lose({0, 2, 4, 4});
    CHECK(k.waiting_reason() == "resources");
    CHECK(k.explained().plans[0].verdict == "needs 4 GPUs with more than 30.00 GB; 2 are idle");
  }
  SECTION("of a type no more than its quota") {
    k.c.gpus[0].quota = 3;
    k.submit(s);
    k.plan_for({how});
    CHECK(k.waiting_reason() == "resources");
    CHECK(k.explained().plans[0].verdict == "needs 4 GPUs with more than 30.00 GB; 3 are idle");
  }
  SECTION("only of the type that it asks for") {
    s.limits.required_gpu_type = "A100-80GB";
    how.gpu_types = {};
    how.data_parallel = 5;
    k.submit(s);
    k.plan_for({how});
    CHECK(k.waiting_reason() == "resources");
    CHECK(k.explained().plans[0].verdict == "needs 5 GPUs with more than 30.00 GB; 4 are idle");
  }
  SECTION("of a program with an exact number, the same number on each node") {
    s.request.exact = true;
    s.request.gpus = 4;
    k.submit(s);
    k.plan_for({how});
    lose({3, 1, 4, 4});
    CHECK(k.waiting_reason() == "resources");
    CHECK(k.explained().plans[0].verdict ==
          "needs 4 GPUs with more than 30.00 GB, the same number on each node; 4 are idle");
    lose({2, 2, 0, 0});
    CHECK(k.waiting_reason() == "priority");
  }
  SECTION("for the number that the job asks for, where the policy gives it that") {
    s.request.gpus = 9;
    s.program.command.clear();
    how.gpu_types = {0};
    k.submit(s);
    auto all = a_plan(9, 30, 10);
    all.gpu_types = {0};
    k.plan_for({how, all});
    CHECK(k.waiting_reason() == "priority");
    k.policy = planners::make_policy("fcfs");
    CHECK(k.waiting_reason() == "resources");
  }
}

TEST_CASE("a job whose GPUs are kept for another one waits for that reservation") {
  known_state k;
  k.submit(k.spec());
  k.submit_another();
  auto how = a_plan(4, 30, 10);
  how.gpu_types = {0};
  k.plan_for({how});
  CHECK(k.waiting_reason() == "priority");
  k.kept = planners::kept_gpus{2, {{0, 4}}, 900};
  CHECK(k.waiting_reason() == "priority");  // a-1 is enough
  k.kept->where = {{0, 4}, {1, 1}};
  CHECK(k.waiting_reason() == "reservation");
  k.kept->job = 1;
  CHECK(k.waiting_reason() == "priority");
}

TEST_CASE("of a program of unknown memory and model neither is shown") {
  known_state k;
  auto s = k.spec();
  s.request.exact = s.assumed.model = true;
  s.model.name = "gpt2-124m";
  s.iterations = 1;
  s.request.gpus = 4;
  k.submit(s);
  auto how = a_plan(4, 0.001, 8);
  how.gpu_types = {0, 1, 2};
  k.plan_for({how});
  auto e = k.explained();
  CHECK(e.job.model.empty());
  CHECK(e.plans[0].verdict == "needs 4 GPUs; 16 are idle");
  CHECK(e.plans[0].what.bytes_per_gpu == 0);
  k.grant(a_plan(4, 0.001, 8), {{0, 4, {0, 1, 2, 3}}});
  e = k.explained();
  CHECK(e.job.predicted_bytes == 0);
  CHECK(e.summary == "running on GPUs 4 of a-0 (A100-40GB) with data 4 x tensor 1");
}

TEST_CASE("of many absent nodes, the first ten are named") {
  known_state k;
  while (k.c.nodes.size() < 13) k.c.nodes.push_back(k.c.nodes[0]);
  for (std::size_t n = 0; n < 13; ++n) k.c.nodes[n].name = fmt::format("n{}", n);
  k.submit(k.spec());
  k.plan_for({a_plan(4, 30, 10)});
  k.starting = true;
  std::vector<bool> present(13, false);
  k.state.nodes_present = shared_value{present};
  CHECK(k.explained().summary.ends_with("nodes n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 3 more"));
  present[0] = present[1] = present[2] = true;
  k.state.nodes_present = shared_value{present};
  CHECK(k.explained().summary.ends_with("n10, n11, n12"));
}

TEST_CASE("plans are ranked by the job's objective, each with the reason why it was not chosen") {
  known_state k;
  auto s = k.spec();
  const auto chosen = a_plan(4, 30, 8, 4), larger = a_plan(6, 50, 24, 2), worse = a_plan(1, 30, 1),
             none = a_plan(2, 20, 10, 0);
  SECTION("GPUs") {
    k.submit(s);
    k.plan_for({larger, chosen, worse});
    const auto e = k.explained();
    CHECK(e.metric == "samples/s per GPU");
    CHECK(e.plans[0].metric == 4);
    CHECK(e.plans[0].verdict == "needs 6 GPUs with more than 50.00 GB; 4 are idle");
    CHECK(e.plans[2].verdict == "needs 1 GPU with more than 30.00 GB; 12 are idle");
    CHECK_FALSE(e.plans[1].chosen);
  }
  SECTION("time") {
    s.objective = "fastest";
    k.submit(s);
    k.plan_for({larger});
    CHECK(k.explained().metric == "samples/s");
    CHECK(k.explained().plans[0].metric == 24);
  }
  SECTION("cost") {
    s.objective = "cheapest";
    k.submit(s);
    k.plan_for({larger, none});
    CHECK(k.explained().metric == "samples per unit of cost");
    CHECK(k.explained().plans[0].metric == 24 * 3600 / 2.0);
    CHECK(k.explained().plans[1].metric == 0);
  }
  SECTION("a running job's") {
    k.submit(s);
    k.grant(chosen, {{0, 4, {0, 1, 2, 3}}});
    k.notes[1] = {{4, 4, 4, 4}, {true, true, true, true}};
    k.plan_for({larger, a_plan(1, 90, 30), chosen, worse});
    const auto e = k.explained();
    CHECK(e.plans[0].verdict ==  // best first, whatever the order in which they were tried
          "ranks higher, but 1 GPU with more than 90.00 GB were not idle, or too scattered");
    CHECK(e.plans[1].verdict ==
          "ranks higher, but 6 GPUs with more than 50.00 GB were not idle, or too scattered");
    CHECK(e.plans[2].chosen);
    CHECK(e.plans[2].verdict ==
          "chosen: best by samples/s per GPU among the plans that fit the idle GPUs");
    CHECK(e.plans[3].verdict == "1 samples/s per GPU; the chosen plan has 2");
    CHECK_FALSE(e.plans[3].chosen);
  }
  SECTION("a running job's, of which a better one had room") {
    k.submit(s);
    k.grant(chosen, {{0, 4, {0, 1, 2, 3}}});
    k.notes[1] = {{4, 4, 4, 4}, {true, true, true, true}};
    const auto better = a_plan(2, 30, 16, 4);
    k.plan_for({better, chosen});
    auto e = k.explained();
    CHECK(e.plans[0].verdict == "8 samples/s per GPU; the chosen plan has 2");
    CHECK(e.plans[1].verdict == "chosen by " + std::string{k.policy->name()});
    k.notes[1].why = "moved here by bob";
    e = k.explained();
    CHECK(e.plans[0].verdict == "8 samples/s per GPU; the chosen plan has 2");
    CHECK(e.plans[1].verdict == "chosen: moved here by bob");
    CHECK(e.placement.front() == "moved here by bob");
  }
  SECTION("what was idle when it was placed is not known after a restart, nor of an ended job") {
    k.submit(s);
    k.grant(chosen, {{0, 4, {0, 1, 2, 3}}});
    k.plan_for({larger, chosen, worse});
    const auto prints_figures_only = [&k] {
      const auto e = k.explained();
      CHECK(e.plans[0].verdict == "4 samples/s per GPU; the chosen plan has 2");
      CHECK(e.plans[1].chosen);
      CHECK(e.plans[1].verdict == "chosen");
      CHECK(e.plans[2].verdict == "1 samples/s per GPU; the chosen plan has 2");
    };
    prints_figures_only();
    REQUIRE(k.state.book.apply(part_ended{1, 0, 3, lease_outcome::succeeded, 100, 0, ""}));
    REQUIRE(k.state.book.apply(*k.state.book.due(1, 11)));
    prints_figures_only();
    k.notes[1] = {{4, 4, 4, 4}, {true, true, true, true}, "shrinks for another job"};
    prints_figures_only();
  }
  SECTION("of a job that has ended without GPUs only what its plans need") {
    k.submit(s);
    k.plan_for({larger});
    REQUIRE(k.state.book.apply(job_ended{1, 3, job_state::cancelled, ""}));
    REQUIRE(is_final(k.state.book.job(1)->state));
    CHECK(k.explained().plans[0].verdict == "needs 6 GPUs with more than 50.00 GB");
  }
  SECTION("a running job's, with a plan of the same layout for another type of GPU") {
    k.submit(s);
    k.grant(chosen, {{0, 4, {0, 1, 2, 3}}});
    auto faster = chosen, own = chosen, again = chosen;
    faster.gpu_types = {1};
    faster.samples_per_s = 16;
    own.gpu_types = {0, 2};
    again.gpu_types = {0};
    k.plan_for({faster, own, again});
    const auto e = k.explained();
    CHECK_FALSE(e.plans[0].chosen);
    CHECK(e.plans[1].chosen);
    CHECK_FALSE(e.plans[2].chosen);
    CHECK(e.plans[0].gpu_types == std::vector<std::string>{"A100-80GB"});
    CHECK(e.plans[1].gpu_types == std::vector<std::string>{"A100-40GB", "V100-16GB"});
  }
  SECTION("a running job's, with the same layout in three pools") {
    auto first = chosen, second = chosen, third = chosen;
    first.gpu_types = second.gpu_types = {0};  // two datacenters
    third.gpu_types = {1};
    second.samples_per_s = 7;
    third.samples_per_s = 6;
    k.submit(s);
    k.grant(second, {{0, 4, {0, 1, 2, 3}}});
    k.plan_for({first, second, third});
    const auto e = k.explained();
    CHECK_FALSE(e.plans[0].chosen);
    CHECK(e.plans[1].chosen);
    CHECK_FALSE(e.plans[2].chosen);
  }
  SECTION("a running job's, of a policy that says why") {
    k.submit(s);
    k.grant(chosen, {{0, 4, {0, 1, 2, 3}}});
    k.plan_for({larger, chosen, worse});
    k.notes[1] = {{4, 4, 4, 4}, {true, true, true, true}, "shrinks for another job"};
    const auto e = k.explained();
    CHECK(e.plans[0].verdict == "4 samples/s per GPU; the chosen plan has 2");
    CHECK(e.plans[1].verdict == "chosen: shrinks for another job");
    CHECK(e.plans[2].verdict == "1 samples/s per GPU; the chosen plan has 2");
  }
}

TEST_CASE("a running job's placement is explained node by node") {
  known_state k;
  k.submit(k.spec());
  const auto how = a_plan(2, 30, 8);
  k.plan_for({how});
  k.grant(how, {{0, 2, {0, 1}}});
  CHECK(k.explained().placement.empty());  // no note of the placement
  k.notes[1] = {{3, 4, 2, 4}, {true, true, true, true}};
  auto said = k.explained().placement;
  REQUIRE(said.size() == 4);
  CHECK(said[0] == "a-0 (A100-40GB): 2 of 3 idle GPUs used");
  CHECK(said[1] ==
        "a-1 (A100-40GB): had 4 idle GPUs, a-0 had 3: best fit takes the node with the "
        "fewest sufficient GPUs");
  CHECK(said[2] ==
        "b-0 (A100-80GB): had as many idle GPUs, but of 80 GB: the smallest sufficient "
        "memory is preferred");
  CHECK(said[3] == "c-0 (V100-16GB): has 16 GB per GPU, but the plan needs 30.00");
  k.notes[1] = {{3, 3, 1, 0}, {true, true, true, false}};
  k.plans[1].warning = "its limits exclude its best plan";
  said = k.explained().placement;
  REQUIRE(said.size() == 5);
  CHECK(said[0] == "its limits exclude its best plan");
  CHECK(said[2] == "a-1 (A100-40GB): was equally good: the first name was taken");
  CHECK(said[3] == "b-0 (A100-80GB): had 1 idle, but the plan needs 2 in one node");
  CHECK(said[4] == "c-0 (V100-16GB): had not reported, or was considered lost");
  k.notes[1].idle[1] = 0;
  CHECK(k.explained().placement[2] == "a-1 (A100-40GB): was full: 0 of 4 GPUs idle");
  k.policy = planners::make_policy("fcfs");
  k.notes[1].idle[1] = 3;
  CHECK(k.explained().placement[2] == "a-1 (A100-40GB): had 3 suitable idle GPUs as well");
}

TEST_CASE("a job on several nodes is explained by the nodes with the most idle GPUs") {
  known_state k;
  auto s = k.spec();
  s.limits.required_gpu_type = "A100-40GB";
  k.submit(s);
  const auto how = a_plan(6, 10, 8);
  k.plan_for({how});
  k.grant(how, {{0, 4, {0, 1, 2, 3}}, {1, 2, {0, 1}}});
  k.notes[1] = {{4, 4, 2, 2}, {true, true, true, true}};
  auto said = k.explained().placement;
  REQUIRE(said.size() == 4);
  CHECK(said[2] == "b-0 (A100-80GB): is not of type A100-40GB (gpu_type)");
  CHECK(k.explained().summary.starts_with(
      "running on GPUs 4 of a-0 (A100-40GB), 2 of a-1 (A100-40GB) with "));
  CHECK(k.explained().summary.ends_with("predicted 10.00 GB per GPU"));
}

TEST_CASE("of many other nodes twenty are explained, and the rest are counted") {
  known_state k;
  while (k.c.nodes.size() < 24) {
    k.c.nodes.push_back(k.c.nodes[0]);
    k.c.nodes.back().name = fmt::format("n{}", k.c.nodes.size());
  }
  k.state.book = ledger{k.c};
  k.submit(k.spec());
  const auto how = a_plan(2, 30, 8);
  k.plan_for({how});
  k.grant(how, {{0, 2, {0, 1}}});
  k.notes[1] = {std::vector<std::uint32_t>(24, 4), std::vector<bool>(24, true)};
  auto said = k.explained().placement;
  REQUIRE(said.size() == 22);
  CHECK(said.back() == "and 3 more nodes");
  k.c.nodes.resize(21);
  CHECK(k.explained().placement.size() == 21);
}

TEST_CASE("a job that has ended, is stopping or is unknown is described in a sentence") {
  known_state k;
  CHECK(k.explained().summary == "no job 1");
  k.submit(k.spec());
  k.plan_for({a_plan(2, 30, 8)});
  k.grant(a_plan(2, 30, 8), {{0, 2, {0, 1}}});
  SECTION("finished") {
    REQUIRE(k.state.book.apply(part_ended{1, 0, 3, lease_outcome::succeeded, 100, 0, ""}));
    REQUIRE(k.state.book.apply(*k.state.book.due(1, 11)));
    CHECK(k.explained().summary.starts_with(
        "finished after 10 s (1 attempt), last on GPUs 2 of a-0 (A100-40GB) with "));
    k.notes[1] = {{4, 4, 4, 4}, {true, true, true, true}};
    CHECK(k.explained().placement.empty());
  }
}

TEST_CASE("the plans of a waiting job are said to rest on guesses, until its speed is measured") {
  known_state k;
  k.c.gpus[1].source = "efficiency: assumed";
  k.c.gpus[1].kernel_us = 50;
  auto s = k.spec();
  s.program.elastic.emplace();
  k.submit(s);
  const auto said = [&] { return k.explained().guesses.value_or(std::vector<std::string>{}); };
  CHECK(said().empty());
  auto how = a_plan(1, 30, 10);
  how.gpu_types = {0, 1};
  k.plan_for({how});
  REQUIRE(said().size() == 1);
  CHECK_THAT(said()[0], Catch::StartsWith("the speed of A100-80GB is a guess"));
  how.gpu_types = {0};
  k.plan_for({how});
  CHECK(said().empty());
  // It has GPUs of the type: what else its plans may have does not matter.
  how.gpu_types = {0, 1};
  k.plan_for({how});
  k.grant(how, {{2, 0, {0}}});
  CHECK(said().size() == 1);
  progress_report p;
  p.job = p.lease = 1;
  p.iteration_s = 2;
  k.progress[1] = p;
  CHECK(said().empty());
}
