#pragma once

#include "planners/pipeline/stage_placer.hpp"

// Espresso's own placer (Algorithm 2, equations 8 to 10), next to the exact one (stage_cut.hpp).

namespace troupe::planners {

/// Equation 10: F / M * max(l_m, l_c) / l_c, with F the TFLOPS and M the GB of a GPU, l_m the most
/// layers that its memory holds at a stage, and l_c the most whose sums of gradients hide behind
/// the stages before it; at stage 0 l_c is the number of layers that it is given.
double compute_memory_ratio(double tflops, double memory_gb, double most_in_memory,
                            double most_hidden);

/// For every size of stage 0: stages are filled from the front, each from the GPU with the least
/// ratio of those left, with its share by speed, or as much as it holds; what is left over goes to
/// the others one piece at a time. The shortest iteration of these.
set_plan place_by_ratio(stage_placer& placer, const cluster& c, std::size_t division,
                        const stage_counts& counts);

}  // namespace troupe::planners
