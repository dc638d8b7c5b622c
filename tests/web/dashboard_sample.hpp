#pragma once

#include "messages/wire/client.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::test {

/// Two datacenters of a node each, the second absent; a training on the first, a waiting job.
inline query_reply sample_cluster() {
  query_reply r;
  r.policy = "troupe";
  r.now_s = 100;
  r.nodes = {{0, "a-1", "A100", true, 4, 1}, {1, "b-1", "V100", false, 2, 0}};
  gateway_traffic sent{3000, 0, 0, std::vector<std::uint64_t>{0, 3000}};
  r.gateways = {{"a", sent}, {"b", {}}};
  r.gateways_absent = {"b"};
  job_status running;
  running.job = 1, running.name = "tiny \"gpt\"", running.state = job_state::running;
  running.submitted_s = 20, running.started_s = 30, running.progress.attempts = 1;
  running.where = {{0, 3}};
  running.iteration = 7, running.iterations = 40;
  job_status waiting;
  waiting.job = 2, waiting.name = "evaluation", waiting.submitted_s = 90;
  waiting.waiting_reason = "resources";
  r.jobs = {running, waiting};
  r.view = cluster_view{"two", {0, 1}, {{0, 1, 20, 1.0, 0, 0, true}}, {5, 0.25, 3, 1, 0, 2}};
  // Two fronts that know the same decoder; the absent one knew another, too.
  front_status here{"front-1", true, {}}, gone{"front-2", false, {}};
  reported_decoder d;
  d.node = 0, d.state.lease = 7, d.state.model = "scribe", d.state.context = 512,
  d.state.sequence = 3;
  d.state.pages = 10, d.state.free_pages = 4, d.state.running = 2, d.state.waiting = 1;
  here.report.decoders = gone.report.decoders = {d};
  gone.report.decoders.push_back({1, d.state});
  here.report.requests = 3;
  here.report.counts = {20, 1, 2, 0, 1, 400, 15, 5, 9};
  here.report.ttft_p50_s = 0.25, here.report.ttft_p99_s = 0.5;
  r.view->fronts = {here, gone};
  return r;
}

/// The training that is its job 1.
inline training_reply sample_training() {
  training_reply t;
  t.position = 9;
  auto& r = t.report;
  r.lease = 4, r.job = 1, r.schedule = "atlas", r.device = "cpu", r.stages = 2;
  r.tokens_per_s = 100, r.planned_s = 0.5;
  r.wan_bytes = 3000, r.wan_utilization = 0.25;
  r.iterations = {{6, 3.5, 1, 10, 10.5, 0.8}, {7, 3.25, 1, 10.5, 11.25, 0.8}};
  r.bubbles = bubble_use{.guest_s = 1.25, .delay_s = 0.5, .idle_s = 4.0};
  iteration_timeline shown{7, 0.75, {}};
  shown.stages.push_back({0,
                          0,
                          0,
                          {2},
                          {{0, 0, 0, 0.25}, {8, 3, 0.25, 0.5}, {2, 0, 0.5, 0.75}},
                          {1.5, 0, 2.5, 0, 0, 0, 0, 0, 0.25}});
  shown.stages.push_back(
      {0, 1, 1, {0}, {{6, 0, 0.1, 0.2}, {0, 0, 0.3, 0.2}, {99, 0, 0, 1}}, {1, 0, 2, 0, 0, 0, 9}});
  r.timeline = shown;
  return t;
}

}  // namespace troupe::test
