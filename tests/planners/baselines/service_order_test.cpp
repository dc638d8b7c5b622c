#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>

#include "planners/baselines/data_parallel_options.hpp"
#include "planners/baselines/tiresias.hpp"
#include "planners/scene.hpp"

// SRTF and Tiresias, TITAN's baselines, against event loops that are written from their papers: on
// nodes of one GPU, where a job has room exactly if as many GPUs are free.

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::scene;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double threshold_gpu_s = 1000;

struct traced_job {
  double at_s = 0;
  std::uint32_t gpus = 1;
  double duration_s = 0;  // on its GPUs
  double iteration_s = 1;
};

/// The times at which each job got GPUs, and lost them.
using runs = std::map<job_id, std::vector<std::pair<double, double>>>;

cluster single_gpus(std::uint32_t gpus) {
  cluster c;
  c.name = "single GPUs";
  sample::add_nodes(c, sample::gpu("A", 80, 300), gpus, 1);
  c.settings.restart_s = 0;
  return c;
}

job_spec spec_of(const cluster& c, const traced_job& t, const policy& by) {
  auto j = sample::job(sample::gpt2_350m, 64, t.gpus);
  planning_budget budget;
  job_view v;
  v.plans = std::make_shared<std::vector<plan>>(*by.plans_of(c, j, budget));
  v.spec = std::make_shared<job_spec>(j);
  REQUIRE(requested(v) == t.gpus);
  j.iterations = static_cast<std::uint64_t>(std::ceil(t.duration_s / requested_iteration_s(v)));
  return j;
}

/// The policy over the trace, in a world without restarts.
runs play(const cluster& c, const policy& by, const std::vector<traced_job>& trace,
          std::vector<traced_job>& as_played) {
  scene s{c};
  s.by = &by;
  s.now_s = 0;
  runs out;
  std::map<job_id, double> end;
  std::size_t arrived = 0;
  double again_s = infinity;
  while (arrived < trace.size() || !s.running.empty() || !s.waiting.empty()) {
    double next = again_s;
    if (arrived < trace.size()) next = std::min(next, trace[arrived].at_s);
    for (const auto& [id, at] : end) next = std::min(next, at);
    REQUIRE(next < infinity);
    s.now_s = next;
    while (arrived < trace.size() && trace[arrived].at_s <= next) {
      const auto spec = spec_of(c, trace[arrived++], by);
      auto& j = s.add(arrived, spec);
      auto& job = as_played.emplace_back(trace[arrived - 1]);
      job.iteration_s = requested_iteration_s(j);
      job.duration_s = static_cast<double>(spec.iterations) * job.iteration_s;
    }
    for (auto at = end.begin(); at != end.end();) {
      if (at->second > next) {
        ++at;
        continue;
      }
      const auto id = at->first;
      for (const auto& share : s.running.at(id).where)
        s.idle.set_idle(share.node, s.idle.idle(share.node) + share.gpus);
      s.running.erase(id);
      out[id].back().second = next;
      at = end.erase(at);
    }
    random_source r{1};
    const auto decisions = by.decide(s.view(), r);
    const auto before = s.running;
    carry_out(s, decisions);
    for (const auto& d : decisions) {
      const bool ran = before.contains(d.job);
      auto* j = s.running.contains(d.job) ? &s.running.at(d.job) : &s.waiting.at(d.job);
      // A stop loses the iteration that it interrupts; a move does not, as the reference has none.
      double in_iteration_s = 0;
      if (ran) {
        const auto& was = before.at(d.job);
        const double done = std::floor((next - was.started_s) / was.iteration_s + 1e-6);
        j->progress.iterations_done =
            was.progress.iterations_done + static_cast<std::uint64_t>(done);
        in_iteration_s = std::max(0.0, next - was.started_s - done * was.iteration_s);
      }
      if (d.what == decision::kind::stop) {
        end.erase(d.job);
        out[d.job].back().second = next;
        continue;
      }
      j->iteration_s = j->spec->global_batch / d.how.samples_per_s;
      j->started_s = next - in_iteration_s;
      end[d.job] =
          j->started_s + (j->spec->iterations - j->progress.iterations_done) * j->iteration_s;
      if (!ran) out[d.job].emplace_back(next, infinity);
    }
    const double wait_s = by.decide_again_s(s.view());
    again_s = wait_s > 0 ? next + wait_s : infinity;
  }
  return out;
}

/// Shortest remaining time first without preemption: 15 lines.
runs shortest_first(std::uint32_t gpus, const std::vector<traced_job>& trace) {
  runs out;
  std::vector<std::size_t> waiting;
  std::vector<std::pair<double, std::size_t>> ends;
  std::size_t arrived = 0;
  while (arrived < trace.size() || !ends.empty()) {
    std::ranges::sort(ends);
    double now = ends.empty() ? infinity : ends.front().first;
    if (arrived < trace.size()) now = std::min(now, trace[arrived].at_s);
    for (; arrived < trace.size() && trace[arrived].at_s <= now; ++arrived)
      waiting.push_back(arrived);
    for (; !ends.empty() && ends.front().first <= now; ends.erase(ends.begin()))
      gpus += trace[ends.front().second].gpus;
    std::ranges::sort(waiting, {},
                      [&](std::size_t i) { return std::pair(trace[i].duration_s, i); });
    std::erase_if(waiting, [&](std::size_t i) {
      if (trace[i].gpus > gpus) return false;
      gpus -= trace[i].gpus;
      ends.emplace_back(now + trace[i].duration_s, i);
      out[i + 1].emplace_back(now, now + trace[i].duration_s);
      return true;
    });
  }
  return out;
}

/// Two queues by attained service, each in order of arrival; a job that is not among the first ones
/// that fit is stopped.
runs lowest_service_first(std::uint32_t gpus, const std::vector<traced_job>& trace) {
  runs out;
  std::vector<double> done(trace.size(), 0.0);  // seconds
  std::vector<bool> runs_now(trace.size(), false);
  double now = 0;
  const auto is_over = [&](std::size_t i) { return done[i] >= trace[i].duration_s - 1e-7; };
  const auto threshold_s = [&](std::size_t i) {  // whole iterations
    const auto& j = trace[i];
    return std::ceil(threshold_gpu_s / (j.gpus * j.iteration_s)) * j.iteration_s;
  };
  // A running job has certainly done an iteration a little after its end only.
  const auto margin_s = [&](std::size_t i) { return 1e-3 * trace[i].iteration_s; };
  const auto is_second = [&](std::size_t i) {
    return done[i] >= threshold_s(i) + (runs_now[i] ? margin_s(i) : -1e-6);
  };
  for (;;) {
    double step = infinity;
    for (std::size_t i = 0; i < trace.size(); ++i) {
      if (trace[i].at_s > now) step = std::min(step, trace[i].at_s - now);
      if (!runs_now[i]) continue;
      step = std::min(step, trace[i].duration_s - done[i]);
      if (!is_second(i)) step = std::min(step, threshold_s(i) + 2 * margin_s(i) - done[i]);
    }
    if (step == infinity) return out;
    now += step;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < trace.size(); ++i) {
      if (runs_now[i]) done[i] += step;
      if (runs_now[i] && is_over(i)) {
        runs_now[i] = false;
        out[i + 1].back().second = now;
      }
      if (trace[i].at_s <= now + 1e-7 && !is_over(i)) order.push_back(i);
    }
    std::ranges::stable_sort(order, {}, is_second);
    auto left = gpus;
    for (const auto i : order) {
      const bool fits = trace[i].gpus <= left;
      if (fits) left -= trace[i].gpus;
      if (fits && !runs_now[i]) out[i + 1].emplace_back(now, infinity);
      if (!fits && runs_now[i]) {
        out[i + 1].back().second = now;
        done[i] = std::floor(done[i] / trace[i].iteration_s + 1e-6) * trace[i].iteration_s;
      }
      runs_now[i] = fits;
    }
  }
}

std::vector<traced_job> random_trace(random_source& r, std::uint32_t max_gpus) {
  std::vector<traced_job> out;
  double at = 0;
  for (auto n = 2 + r.below(20); n > 0; --n) {
    at += 400 * r.uniform();
    out.push_back({at, std::min(max_gpus, 1U << r.below(4)), 50 + 1500 * r.uniform()});
  }
  return out;
}

void check_equal(const runs& played, const runs& reference) {
  REQUIRE(played.size() == reference.size());
  for (const auto& [id, segments] : reference) {
    INFO("job " << id);
    const auto& mine = played.at(id);
    REQUIRE(mine.size() == segments.size());
    for (std::size_t i = 0; i < segments.size(); ++i) {
      CHECK(mine[i].first == Approx(segments[i].first).margin(0.5));
      CHECK(mine[i].second == Approx(segments[i].second).margin(0.5));
    }
  }
}

}  // namespace

TEST_CASE("SRTF starts jobs when its reference loop does, on 200 random traces") {
  random_source r{1};
  const auto by = make_policy("srtf");
  for (int n = 0; n < 200; ++n) {
    INFO("trace " << n);
    const auto c = single_gpus(4 + static_cast<std::uint32_t>(r.below(5)));
    const auto trace = random_trace(r, 4);
    std::vector<traced_job> as_played;
    const auto played = play(c, *by, trace, as_played);
    check_equal(played, shortest_first(static_cast<std::uint32_t>(c.nodes.size()), as_played));
  }
}

TEST_CASE("Tiresias starts and stops jobs when its reference loop does, on 200 random traces") {
  random_source r{2};
  const auto by = make_tiresias({threshold_gpu_s});
  std::size_t stops = 0;
  for (int n = 0; n < 200; ++n) {
    INFO("trace " << n);
    const auto c = single_gpus(4 + static_cast<std::uint32_t>(r.below(5)));
    const auto trace = random_trace(r, 4);
    std::vector<traced_job> as_played;
    const auto played = play(c, *by, trace, as_played);
    const auto gpus = static_cast<std::uint32_t>(c.nodes.size());
    check_equal(played, lowest_service_first(gpus, as_played));
    for (const auto& [id, segments] : played) stops += segments.size() - 1;
  }
  CHECK(stops > 100);
}
