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

std::string group_sentence(const cluster& c, const group_view& g) {
  const auto place = [&](const plan_stage& s) {
    return s.datacenter ? " in " + c.datacenters[*s.datacenter].name : std::string{};
  };
  const bool together = std::ranges::all_of(
      g.stages, [&](const auto& s) { return s.datacenter == g.stages[0].datacenter; });
  auto text =
      fmt::format("{} pipeline{}{}, {} micro-batch{}{}:", g.pipelines, g.pipelines == 1 ? "" : "s",
                  together ? place(g.stages[0]) : "", g.microbatches,
                  g.microbatches == 1 ? "" : "es", g.pipelines == 1 ? "" : " each");
  const auto* separator = " ";
  for (const auto& s : g.stages) {
    text += fmt::format("{}{} x {}{}", separator, s.gpu ? c.gpus[*s.gpu].name : "GPUs",
                        s.tensor_parallel, together ? "" : place(s));
    separator = ", ";
  }
  return text;
}

std::vector<std::string> group_sentences(const cluster& c, const plan& how) {
  std::vector<std::string> all;
  if (how.groups)
    for (const auto& g : groups_of(how)) all.push_back(group_sentence(c, g));
  return all;
}

// Pieces of a transformer are sublayers, two per layer (model_chain.hpp).
std::string size_text(const model& m, const plan_stage& stage) {
  if (m.operators.empty()) return fmt::format("{:g} layers", stage.count / 2.0);
  return fmt::format("{} operators", stage.count);
}

}  // namespace troupe::planners
