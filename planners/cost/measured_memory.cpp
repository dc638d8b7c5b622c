#include "planners/cost/measured_memory.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "messages/domain/work_kind.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/model/engine_memory.hpp"
#include "planners/model/job_memory.hpp"

namespace troupe::planners {

namespace {

/// Peak with one micro-batch in flight, and the part of it that grows with a micro-batch's samples;
/// 0: unknown.
struct measured_peak {
  double bytes = 0, of_rows = 0;
};

/// A stage's parts at one point; 0: a part's is unknown.
double peak_at(const profile_point& x, const stage_make& s) {
  const bool ends = s.has_embedding || s.has_head;
  const auto& rest = s.has_embedding && s.has_head ? x.ends
                     : s.has_embedding             ? x.embedding
                     : s.has_head                  ? x.head
                                                   : x.plain;
  const auto of = [](const part_times& t) { return static_cast<double>(t.peak_bytes); };
  const bool known = (s.attentions == 0 || of(x.attention) > 0) && (s.mlps == 0 || of(x.mlp) > 0) &&
                     (!ends || of(rest) > 0);
  return known ? s.attentions * of(x.attention) + s.mlps * of(x.mlp) + of(rest) : 0;
}

/// On a line through the two measured micro-batch sizes nearest to `rows`; a single one tells the
/// states from the samples no better than `each`, the formula's bytes of a sample.
measured_peak peak_of(const model_profile& sizes, std::uint32_t sequence, const stage_make& s,
                      double rows, double each) {
  std::vector<std::pair<double, double>> points;  // rows, bytes
  for (const auto& x : sizes.points)
    if (x.sequence == sequence && x.tensor_parallel == s.tensor_parallel)
      if (const double bytes = peak_at(x, s); bytes > 0) points.emplace_back(x.rows, bytes);
  if (points.empty()) return {};
  std::ranges::sort(points);
  if (points.size() > 1) {
    const auto above = std::ranges::find_if(points, [&](const auto& x) { return x.first >= rows; });
    const auto high = std::clamp(above, points.begin() + 1, points.end() - 1), low = high - 1;
    each = std::max(0.0, (high->second - low->second) / (high->first - low->first));
    return {low->second + each * (rows - low->first), each * rows};
  }
  return {points[0].second + each * (rows - points[0].first), each * rows};
}

/// The profile with times and sizes of the job's model whose memory it is; null: a formula's it is.
const model_profile* measured_sizes(const gpu_type& gpu, const job_spec& job) {
  if (facts_of(job).on_engine || has_program_layers(job.model)) return nullptr;
  if (job.memory && (job.memory->gb > 0 || job.memory->zero > 0 || job.memory->lora_rank > 0))
    return nullptr;
  const auto* p = profile_of(job, gpu);
  return p ? *sizes_of(*p, job.model) : nullptr;
}

measured_peak peak_of_replica(const gpu_type& gpu, const job_spec& job, std::uint32_t data,
                              std::uint32_t tensor, std::uint32_t planned) {
  const auto* sizes = facts_of(job).has_known_memory ? measured_sizes(gpu, job) : nullptr;
  if (!sizes) return {};
  const stage_make whole{job.model.layers, job.model.layers, true, true, true, tensor};
  const double rows = std::ceil(batch_of_replica(job, data, planned).rows);
  const double each = program_memory(job, data, tensor, planned).activations / rows;
  return peak_of(*sizes, job.model.sequence, whole, rows, each);
}

}  // namespace

// Each further micro-batch in flight needs what the first one's samples do, or where its
// activations are computed again, its inputs: what the formulas count for it.
double stage_bytes_on(const gpu_type& gpu, const job_spec& job, const stage_part& p,
                      const stage_load& load, double headroom) {
  const auto formula = [&](std::uint32_t held) {
    auto other = load;
    other.held = held;
    return memory_of(job, p, other).total();
  };
  const auto* sizes = measured_sizes(gpu, job);
  if (!sizes) return stage_bytes(job, p, load, headroom);
  const auto attentions = (p.first + p.count + 1) / 2 - (p.first + 1) / 2;
  const stage_make make{attentions, p.count - attentions, p.first == 0,
                        p.last,     !load.recompute,      p.tensor_parallel};
  const double further = formula(1) - formula(0);
  const auto peak =
      peak_of(*sizes, job.model.sequence, make, load.rows, further / std::max(1U, load.rows));
  if (peak.bytes == 0) return stage_bytes(job, p, load, headroom);
  const bool keeps = recomputation_of(job) == recomputation::none && !load.recompute;
  const double each = keeps ? peak.of_rows : further;
  return std::max(0.0, peak.bytes + (static_cast<double>(load.held) - 1) * each) * (1 + headroom);
}

double program_bytes_on(const cluster& c, const std::vector<gpu_index>& types, const job_spec& job,
                        std::uint32_t data, std::uint32_t tensor, std::uint32_t planned) {
  const double headroom = c.settings.memory_headroom;
  const double formula = program_bytes(job, data, tensor, headroom, planned);
  double largest = 0;
  for (const auto g : types) {
    const auto peak = peak_of_replica(c.gpus[g], job, data, tensor, planned);
    largest = std::max(largest, peak.bytes > 0 ? peak.bytes * (1 + headroom) : formula);
  }
  return types.empty() ? formula : largest;
}

}  // namespace troupe::planners
