#pragma once

#include <cstdint>

#include "harness/figures.hpp"
#include "titan/runs.hpp"

// The paper's tables and figures.

struct extent {
  std::uint64_t seeds = 1;             // at density 1
  std::uint64_t seeds_by_density = 1;  // at each other one
};

void lookup_table();
void table2();
void figure3();
void figure4();
void table3(runs& all, const extent& e);
void figure5_and_table4(runs& all, const extent& e);
/// Ours, on which the gain over SRTF depends.
void sensitivity(runs& all, const extent& e);
