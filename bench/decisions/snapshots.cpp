#include "snapshots.hpp"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "formats/load/load.hpp"
#include "formats/traces/workload.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/plans/marp.hpp"
#include "planners/plans/trace_duration.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::bench {
namespace {

using namespace planners;

expected<cluster> make_cluster(std::uint32_t gpus) {
  const auto catalogue = formats::load_catalogue(formats::configs_directory() / "gpus.yaml");
  if (!catalogue) return refuse(catalogue.error());
  cluster c;
  c.name = fmt::format("{} GPUs", gpus);
  c.datacenters.push_back({"dc", ""});
  const std::pair<const char*, std::uint32_t> kinds[] = {
      {"RTX2080Ti", 8}, {"A100-40GB", 8}, {"RTX6000", 4}, {"V100-32GB", 4}};
  for (const auto& [name, size] : kinds) {
    for (const auto& g : *catalogue) {
      if (g.name == name) c.gpus.push_back(g);
    }
    if (c.gpus.empty() || c.gpus.back().name != name)
      return refuse(reason::kind::invalid, fmt::format("the catalogue has no {}", name));
    const bool large = c.gpus.back().name == "A100-40GB";
    for (std::uint32_t n = 0; n * size * 4 < gpus; ++n) {
      c.nodes.push_back({fmt::format("{}-{}", name, n), 0, gpu_index(c.gpus.size() - 1), size,
                         large ? link{"nvlink", 4800, 2} : link{"pcie3", 100, 5},
                         link{"ethernet", 50, 10}});
    }
  }
  return c;
}

/// An endless sequence of jobs as the scheduler shows them; equal jobs share their plans.
class stream {
 public:
  stream(const cluster& c, std::uint64_t seed) : cluster_{c}, random_{seed} {}

  expected<void> draw(std::size_t n, job_views& into) {
    std::vector<formats::trace_row> rows(n);
    for (auto& row : rows) {
      constexpr std::uint32_t gpus[] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 16};
      row.job_id = std::to_string(++last_);
      row.gpus = gpus[random_.below(std::size(gpus))];
      row.duration_s = 600 + random_.uniform() * 36'000;
    }
    const auto seconds = [this](const job_spec& j, std::uint32_t g) { return reference_s(j, g); };
    auto jobs = formats::assign(rows, "frenzy", 1, cluster_, seconds);
    if (!jobs) return refuse(jobs.error());
    for (auto& j : *jobs) {
      job_view v;
      v.id = std::stoull(j.spec.name);
      v.submitted_s = timing_event::now_s - 1 - random_.uniform() * 1000;
      v.plans = plans_of(j.spec);
      v.spec = std::make_shared<const job_spec>(std::move(j.spec));
      if (v.plans) into.emplace(v.id, std::move(v));
    }
    return {};
  }

  random_source& random() { return random_; }

 private:
  // By model and batch; and for the reference also the GPUs and their type.
  double reference_s(const job_spec& j, std::uint32_t gpus) {
    const auto [at, fresh] =
        references_.try_emplace({j.model.name, j.global_batch, gpus, j.request.type});
    if (fresh) at->second = reference_iteration_s(cluster_, j, gpus);
    return at->second;
  }
  std::shared_ptr<const std::vector<plan>> plans_of(const job_spec& j) {
    const auto [at, fresh] = plans_.try_emplace({j.model.name, j.global_batch});
    if (!fresh) return at->second;
    if (auto plans = marp(cluster_, j))
      at->second = std::make_shared<const std::vector<plan>>(std::move(*plans));
    return at->second;
  }

  const cluster& cluster_;
  random_source random_;
  job_id last_ = 0;
  std::map<std::tuple<std::string, std::uint32_t, std::uint32_t, std::string>, double> references_;
  std::map<std::pair<std::string, std::uint32_t>, std::shared_ptr<const std::vector<plan>>> plans_;
};

/// Starts what the frenzy policy would. False: it found room for nothing.
bool start_some(timing_event& m, const policy& frenzy, random_source& random) {
  bool any = false;
  for (auto& d : frenzy.decide(m.snapshot(), random)) {
    if (d.what != decision::kind::start) continue;
    auto job = m.waiting.extract(d.job);
    auto& v = job.mapped();
    v.progress.attempts = 1;
    v.started_s = timing_event::now_s - random.uniform() * 36'000;
    v.submitted_s = v.started_s - random.uniform() * 3'600;
    v.iteration_s = estimate_iteration(m.cluster, *v.spec, d.how, d.where).iteration_s;
    v.how = std::move(d.how);
    v.where = std::move(d.where);
    take(m.idle, v.where);
    m.running.insert(std::move(job));
    any = true;
  }
  return any;
}

}  // namespace

expected<std::unique_ptr<timing_event>> make_moment(std::uint32_t gpus, std::uint32_t queue,
                                                    std::uint64_t seed) {
  auto c = make_cluster(gpus);
  if (!c) return refuse(c.error());
  auto m = std::make_unique<timing_event>(std::move(*c));
  stream jobs{m->cluster, seed};
  const auto frenzy = make_policy("frenzy");
  do {
    m->waiting.clear();
    if (auto ok = jobs.draw(queue, m->waiting); !ok) return refuse(ok.error());
  } while (start_some(*m, *frenzy, jobs.random()));
  std::erase_if(m->running, [&](const auto& job) {
    if (!jobs.random().chance(0.2)) return false;
    for (const auto& share : job.second.where)
      m->idle.set_idle(share.node, m->idle.idle(share.node) + share.gpus);
    return true;
  });
  m->waiting.clear();
  if (auto ok = jobs.draw(queue, m->waiting); !ok) return refuse(ok.error());
  return m;
}

}  // namespace troupe::bench
