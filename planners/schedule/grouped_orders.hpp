#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "messages/base/folds.hpp"
#include "planners/schedule/schedule.hpp"

namespace troupe::planners {

/// A group of pipelines in a simulated execution: they have one schedule.
struct group_run {
  const pipeline_shape& shape;
  bool shares_wan = false;
  std::uint32_t cell = 1;      // pipelines that share a WAN hop
  std::uint32_t first = 0;     // pipeline
  std::size_t first_hop = 0;   // of all groups' hops, (cell, hop, direction)
  std::size_t first_time = 0;  // of measured_times by hop
};

/// The orders of several groups' stages, numbered pipeline * stages + stage over all groups. Keeps
/// references to the schedules. Precondition: there is a schedule, and all have as many stages.
class grouped_orders {
 public:
  grouped_orders(std::span<const pipeline_schedule> schedules, std::uint32_t iterations)
      : stages_{schedules.front().shape.stages} {
    for (const auto& s : schedules) {
      const auto cell = s.shares_wan ? s.shape.pipelines_per_cell() : 1;
      runs_.push_back(
          {s.shape, s.shares_wan, cell, pipelines_, hops_, runs_.size() * std::size_t{stages_}});
      for (auto& order : stage_orders(s)) orders_.push_back(std::move(order));
      const auto each = std::size_t{iterations} * s.shape.microbatches;
      for (std::uint32_t p = 0; p < s.shape.pipelines; ++p) {
        group_of_.push_back(runs_.size() - 1);
        for (std::uint32_t i = 0; i < stages_; ++i, inputs_ += each)
          first_input_.push_back(inputs_);
      }
      pipelines_ += s.shape.pipelines;
      hops_ += (std::size_t{s.shape.pipelines} / cell + 1) * stages_ * 2;
    }
  }

  std::uint32_t stages() const { return stages_; }        // of a pipeline
  std::uint32_t pipelines() const { return pipelines_; }  // of all groups
  std::size_t size() const { return orders_.size(); }     // of all stages
  std::size_t hops() const { return hops_; }
  const std::vector<stage_step>& operator[](std::size_t stage) const { return orders_[stage]; }
  const group_run& group_of(std::uint32_t stage) const { return runs_[group_of_[stage / stages_]]; }

  /// The micro-batches of all stages and iterations: their number, and a stage's first one's.
  std::size_t inputs() const { return inputs_; }
  std::size_t first_input(std::uint32_t stage) const { return first_input_[stage]; }

 private:
  std::uint32_t stages_ = 1, pipelines_ = 0;
  std::vector<group_run> runs_;
  std::vector<std::size_t> group_of_;  // by pipeline
  std::vector<std::vector<stage_step>> orders_;
  std::vector<std::size_t> first_input_;
  std::size_t inputs_ = 0, hops_ = 0;
};

/// How many of `iterations` are simulated: 8, or as many as have 200,000 steps together, but at
/// least 2, so that one follows another.
inline std::uint32_t iterations_to_simulate(std::span<const pipeline_schedule> schedules,
                                            std::uint64_t iterations) {
  constexpr std::uint64_t max = 8, max_steps = 200'000;
  const auto steps = sum_of(schedules, [](const auto& s) {
    return std::uint64_t{s.shape.stages} * s.shape.pipelines * s.shape.microbatches;
  });
  const auto few = std::clamp<std::uint64_t>(max_steps / std::max<std::uint64_t>(1, steps), 2, max);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(iterations, 1, few));
}

}  // namespace troupe::planners
