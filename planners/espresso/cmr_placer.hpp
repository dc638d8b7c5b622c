#pragma once

#include <map>
#include <vector>

#include "planners/search/stage_placer.hpp"

// Espresso's own placer (section III.C, Algorithm 2, equations 8 to 10), next to the exact one
// (search/stage_cut.hpp).

namespace troupe::planners {

/// Equation 10, the compute-memory ratio CMR(t, s) = F / M * max(l_m, l_c) / l_c, with F the TFLOPS
/// and M the GB of a GPU of type t, l_m the most layers that its memory holds at stage s
/// (`max_in_memory`), and l_c the most whose sums of gradients hide behind the stages before it
/// (`max_hidden`); at stage 0 l_c is the number of layers that it is given.
double compute_memory_ratio(double tflops, double memory_gb, double max_in_memory,
                            double max_hidden);

/// Algorithm 2: for every size of stage 0, stages are filled from the front, each on the GPU with
/// the smallest ratio of those left, with its share by speed or as much as its memory holds;
/// remaining pieces go to the other stages one at a time. Returns the plan with the shortest
/// iteration by the closed form, or none.
set_plan place_by_ratio(stage_placer& placer, const cluster& c, std::size_t division,
                        const stage_counts& counts);

/// A GPU type that was considered for a stage.
struct ratio_candidate {
  std::uint32_t stage = 0;
  gpu_index gpu = 0;
  double max_in_memory = 0, max_hidden = 0;  // l_m and l_c, in layers
  double ratio = 0;
  bool taken = false;
};

/// The ratios that Algorithm 2 compares, stage by stage, when it places the GPUs of `made` on an
/// empty cluster with a stage 0 of the same size; for users (--explain-cmr). `max_in_memory`: l_m
/// by type, in layers, instead of the memory model's.
std::vector<ratio_candidate> explain_ratios(const cluster& c, const job_spec& job,
                                            const placed_plan& made,
                                            const std::map<gpu_index, double>& max_in_memory = {});

}  // namespace troupe::planners
