#pragma once

#include <map>
#include <vector>

#include "planners/search/stage_placer.hpp"

// Espresso's own placer (Algorithm 2, equations 8 to 10), next to the exact one (stage_cut.hpp).

namespace troupe::planners {

/// Equation 10: F / M * max(l_m, l_c) / l_c, with F the TFLOPS and M the GB of a GPU, l_m the most
/// layers that its memory holds at a stage, and l_c the most whose sums of gradients hide behind
/// the stages before it; at stage 0 l_c is the number of layers that it is given.
double compute_memory_ratio(double tflops, double memory_gb, double max_in_memory,
                            double max_hidden);

/// For every size of stage 0: stages are filled from the front, each from the GPU with the least
/// ratio of those left, with its share by speed, or as much as it holds; what is left over goes to
/// the others one piece at a time. The shortest iteration of these.
set_plan place_by_ratio(stage_placer& placer, const cluster& c, std::size_t division,
                        const stage_counts& counts);

/// A GPU that could have been taken for a stage.
struct ratio_candidate {
  std::uint32_t stage = 0;
  gpu_index gpu = 0;
  double max_in_memory = 0, max_hidden = 0;  // l_m and l_c, in layers
  double ratio = 0;
  bool taken = false;
};

/// What the placer chooses from on an empty cluster, stage by stage, when it makes a plan of this
/// one's GPUs with a stage 0 of the same size. `max_in_memory`: l_m where it is known, instead of
/// what the memory model says.
std::vector<ratio_candidate> explain_ratios(const cluster& c, const job_spec& job,
                                            const placed_plan& made,
                                            const std::map<gpu_index, double>& max_in_memory = {});

}  // namespace troupe::planners
