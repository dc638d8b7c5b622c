#include "planners/cost/profile.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "planners/model/model_chain.hpp"

namespace troupe::planners {

namespace {

std::uint32_t inner_of(const model& m) {
  return m.intermediate ? m.intermediate : 4 * m.hidden;
}

bool same_sizes(const model_profile& p, const model& m) {
  return m.operators.empty() && m.family == "gpt" && p.hidden == m.hidden && p.heads == m.heads &&
         p.intermediate == inner_of(m) && p.vocabulary == m.vocabulary &&
         p.tied_head == m.tied_head;
}

/// The measured points of one sequence length and number of GPUs, by micro-batch size: the one
/// nearest to `rows`, and the two between or beyond which a straight line gives the time.
class line {
 public:
  line(const model_profile& sizes, std::uint32_t sequence, std::uint32_t rows,
       std::uint32_t tensor_parallel = 1)
      : rows_{static_cast<double>(rows)} {
    std::vector<const profile_point*> all;
    for (const auto& p : sizes.points)
      if (p.sequence == sequence && p.tensor_parallel == tensor_parallel) all.push_back(&p);
    if (all.empty()) return;
    std::ranges::sort(all, {}, [](const auto* p) { return p->rows; });
    const auto above = std::ranges::find_if(all, [&](const auto* p) { return p->rows >= rows; });
    nearest_ = above == all.end() ? all.back() : *above;
    beyond_ = above == all.end() || (above == all.begin() && nearest_->rows != rows);
    if (all.size() == 1) return;
    auto high = above == all.end() ? all.end() - 1 : above;
    if (high == all.begin()) ++high;
    low_ = *(high - 1), high_ = *high;
  }

  bool empty() const { return !nearest_; }
  bool beyond() const { return beyond_; }

  double of_rows(part_times profile_point::*part, double part_times::*what) const {
    if (!nearest_) return 0;
    if (!low_) return nearest_->*part.*what * rows_ / nearest_->rows;
    const double low = low_->*part.*what, high = high_->*part.*what;
    const double slope = (high - low) / (high_->rows - low_->rows);
    return std::max(0.0, low + slope * (rows_ - low_->rows));
  }
  double once(part_times profile_point::*part, double part_times::*what) const {
    return nearest_ ? nearest_->*part.*what : 0;
  }

 private:
  double rows_;
  const profile_point *nearest_ = nullptr, *low_ = nullptr, *high_ = nullptr;
  bool beyond_ = false;
};

const device_profile* own_profile(const job_spec& job) {
  return job.train && !job.train->profile.empty() ? &job.train->profile.front() : nullptr;
}

/// Whether the profile was measured on the job's kind of device; simulated devices use any.
bool is_used(const device_profile& p, const job_spec& job) {
  const auto device = job.train ? job.train->device : std::string{};
  return !job.slots && (device.empty() || is_simulated(device) || device == p.kind);
}

/// A ring of t devices: the bytes that each sends, as a multiple of the tensor's, and the number of
/// steps.
double ring_share(double t) {
  return 2 * (t - 1) / t;
}
double ring_steps(double t) {
  return 2 * (t - 1);
}

/// A value for t devices from the measured numbers of devices, in which it is taken to be linear in
/// `ring`, the ring's steps or bytes; in proportion to `ring` outside of the range.
template <class Took>
double among(const std::vector<all_reduce_rate>& all, double t, double (*ring)(double), Took took) {
  const auto high = std::ranges::find_if(all, [&](const auto& r) { return r.devices >= t; });
  const auto nearest = high == all.end() ? high - 1 : high;
  const double at = ring(nearest->devices);
  if (high == all.begin() || high == all.end() || nearest->devices == t)
    return took(*nearest) * ring(t) / at;
  const auto low = high - 1;
  const double from = ring(low->devices), fraction = (ring(t) - from) / (at - from);
  return took(*low) + fraction * (took(*high) - took(*low));
}

}  // namespace

expected<const model_profile*> sizes_of(const device_profile& p, const model& m) {
  const model_profile* found = nullptr;
  for (const auto& x : p.models)
    if (same_sizes(x, m)) found = &x;
  if (!found)
    return refuse(reason::kind::unknown,
                  "the profile of {} has no model with the dimensions of '{}' (hidden {}, {} "
                  "heads, MLP {}, vocabulary {}, {} head)",
                  p.device, m.name, m.hidden, m.heads, inner_of(m), m.vocabulary,
                  m.tied_head ? "tied" : "untied");
  if (!line{*found, m.sequence, 1}.empty()) return found;
  return refuse(reason::kind::unknown,
                "the profile of {} covers '{}', but not with sequences of {} tokens, "
                "and attention time grows with their square",
                p.device, found->name, m.sequence);
}

// A stage's time is the sum of its parts: its attentions, its MLPs, and one of four rests that were
// measured as a whole (plain, with embedding, with head, with both), since the work outside of
// layers does not grow with their number.
profiled_stage put_together(const model_profile& sizes, std::uint32_t sequence,
                            const stage_make& stage, std::uint32_t rows) {
  const line shared{sizes, sequence, rows, stage.tensor_parallel};
  const line at = shared.empty() ? line{sizes, sequence, rows} : shared;
  const double part = shared.empty() ? 1.0 / stage.tensor_parallel : 1;
  const auto ends = stage.has_embedding && stage.has_head ? &profile_point::ends
                    : stage.has_embedding                 ? &profile_point::embedding
                    : stage.has_head                      ? &profile_point::head
                                                          : &profile_point::plain;
  const auto sum = [&](auto take, double part_times::*layers, double part_times::*rest) {
    return part * (stage.attentions * (at.*take)(&profile_point::attention, layers) +
                   stage.mlps * (at.*take)(&profile_point::mlp, layers) + (at.*take)(ends, rest));
  };
  const auto both = [&](auto take, double part_times::*what) { return sum(take, what, what); };
  using t = part_times;
  profiled_stage s;
  const bool kept = stage.keeps_activations || stage.has_head;
  const auto forward = kept ? &t::recompute_s : &t::forward_s;
  s.forward_s = both(&line::of_rows, forward);
  s.recompute_s = kept ? 0 : both(&line::of_rows, &t::recompute_s);
  s.backward_s = both(&line::of_rows, &t::backward_s);
  s.update_s = both(&line::once, &t::update_s);
  s.gradients_s = both(&line::once, &t::gradients_s);
  s.extrapolated = at.beyond();
  s.with_sums = stage.tensor_parallel > 1 && !shared.empty();
  return s;
}

const device_profile* profile_of(const job_spec& job, const gpu_type& gpu) {
  const auto* p = own_profile(job);
  if (!p && gpu.profile) p = &*gpu.profile;
  return p && is_used(*p, job) && sizes_of(*p, job.model) ? p : nullptr;
}

const device_profile* sums_profile_of(const job_spec& job, const gpu_type& gpu) {
  const auto* of_type = gpu.profile ? &*gpu.profile : nullptr;
  for (const auto* p : {own_profile(job), of_type})
    if (p && is_used(*p, job) && !p->copies.all_reduces.empty()) return p;
  return nullptr;
}

// The alpha-beta model with measured coefficients: a small tensor gives the time of the steps, and
// the difference to a large one the time per byte.
double sum_s(const std::vector<all_reduce_rate>& measured, const link& inside,
             std::uint32_t devices, double bytes) {
  const double t = devices;
  if (devices <= 1 || bytes <= 0) return 0;
  if (measured.empty())
    return inside.gbps > 0
               ? ring_share(t) * bytes / inside.bytes_s() + ring_steps(t) * inside.latency_us * 1e-6
               : 0;
  const double small = small_sum_bytes, large = large_sum_bytes;
  const auto first_s = [](const all_reduce_rate& r) { return r.small_us * 1e-6; };
  const auto a_byte_s = [&](const all_reduce_rate& r) {
    // Because of noise more bytes may have measured faster.
    return std::max(0.0, large / (r.gbytes_s * 1e9) - first_s(r)) / (large - small);
  };
  return among(measured, t, ring_steps, first_s) +
         among(measured, t, ring_share, a_byte_s) * std::max(0.0, bytes - small);
}

double profiled_flops_s(const device_profile& p, const model& m) {
  const auto sizes = sizes_of(p, m);
  if (!sizes) return 0;
  std::uint32_t max = 1;
  for (const auto& x : (*sizes)->points)
    if (x.sequence == m.sequence && x.tensor_parallel == 1) max = std::max(max, x.rows);
  const auto whole = put_together(**sizes, m.sequence, {m.layers, m.layers, true, true}, max);
  const double s = whole.forward_s + whole.backward_s;
  return s > 0 ? 3 * shape_of(m).forward_flops * max / s : 0;
}

namespace {

/// The source of all-reduce times among the GPUs of a stage, as the end of a sentence; empty: one
/// GPU.
std::string source_of_sums(const job_spec& job, const gpu_type& gpu, bool profiled) {
  const auto t = job.pipeline.tensor_parallel;
  if (t <= 1) return "";
  if (const auto* p = sums_profile_of(job, gpu))
    return fmt::format("; all-reduce among {} GPUs as measured by {}", t,
                       profiled ? "it" : "the profile of " + p->device);
  return profiled ? "; all-reduce by the cost model" : "";
}

}  // namespace

std::string source_of(const job_spec& job, const gpu_type& gpu, std::uint32_t rows) {
  if (job.train && !job.train->costs.empty()) return "an earlier run's times";
  const auto* p = profile_of(job, gpu);
  if (!p) return "the cost model" + source_of_sums(job, gpu, false);
  const auto& sizes = **sizes_of(*p, job.model);
  const auto t = job.pipeline.tensor_parallel;
  const line shared{sizes, job.model.sequence, rows, t};
  const line at = shared.empty() ? line{sizes, job.model.sequence, rows} : shared;
  const auto* sums = sums_profile_of(job, gpu);
  return fmt::format(
      "the profile of {}, {}{}{}", p->device, p->date,
      at.beyond() ? fmt::format(", extrapolated beyond the measured rows ({})", rows) : "",
      t > 1 && !shared.empty() ? fmt::format("; stages on {} GPUs as measured by it", t)
                               : source_of_sums(job, gpu, !sums || sums == p));
}

}  // namespace troupe::planners
