#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "messages/base/statistics.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/task_kind.hpp"

namespace troupe::actors {

/// How long a stage's operations take: means over one iteration, in seconds from submitting an
/// operation to its result. An iteration is short enough that its operations are alike, and the
/// trainer takes the median over iterations.
class operation_times {
 public:
  /// `reduce`: until the device has handed out its gradients.
  void add(task_kind what, double s) {
    auto& [sum_s, count] = sums_[index_of(what)];
    sum_s += s;
    ++count;
  }
  void add_norms(double s) { norms_s_ = s; }
  void write(stage_costs& to) const {
    to.forward_s = mean(task_kind::forward);
    to.recompute_s = mean(task_kind::recompute);
    to.backward_s = mean(task_kind::backward);
    to.update_s = mean(task_kind::update);
    to.gradients_s = mean(task_kind::reduce);
    to.norms_s = norms_s_;
  }

 private:
  double mean(task_kind what) const {
    const auto& [sum_s, count] = sums_[index_of(what)];
    return count == 0 ? 0 : sum_s / count;
  }
  std::array<std::pair<double, std::uint32_t>, task_kinds.size()> sums_{};
  std::optional<double> norms_s_;  // once an iteration, if at all
};

/// The costs that a stage measures.
inline constexpr double stage_costs::*measured_costs[] = {
    &stage_costs::forward_s, &stage_costs::recompute_s, &stage_costs::backward_s,
    &stage_costs::update_s,  &stage_costs::gradients_s, &stage_costs::wan_s};

/// Field by field. Sizes are those of the newest iteration: they do not vary.
inline stage_costs median(const std::deque<stage_costs>& all) {
  stage_costs result;
  const auto n = all.size();
  if (n == 0) return result;
  result = all.back();
  std::vector<double> values(n);
  for (const auto field : measured_costs) {
    for (std::size_t i = 0; i < n; ++i) values[i] = all[i].*field;
    result.*field = statistics::median(values);
  }
  if (result.norms_s) {
    for (std::size_t i = 0; i < n; ++i) values[i] = all[i].norms_s.value_or(0);
    result.norms_s = statistics::median(values);
  }
  return result;
}

/// Transfer times of tensors from other datacenters over the hops to this stage, in one iteration.
/// A tied embedding's gradient does not count: no hop joins the first stage and the last.
class hop_times {
 public:
  /// A tensor has arrived; `now_s` is on the trainer's clock. `trace`: record it as a task.
  void received(const tensor& t, double now_s, bool trace) {
    if (t.what != tensor::kind::activation && t.what != tensor::kind::gradient) return;
    const double took_s = std::max(0.0, now_s - t.sent_s);
    const bool forward = t.what == tensor::kind::activation;
    auto& fastest = fastest_s_[forward ? 0 : 1];
    fastest = fastest > 0 ? std::min(fastest, took_s) : took_s;
    if (trace)
      tasks_.push_back(
          task_of(forward ? task_kind::activation_transfer : task_kind::gradient_transfer,
                  t.microbatch, t.sent_s, now_s));
  }
  /// The slower of the fastest activation and the fastest gradient; 0: none arrived. The fastest
  /// has met the fewest others on its way, and is the nearest to the link's own time.
  double hop_s() const { return std::max(fastest_s_[0], fastest_s_[1]); }
  const std::vector<timed_task>& tasks() const { return tasks_; }

 private:
  std::array<double, 2> fastest_s_{};
  std::vector<timed_task> tasks_;
};

}  // namespace troupe::actors
