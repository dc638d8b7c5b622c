#include "planners/plans/plan_text.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace troupe::planners {

// Stages may differ in their tensor groups; the largest one is shown, as it decides the node size.
std::string split_text(const plan& how) {
  const auto data = fmt::format("data {}", how.data_parallel);
  if (how.stages.empty()) return fmt::format("{} x tensor {}", data, how.tensor_parallel);
  const auto stages = how.stages.size();
  const auto pipeline = fmt::format("{} x {} stage{}", data, stages, stages == 1 ? "" : "s");
  const auto max = std::ranges::max(how.stages, {}, &plan_stage::tensor_parallel).tensor_parallel;
  return max > 1 ? fmt::format("{} x tensor {}", pipeline, max) : pipeline;
}

// Pieces of a transformer are sublayers, two per layer (model_chain.hpp).
std::string size_text(const model& m, const plan_stage& stage) {
  if (m.operators.empty()) return fmt::format("{:g} layers", stage.count / 2.0);
  return fmt::format("{} operators", stage.count);
}

}  // namespace troupe::planners
