#include "bubbletea/filling.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bubbletea/prefill_replay.hpp"
#include "harness/figures.hpp"
#include "messages/base/units.hpp"
#include "planners/bubbletea/inference_memory.hpp"
#include "planners/bubbletea/packing_bound.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/policy/placement.hpp"
#include "planners/schedule/named_schedule.hpp"

namespace bubbletea {

namespace {

double training_s(const planners::timetable& t) {
  double sum = 0;
  for (const auto& steps : t.steps)
    for (const auto& s : steps) sum += s.end - s.begin;
  return sum;
}

seconds_of percentiles(std::vector<double> all) {
  if (all.empty()) return {};
  std::ranges::sort(all);
  const auto at = [&](double share) {
    return all[std::min(all.size() - 1, static_cast<std::size_t>(share * double(all.size())))];
  };
  return {at(0.5), at(0.9), at(0.99)};
}

std::vector<planners::prefill_prompt> requests_of(const std::vector<formats::inference_row>& trace,
                                                  const filling_options& o) {
  std::vector<planners::prefill_prompt> all;
  for (const auto& row : trace) {
    planners::prefill_prompt r;
    r.id = all.size();
    r.arrival_s = row.arrival_s / o.rate;
    r.tokens = std::max(1u, row.prompt_tokens);
    if (o.ttft_s > 0) r.latest_s = r.arrival_s + o.ttft_s;
    all.push_back(r);
  }
  return all;
}

/// The part of windows before `to_s`.
planners::idle_windows until(const planners::idle_windows& windows, double to_s) {
  planners::idle_windows all;
  for (const auto& w : windows)
    if (w.begin < to_s) all.push_back({w.begin, std::min(w.end, to_s)});
  return all;
}

/// Adds the shares of the devices' time up to span_s.
void count(filling& f, const lender& from, const std::vector<planners::idle_windows>& windows,
           const prefill_replay& done, const std::vector<planners::prefill_prompt>& requests,
           const filling_options& o) {
  std::vector<double> offered_s;
  // A saturated run offers a prompt as often as the trace is repeated.
  for (std::uint64_t n = 0; n < f.offered; ++n)
    offered_s.push_back(
        planners::work_of(from.groups[0], requests[n % requests.size()].tokens, o.packing).min_s);
  studies::bubble_tally tally;
  for (std::size_t d = 0; d < windows.size(); ++d) {
    const auto idle = until(windows[d], f.span_s);
    tally.add(f.span_s, idle, until(done.used(d), f.span_s),
              planners::packing_bound_s(o.packing.rule, idle, offered_s));
  }
  f.bubbles = tally.shares();
}

}  // namespace

lender slots_job(const std::string& schedule) {
  planners::pipeline_shape shape{6, 2, 5, {2, 2, 2}, 0, {}, {}};
  shape.costs.wan = 3;
  const auto made = must(planners::schedule_pipeline(shape, schedule));
  planners::measured_times t;
  t.wan.assign(shape.stages, shape.costs.wan);
  t.lan.assign(shape.stages, 0);
  lender l;
  for (std::uint32_t p = 0; p < shape.pipelines; ++p)
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
      const auto k = shape.at(s);
      t.stages.push_back({k.forward, k.recompute, k.backward});
      l.groups.push_back({{{p * shape.stages + s, 0, 1, {0.25e-3, 0, 0}}}, 0, 0});
    }
  l.c = shape.costs.wan / shape.costs.forward;
  l.times = must(planners::simulated_timetable(made, t, 1));
  return l;
}

namespace {

/// Testbeds joined to one cluster: `count` times the nodes of each datacenter.
cluster testbeds(std::uint32_t count) {
  auto c = *cluster_named("atlas-testbed");
  const auto one = std::exchange(c.nodes, {});
  for (const auto& n : one)
    for (std::uint32_t i = 0; i < count; ++i) {
      c.nodes.push_back(n);
      if (i > 0) c.nodes.back().name += fmt::format("-{}", i);
    }
  return c;
}

}  // namespace

lender gpt_a(const std::string& schedule, const std::string& served, std::uint32_t pipelines,
             std::uint32_t depth) {
  const auto configs = formats::configs_directory();
  const auto c = testbeds(pipelines / 2);
  auto job = must(formats::load_job(configs / "jobs/atlas-gpt-a.yaml"));
  job.pipeline.data_parallel = pipelines;
  job.pipeline.microbatches = 5;
  job.global_batch = 5 * pipelines;
  job.iterations = 100;  // between two barriers
  job.train->schedule = schedule;
  const auto placed = must(planners::place_pipelines(c, planners::idle_index{c}, job, true));
  const auto timed = must(planners::time_plan(c, job, placed.how, placed.where));
  const auto made = must(planners::schedule_pipeline(timed.shapes.front(), schedule));
  const auto layer =
      must(planners::served_layer_of(must(formats::load_model(configs / "models" / served))));
  lender l;
  l.times = must(planners::simulated_timetable(made, timed.times,
                                               static_cast<std::uint32_t>(timed.times.iterations)));
  double room = never;
  for (const auto& stage : placed.how.stages)
    room = std::min(room, c.gpus[0].memory_bytes() - stage.bytes_per_gpu);
  l.groups = must(planners::prefill_groups(c, timed.layout, layer, {depth, room, 8192, 8192}));
  for (const auto& g : l.groups[0].guests)
    l.guest_gb = std::max(
        l.guest_gb, planners::inference_memory(layer, g.layers, 8192, 8192).total() / bytes_per_gb);
  double fastest_s = never;
  for (const auto& stage : timed.times.stages) fastest_s = std::min(fastest_s, stage.forward);
  l.c = timed.shapes.front().costs.wan / fastest_s;
  l.kv_token_s = layer.layers * layer.kv_bytes / c.nodes[0].inter.bytes_s();
  return l;
}

filling fill(const lender& from, const std::vector<formats::inference_row>& trace,
             const filling_options& o) {
  const auto requests = requests_of(trace, o);
  filling f;
  // Prompts that are promised at the end may need bubbles after it.
  const double after_s = 200 * from.times.length / from.times.iterations;
  f.span_s = o.saturated > 0 ? o.horizon_s : requests.back().arrival_s;
  const auto windows = planners::bubbles(from.times, 0, f.span_s + after_s, o.guard_s);
  const double devices_s = from.times.length * static_cast<double>(windows.size());
  f.before = training_s(from.times) / devices_s;
  for (const auto& stage : from.times.tails)
    for (const auto& t : stage) f.tails += (t.exchange - t.begin + t.end - t.update) / devices_s;
  const auto done = replay_prefills({o.packing, from.groups, windows}, windows.size(), requests,
                                    {o.saturated, o.saturated > 0 ? o.horizon_s : never});
  f.offered = done.offered;
  f.served = done.served.size();
  std::vector<double> ttft, with_transfer;
  for (const auto& s : done.served) {
    if (s.end_s <= f.span_s) ++f.served_in_span, f.tokens_in_span += s.tokens;
    ttft.push_back(s.seconds());
    with_transfer.push_back(s.seconds() + s.tokens * from.kv_token_s);
    if (o.ttft_s > 0 && s.seconds() <= o.ttft_s) f.attained += 1.0 / double(f.offered);
  }
  f.ttft = percentiles(std::move(ttft));
  f.ttft_with_transfer = percentiles(std::move(with_transfer));
  for (std::size_t i = 0; i < planners::decline_reasons; ++i)
    if (done.declined[i] > 0)
      f.declined.emplace_back(to_string(static_cast<planners::decline_reason>(i)),
                              done.declined[i]);
  count(f, from, windows, done, requests, o);
  return f;
}

}  // namespace bubbletea
