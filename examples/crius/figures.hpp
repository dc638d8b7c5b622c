#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/traces/trace.hpp"
#include "harness/figures.hpp"

// The figures, and shared input.

using namespace troupe;  // an example's own header

/// The paper's Table 2.
struct table2_model {
  const char* name;
  double billions;  // of parameters
  const char* family;
};
inline constexpr table2_model table2_models[] = {
    {"wide-resnet-0.5b", 0.5, "wide-resnet"},
    {"wide-resnet-1b", 1.0, "wide-resnet"},
    {"wide-resnet-2b", 2.0, "wide-resnet"},
    {"wide-resnet-4b", 4.0, "wide-resnet"},
    {"wide-resnet-6.8b", 6.8, "wide-resnet"},
    {"bert-760m", 0.76, "bert"},
    {"bert-1.3b", 1.3, "bert"},
    {"bert-2.6b", 2.6, "bert"},
    {"bert-6.7b", 6.7, "bert"},
    {"moe-0.69b", 0.69, "moe"},
    {"moe-1.3b", 1.3, "moe"},
    {"moe-2.4b", 2.4, "moe"},
    {"moe-10b", 10, "moe"},
    {"moe-27b", 27, "moe"},
};
/// The size of a run: --long has more.
struct extent {
  std::vector<std::uint32_t> batches;
  std::uint64_t seeds = 1;   // on the testbed
  std::uint32_t copies = 1;  // of the trace, on 1,280 GPUs
};

void figures12_and13(const extent& e);

void figure14(const extent& e);
void figures16_17_and20(const std::string& what, const std::vector<formats::trace_row>& rows);
void figure19(const extent& e);
void figure20(const extent& e);
void figure21(const extent& e);

/// Copies of a trace, each moved on by an equal part of `hours`, around its end; their jobs have
/// names of their own, and so models.
std::vector<formats::trace_row> superposed(const std::vector<formats::trace_row>& rows,
                                           std::uint32_t copies, double hours);
