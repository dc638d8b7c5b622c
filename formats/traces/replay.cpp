#include "formats/traces/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "formats/parse/value.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::formats {

// Two ways to replay jobs without a model: as they ran (a given duration on the given GPUs), and by
// measured speeds of their type. In both, times are given and not estimated, so a simulation tests
// the scheduler and not the cost model.
namespace {

reason lacks(const trace_row& row, std::string_view what) {
  return because(reason::kind::invalid, "job {}: {}", row.job_id, what);
}

/// A model that nothing computes with: the time is given, and memory is not predicted.
model stand_in(const std::string& name) {
  model m;
  m.name = name.empty() ? "unknown" : name;
  m.hidden = m.layers = m.heads = m.sequence = m.vocabulary = 1;
  return m;
}

job_spec job_of(const trace_row& row) {
  job_spec job;
  job.name = row.job_id;
  job.model = stand_in(row.model);
  job.global_batch = row.global_batch.value_or(1);
  job.request.gpus = row.gpus;
  job.request.type = row.gpu_type;
  job.limits.deadline_s = row.deadline_s;
  job.merging.dataset_card = row.dataset_card;
  return job;
}

/// Iterations of about a second: a job that is stopped loses the one that it was in.
std::uint64_t seconds_of(double duration_s) {
  return static_cast<std::uint64_t>(std::max(2.0, std::round(duration_s)));
}

class measured_jobs {
 public:
  measured_jobs(const throughputs& speeds, const cluster& c) : speeds_{speeds}, cluster_{c} {}

  /// Whether the cluster has GPUs of some measured type.
  // A table of other GPUs would make every job unplaceable, with an error for each.
  expected<void> check() const {
    std::set<std::string> types;
    for (const auto& [job, rates] : speeds_.rates)
      for (const auto& r : rates) {
        for (const auto& g : cluster_.gpus)
          if (means_gpu(r.gpu_type, g)) return {};
        types.insert(r.gpu_type);
      }
    return refuse(reason::kind::invalid,
                  "{}: found speeds on {}, expected some on the cluster's GPUs ({})", speeds_.file,
                  fmt::join(types, ", "), fmt::join(names_of(cluster_.gpus), ", "));
  }

  expected<void> add(const trace_row& row, replayed_trace& out) const {
    if (row.model.empty()) return refuse(lacks(row, "no model, which --throughputs needs"));
    if (!speeds_.steps && !row.global_batch)
      return refuse(lacks(row, "no global_batch, which samples_per_s needs"));
    auto job = job_of(row);
    auto times = times_of(row);
    const auto known = speeds_.iterations.find(row.model);
    if (row.iterations)
      job.iterations = *row.iterations;
    else if (row.duration_s > 0)
      job.iterations = times.times.empty() ? seconds_of(row.duration_s) : filling(row, times);
    else if (known != speeds_.iterations.end())
      job.iterations = known->second;
    else
      return refuse(lacks(row, "neither iterations nor duration_s"));
    out.times.emplace(row.job_id, std::move(times));
    out.jobs.push_back({row.submit_s, std::move(job)});
    return {};
  }

 private:
  // Throughput in samples is divided into the batch; Gavel's is in steps, where the batch is part
  // of the type.
  replayed_job times_of(const trace_row& row) const {
    replayed_job job;
    const auto at = speeds_.rates.find({row.model, row.gpus});
    if (at == speeds_.rates.end()) {
      job.why_none = why_unmeasured(row);
      return job;
    }
    const double batch = speeds_.steps ? 1 : row.global_batch.value_or(1);
    for (const auto& g : cluster_.gpus) {
      const auto* r = rate_on(at->second, g);
      if (r && r->per_s > 0 && (row.gpu_type.empty() || row.gpu_type == g.name))
        job.times.push_back({g.name, batch / r->per_s, batch / r->per_s});
    }
    if (job.times.empty())
      job.why_none =
          fmt::format("no speed of '{}' on {} GPUs of {} in {}", row.model, row.gpus,
                      row.gpu_type.empty() ? "the cluster's types" : row.gpu_type, speeds_.file);
    return job;
  }

  // The exact type first: "A100-80GB" before "a100", which means every A100.
  static const measured_rate* rate_on(const std::vector<measured_rate>& rates, const gpu_type& g) {
    const auto exact = std::ranges::find(rates, g.name, &measured_rate::gpu_type);
    const auto at =
        exact != rates.end() ? exact : std::ranges::find_if(rates, [&](const measured_rate& r) {
          return means_gpu(r.gpu_type, g);
        });
    return at == rates.end() ? nullptr : &*at;
  }

  std::string why_unmeasured(const trace_row& row) const {
    std::vector<std::uint32_t> counts;
    for (const auto& [job, rates] : speeds_.rates)
      if (job.first == row.model) counts.push_back(job.second);
    if (counts.empty()) return fmt::format("no speed of '{}' in {}", row.model, speeds_.file);
    return fmt::format("no speed of '{}' on {} GPUs in {}; it has {}", row.model, row.gpus,
                       speeds_.file, fmt::join(counts, ", "));
  }

  /// Iterations that fill the duration on the job's own type, or on the fastest.
  static std::uint64_t filling(const trace_row& row, const replayed_job& job) {
    const auto& best = *std::ranges::min_element(job.times, {}, &replayed_time::iteration_s);
    TROUPE_INVARIANT(best.iteration_s > 0, "an iteration whose speed was measured takes time");
    return static_cast<std::uint64_t>(std::max(1.0, std::round(row.duration_s / best.iteration_s)));
  }

  const throughputs& speeds_;
  const cluster& cluster_;
};

}  // namespace

expected<replayed_trace> replay_as_is(std::span<const trace_row> rows) {
  replayed_trace out;
  for (const auto& row : rows) {
    if (!(row.duration_s > 0)) return refuse(lacks(row, "no duration_s, which as-is replays"));
    auto job = job_of(row);
    job.iterations = row.iterations.value_or(seconds_of(row.duration_s));
    const double iteration_s = row.duration_s / static_cast<double>(job.iterations);
    const double planned_s = row.iterations || row.duration_s < 2 ? iteration_s : 1;
    out.times.emplace(row.job_id, replayed_job{{{row.gpu_type, iteration_s, planned_s}}, {}});
    out.jobs.push_back({row.submit_s, std::move(job)});
  }
  return out;
}

expected<replayed_trace> replay_measured(std::span<const trace_row> rows, const throughputs& speeds,
                                         const cluster& c) {
  const measured_jobs measured{speeds, c};
  if (auto ok = measured.check(); !ok) return refuse(ok.error());
  replayed_trace out;
  for (const auto& row : rows)
    if (auto ok = measured.add(row, out); !ok) return refuse(ok.error());
  return out;
}

}  // namespace troupe::formats
