#include "planners/devices/profile.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "messages/base/name_hash.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/devices/node_sums.hpp"
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

/// Measured points by micro-batch size: the one nearest to `rows`, and the two between or beyond
/// which a straight line gives the time.
template <class Point>
class line {
 public:
  line(std::vector<const Point*> all, std::uint32_t rows) : rows_{static_cast<double>(rows)} {
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

  /// `times`: of a point.
  template <class Times>
  double of_rows(Times times, double part_times::*what) const {
    if (!nearest_) return 0;
    if (!low_) return times(*nearest_).*what * rows_ / nearest_->rows;
    const double low = times(*low_).*what, high = times(*high_).*what;
    const double slope = (high - low) / (high_->rows - low_->rows);
    return std::max(0.0, low + slope * (rows_ - low_->rows));
  }
  template <class Times>
  double once(Times times, double part_times::*what) const {
    return nearest_ ? times(*nearest_).*what : 0;
  }

 private:
  double rows_;
  const Point *nearest_ = nullptr, *low_ = nullptr, *high_ = nullptr;
  bool beyond_ = false;
};

/// The points of one sequence length and number of GPUs.
line<profile_point> line_of(const model_profile& sizes, std::uint32_t sequence, std::uint32_t rows,
                            std::uint32_t tensor_parallel = 1) {
  std::vector<const profile_point*> all;
  for (const auto& p : sizes.points)
    if (p.sequence == sequence && p.tensor_parallel == tensor_parallel) all.push_back(&p);
  return {std::move(all), rows};
}

line<layers_point> line_of(const layers_profile& entry, std::uint32_t rows) {
  std::vector<const layers_point*> all;
  for (const auto& p : entry.points) all.push_back(&p);
  return {std::move(all), rows};
}

const device_profile* own_profile(const job_spec& job) {
  return job.train && !job.train->profile.empty() ? &job.train->profile.front() : nullptr;
}

/// Whether the profile was measured on the job's kind of device; simulated devices use any.
bool is_used(const device_profile& p, const job_spec& job) {
  const auto device = job.train ? job.train->device : std::string{};
  return facts_of(job).has_model && (device.empty() || is_simulated(device) || device == p.kind);
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
  if (!line_of(*found, m.sequence, 1).empty()) return found;
  return refuse(reason::kind::unknown,
                "the profile of {} covers '{}', but not with sequences of {} tokens, "
                "and attention time grows with their square",
                p.device, found->name, m.sequence);
}

namespace {

/// `sum`: of a stage's parts, given how one of them takes its times.
template <class Line, class Sum>
profiled_stage summed(const Line& at, Sum sum, bool kept) {
  const auto of_rows = [&](double part_times::*what) {
    return sum([&](auto times) { return at.of_rows(times, what); });
  };
  const auto once = [&](double part_times::*what) {
    return sum([&](auto times) { return at.once(times, what); });
  };
  using t = part_times;
  profiled_stage s;
  s.forward_s = of_rows(kept ? &t::recompute_s : &t::forward_s);
  s.recompute_s = kept ? 0 : of_rows(&t::recompute_s);
  s.backward_s = of_rows(&t::backward_s);
  s.update_s = once(&t::update_s);
  s.gradients_s = once(&t::gradients_s);
  s.extrapolated = at.beyond();
  return s;
}

}  // namespace

// A stage's time is the sum of its parts: its attentions, its MLPs, and one of four rests that were
// measured as a whole (plain, with embedding, with head, with both), since the work outside of
// layers does not grow with their number.
profiled_stage put_together(const model_profile& sizes, std::uint32_t sequence,
                            const stage_make& stage, std::uint32_t rows) {
  const auto shared = line_of(sizes, sequence, rows, stage.tensor_parallel);
  const auto at = shared.empty() ? line_of(sizes, sequence, rows) : shared;
  const double part = shared.empty() ? 1.0 / stage.tensor_parallel : 1;
  const auto ends = stage.has_embedding && stage.has_head ? &profile_point::ends
                    : stage.has_embedding                 ? &profile_point::embedding
                    : stage.has_head                      ? &profile_point::head
                                                          : &profile_point::plain;
  const auto sum = [&](auto take) {
    const auto of = [&](part_times profile_point::*what) {
      return take([=](const profile_point& p) -> const part_times& { return p.*what; });
    };
    return part * (stage.attentions * of(&profile_point::attention) +
                   stage.mlps * of(&profile_point::mlp) + of(ends));
  };
  auto s = summed(at, sum, stage.keeps_activations || stage.has_head);
  s.with_sums = stage.tensor_parallel > 1 && !shared.empty();
  return s;
}

std::string layers_key(const model& m) {
  std::string text = m.tied_head ? "tied" : "";
  for (const auto& op : m.operators) {
    text += op.name;
    for (const double x :
         {op.flops, op.parameters, op.output_bytes, op.kept_bytes, op.state_bytes}) {
      const auto bytes = std::bit_cast<std::array<char, sizeof x>>(x);
      text.append(bytes.data(), bytes.size());
    }
  }
  return fmt::format("{:016x}", hash_of_name(text));
}

expected<const layers_profile*> layers_of(const device_profile& p, const model& m) {
  const auto key = p.programs.empty() ? std::string{} : layers_key(m);
  for (const auto& entry : p.programs)
    if (entry.key == key && !entry.points.empty() &&
        entry.points.front().layers.size() == m.operators.size())
      return &entry;
  return refuse(reason::kind::unknown,
                "the profile of {} has {} programs, none with the layers of '{}': troupe profile "
                "--program measures them",
                p.device, p.programs.size(), m.name);
}

profiled_stage put_together(const layers_profile& entry, const model& m, const layer_range& stage,
                            std::uint32_t rows) {
  const auto at = line_of(entry, rows);
  const auto end = stage.first + stage.count;
  const bool last = end == m.operators.size();
  const auto sum = [&](auto take) {
    const auto of = [&](part_times layers_point::*what) {
      return take([=](const layers_point& p) -> const part_times& { return p.*what; });
    };
    double s = of(&layers_point::plain);
    for (auto i = stage.first; i < end; ++i)
      s += take([=](const layers_point& p) -> const part_times& { return p.layers[i].times; });
    if (last) s += of(&layers_point::loss);
    if (last && stage.first > 0) s += of(&layers_point::tied);
    return s;
  };
  auto s = summed(at, sum, stage.keeps_activations || last);
  if (entry.tensors_gbytes_s > 0) {
    const double bytes = (stage.first > 0 ? m.operators[stage.first - 1].output_bytes : 0) +
                         (last ? 0 : m.operators[end - 1].output_bytes);
    const double copies_s = rows * bytes / (entry.tensors_gbytes_s * 1e9);
    s.forward_s += copies_s;
    s.backward_s += copies_s;
  }
  return s;
}

expected<void> covers(const device_profile& p, const model& m) {
  if (has_program_layers(m)) {
    if (const auto found = layers_of(p, m); !found) return refuse(found.error());
  } else if (const auto found = sizes_of(p, m); !found) {
    return refuse(found.error());
  }
  return {};
}

std::vector<double> layer_weights(const device_profile& p, const model& m, std::uint32_t rows,
                                  bool recomputes) {
  const auto entry = layers_of(p, m);
  if (!entry) return {};
  const auto at = line_of(**entry, rows);
  const auto of = [&](auto times) {
    const double again_s = at.of_rows(times, &part_times::recompute_s);
    const double forward_s = at.of_rows(times, &part_times::forward_s);
    return (recomputes ? forward_s + again_s : again_s) +
           at.of_rows(times, &part_times::backward_s);
  };
  std::vector<double> weights;
  for (std::size_t i = 0; i < m.operators.size(); ++i)
    weights.push_back(
        of([=](const layers_point& x) -> const part_times& { return x.layers[i].times; }));
  weights.back() += of([](const layers_point& x) -> const part_times& { return x.loss; });
  return weights;
}

namespace {

bool has_times_of(const device_profile& p, const job_spec& job) {
  if (!has_program_layers(job.model)) return sizes_of(p, job.model).has_value();
  const auto entry = layers_of(p, job.model);
  const bool runs = job.train && job.train->program;
  return entry && (!runs || job.train->program->threads == (*entry)->threads);
}

/// All of the model on one device, or on one of several that share it. Layers of a program have
/// been measured on one device alone.
profiled_stage whole_model(const device_profile& p, const model& m, std::uint32_t rows,
                           std::uint32_t tensor = 1) {
  if (has_program_layers(m)) {
    const auto layers = static_cast<std::uint32_t>(m.operators.size());
    auto s = put_together(**layers_of(p, m), m, {0, layers}, rows);
    for (auto* part : {&s.forward_s, &s.backward_s, &s.update_s}) *part /= tensor;
    return s;
  }
  return put_together(**sizes_of(p, m), m.sequence, {m.layers, m.layers, true, true, false, tensor},
                      rows);
}

std::uint32_t largest_rows(const device_profile& p, const model& m) {
  std::uint32_t max = 1;
  if (has_program_layers(m)) {
    for (const auto& x : (*layers_of(p, m))->points) max = std::max(max, x.rows);
    return max;
  }
  for (const auto& x : (*sizes_of(p, m))->points)
    if (x.sequence == m.sequence && x.tensor_parallel == 1) max = std::max(max, x.rows);
  return max;
}

}  // namespace

const device_profile* profile_of(const job_spec& job, const gpu_type& gpu) {
  const auto* p = own_profile(job);
  if (!p && gpu.profile) p = &*gpu.profile;
  return p && is_used(*p, job) && has_times_of(*p, job) ? p : nullptr;
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

double node_sum_s(const std::vector<all_reduce_rate>& measured, const link& inside,
                  const gpu_type& gpu, double share, std::uint32_t devices, double bytes) {
  if (!measured.empty()) return sum_s(measured, {}, devices, bytes);
  if (devices <= 1 || bytes <= 0) return 0;
  if (const auto* rates = group_rates_of(inside, gpu)) return all_reduce_s(*rates, devices, bytes);
  // Each GPU of the ring sends over a link of its own.
  const double gbps = inside.bytes_s(bytes / devices, 1) * 8 / 1e9;
  const link ring{"", (inside.has_rates() ? gbps : inside.gbps) * share, inside.latency_us};
  return sum_s({}, ring, devices, bytes);
}

double profiled_flops_s(const device_profile& p, const model& m) {
  if (!covers(p, m)) return 0;
  const auto max = largest_rows(p, m);
  const auto whole = whole_model(p, m, max);
  const double s = whole.forward_s + whole.backward_s;
  return s > 0 ? 3 * shape_of(m).forward_flops * max / s : 0;
}

profiled_iteration profiled_iteration_of(const job_spec& job, const gpu_type& gpu,
                                         double microbatches, double rows, std::uint32_t tensor) {
  const auto* p = profile_of(job, gpu);
  if (!p) return {};
  const auto whole = static_cast<std::uint32_t>(std::ceil(rows));
  const auto s = whole_model(*p, job.model, whole, tensor);
  return {microbatches * rows / whole * (s.forward_s + s.backward_s) + s.update_s, s.with_sums};
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

/// Are these rows beyond the measured ones, and were stages of `t` GPUs measured?
struct measured_range {
  bool beyond = false, shared = false;
};
measured_range measured_at(const device_profile& p, const model& m, std::uint32_t rows,
                           std::uint32_t t) {
  if (has_program_layers(m)) return {line_of(**layers_of(p, m), rows).beyond(), false};
  const auto& sizes = **sizes_of(p, m);
  const auto shared = line_of(sizes, m.sequence, rows, t);
  const auto at = shared.empty() ? line_of(sizes, m.sequence, rows) : shared;
  return {at.beyond(), !shared.empty()};
}

}  // namespace

std::string source_of(const job_spec& job, const gpu_type& gpu, std::uint32_t rows) {
  if (job.train && !job.train->costs.empty()) return "an earlier run's times";
  const auto* p = profile_of(job, gpu);
  if (!p) return "the cost model" + source_of_sums(job, gpu, false);
  const auto t = job.pipeline.tensor_parallel;
  const auto [beyond, shared] = measured_at(*p, job.model, rows, t);
  const auto* sums = sums_profile_of(job, gpu);
  return fmt::format(
      "the profile of {}, {}{}{}", p->device, p->date,
      beyond ? fmt::format(", extrapolated beyond the measured rows ({})", rows) : "",
      t > 1 && shared ? fmt::format("; stages on {} GPUs as measured by it", t)
                      : source_of_sums(job, gpu, !sums || sums == p));
}

}  // namespace troupe::planners
