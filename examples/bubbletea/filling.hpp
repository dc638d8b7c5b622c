#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/traces/trace.hpp"
#include "planners/bubbletea/prefill_packing.hpp"
#include "studies/prefill_bubbles.hpp"

// Trainings whose bubbles are filled with the prompts of a trace.

namespace bubbletea {

using namespace troupe;  // an example's own header

/// A training's timetable, which repeats, and the guests of its devices.
struct lender {
  planners::timetable times;
  std::vector<planners::prefill_group> groups;
  double kv_token_s = 0;  // the transfer of a prompt's cache, for each token
  double guest_gb = 0;    // what the largest guest needs for a prompt of 8,192 tokens
  double c = 0;           // a WAN transfer over the forward of the fastest stage
};

/// A pipeline of 6 stages, 2 in each of 3 datacenters, twice, with 5 micro-batches and C = 3, in
/// slots; a barrier after each iteration. A thousand tokens of prefill take a quarter of a slot.
lender slots_job(const std::string& schedule);

/// GPT-A in pipelines of 6 GPUs on `pipelines / 2` of ATLAS's testbeds of 12 A100, with 5
/// micro-batches; a served model in prefill pipelines of that depth beside it, in the memory that
/// the training leaves.
lender gpt_a(const std::string& schedule, const std::string& served, std::uint32_t pipelines = 2,
             std::uint32_t depth = 1);

struct filling_options {
  planners::packing_options packing;
  double guard_s = 0.5e-3;
  std::size_t saturated = 0;  // 0: by arrival
  double rate = 1;            // times the trace's
  double ttft_s = 0;          // 0: no deadline
  double horizon_s = 0;       // of a saturated run
};

struct seconds_of {
  double p50 = 0, p90 = 0, p99 = 0;
};

struct filling {
  double before = 0;  // share of the devices' time in training's steps
  double tails = 0;   // in copies of gradients and updates, after an iteration's last backward
  studies::bubble_shares bubbles;
  std::uint64_t offered = 0, served = 0;
  std::uint64_t served_in_span = 0, tokens_in_span = 0;
  std::vector<std::pair<std::string, std::uint64_t>> declined;  // by reason, without zeros
  seconds_of ttft, ttft_with_transfer;
  double span_s = 0;    // all shares are of this time
  double attained = 0;  // share of all offered that were served within ttft_s

  double after() const { return before + bubbles.prefill; }
  double served_per_s() const { return static_cast<double>(served_in_span) / span_s; }
  double tokens_per_s() const { return static_cast<double>(tokens_in_span) / span_s; }
};

filling fill(const lender& from, const std::vector<formats::inference_row>& trace,
             const filling_options& o);

}  // namespace bubbletea
