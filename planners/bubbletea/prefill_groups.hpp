#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/wire/prefill.hpp"
#include "planners/bubbletea/prefill_times.hpp"
#include "planners/cost/layout.hpp"

// Which of a training's GPUs form prefill pipelines (BubbleTea, section 5.1).

namespace troupe::planners {

/// A device that holds layers of the served model beside its stage.
struct prefill_guest {
  std::uint32_t device = 0;  // pipeline * stages + stage of the training
  std::uint32_t first_layer = 0, layers = 0;
  prefill_rate rate;

  bool operator==(const prefill_guest&) const = default;
};

/// A prefill pipeline: all layers, in order.
struct prefill_group {
  std::vector<prefill_guest> guests;
  double hop_token_s = 0, hop_latency_s = 0;  // between two guests, the slowest hop

  bool operator==(const prefill_group&) const = default;
};

struct prefill_group_options {
  std::optional<std::uint32_t> depth;  // guests of a group, at least; none: as few as memory allows
  double guest_bytes = 0;              // memory of a device beside its training
  std::uint32_t tokens = 0;            // the longest prompt that must fit
  std::uint32_t rows = 0;              // an operation's largest number of them
};

/// Groups of the peers of each stage, which are all in one datacenter, so that no hidden vector
/// crosses the WAN. The paper ties prefill pipelines to DP-cells, which a re-plan may change; peers
/// stay together. With G = pipelines / depth,
/// group g has the peers p with p mod G = g, and each about as many layers. Groups of stage 0
/// first. Fails if the layers do not fit, if there are fewer pipelines than `depth`, or if several
/// GPUs share a stage.
expected<std::vector<prefill_group>> prefill_groups(const cluster& c, const pipeline_layout& layout,
                                                    const served_layer& layer,
                                                    const prefill_group_options& options);

/// A group that was offered, on devices numbered from `first_device` on.
prefill_group planned_group(const guest_group& g, std::uint32_t first_device);

}  // namespace troupe::planners
