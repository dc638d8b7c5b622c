#include "planners/profile.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "planners/model_shape.hpp"

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

/// The measured points of one sequence, by rows, and what to take of which two.
class line {
 public:
  line(const model_profile& sizes, std::uint32_t sequence, std::uint32_t rows)
      : rows_{static_cast<double>(rows)} {
    std::vector<const profile_point*> all;
    for (const auto& p : sizes.points)
      if (p.sequence == sequence) all.push_back(&p);
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

}  // namespace

expected<const model_profile*> sizes_of(const device_profile& p, const model& m) {
  const model_profile* found = nullptr;
  for (const auto& x : p.models)
    if (same_sizes(x, m)) found = &x;
  if (!found)
    return refuse(reason::kind::unknown,
                  fmt::format("the profile of {} has no model of the sizes of '{}' (hidden {}, {} "
                              "heads, MLP {}, vocabulary {}, {} head)",
                              p.device, m.name, m.hidden, m.heads, inner_of(m), m.vocabulary,
                              m.tied_head ? "tied" : "untied"));
  if (std::ranges::any_of(found->points, [&](const auto& x) { return x.sequence == m.sequence; }))
    return found;
  return refuse(reason::kind::unknown,
                fmt::format("the profile of {} has '{}' measured, but not with sequences of {} "
                            "tokens, and what attention takes grows with their square",
                            p.device, found->name, m.sequence));
}

profiled_stage put_together(const model_profile& sizes, std::uint32_t sequence,
                            const stage_make& stage, std::uint32_t rows) {
  const line at{sizes, sequence, rows};
  const auto ends = stage.embeds && stage.predicts ? &profile_point::ends
                    : stage.embeds                 ? &profile_point::embedding
                    : stage.predicts               ? &profile_point::head
                                                   : &profile_point::plain;
  const auto sum = [&](auto take, double part_times::*layers, double part_times::*rest) {
    return stage.attentions * (at.*take)(&profile_point::attention, layers) +
           stage.mlps * (at.*take)(&profile_point::mlp, layers) + (at.*take)(ends, rest);
  };
  const auto both = [&](auto take, double part_times::*what) { return sum(take, what, what); };
  using t = part_times;
  profiled_stage s;
  const bool keeps = stage.keeps || stage.predicts;
  const auto forward = keeps ? &t::recompute_s : &t::forward_s;
  s.forward_s = both(&line::of_rows, forward);
  s.recompute_s = keeps ? 0 : both(&line::of_rows, &t::recompute_s);
  s.backward_s = both(&line::of_rows, &t::backward_s);
  s.update_s = both(&line::once, &t::update_s);
  s.gradients_s = both(&line::once, &t::gradients_s);
  s.extrapolated = at.beyond();
  return s;
}

const device_profile* profile_of(const job_spec& job, const gpu_type& gpu) {
  const device_profile* p = nullptr;
  if (gpu.profile) p = &*gpu.profile;
  if (job.train && !job.train->profile.empty()) p = &job.train->profile.front();
  if (!p || job.slots) return nullptr;
  const auto device = job.train ? job.train->device : std::string{};
  if (!device.empty() && device != "sim" && device != p->kind) return nullptr;
  return sizes_of(*p, job.model) ? p : nullptr;
}

double profiled_flops_s(const device_profile& p, const model& m) {
  const auto sizes = sizes_of(p, m);
  if (!sizes) return 0;
  std::uint32_t most = 1;
  for (const auto& x : (*sizes)->points)
    if (x.sequence == m.sequence) most = std::max(most, x.rows);
  const auto whole = put_together(**sizes, m.sequence, {m.layers, m.layers, true, true}, most);
  const double s = whole.forward_s + whole.backward_s;
  return s > 0 ? 3 * shape_of(m).forward_flops * most / s : 0;
}

std::string source_of(const job_spec& job, const gpu_type& gpu, std::uint32_t rows) {
  if (job.train && !job.train->costs.empty()) return "an earlier run's times";
  const auto* p = profile_of(job, gpu);
  if (!p) return "the cost model";
  const line at{**sizes_of(*p, job.model), job.model.sequence, rows};
  return fmt::format(
      "the profile of {}, {}{}", p->device, p->date,
      at.beyond() ? fmt::format(", beyond the rows that were measured ({})", rows) : "");
}

}  // namespace troupe::planners
