#pragma once

#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/layout.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/schedule/evaluate_schedule.hpp"

// The links inside datacenters that the tensors of a plan's stages use, and how long each tensor
// takes on an idle link (docs/planners/cost_model.md, "Links").

namespace troupe::planners {

/// Numbers the links and finds each tensor's. `costs`: of every stage, by pipeline * stages +
/// stage. `pipelines`: all of the plan; those beyond the layout are taken to be on other nodes of
/// the same kind. Keeps references to all arguments.
class tensor_routes {
 public:
  tensor_routes(const cluster& c, const job_spec& job, const pipeline_layout& layout,
                std::uint32_t pipelines, const std::vector<stage_costs>& costs);

  /// One stage's routes. Those of WAN hops are unset.
  stage_routes of(std::uint32_t pipeline, std::uint32_t stage);
  /// Number of links.
  std::uint32_t links() const { return links_; }

  /// The longest path of an activation or its gradient over the hop after a stage, if that is
  /// inside a datacenter, in the pipelines from `first` to before `end`.
  double hop_s(std::uint32_t first, std::uint32_t end, std::uint32_t stage) const;

 private:
  const device_place& place(std::uint32_t pipeline, std::uint32_t stage) const {
    return layout_.at(pipeline, stage);
  }
  const stage_costs& costs(std::uint32_t pipeline, std::uint32_t stage) const {
    return costs_[std::size_t{pipeline} * layout_.stages + stage];
  }
  std::uint32_t link_of(std::uint32_t pipeline, std::uint32_t stage, node_index to) const;
  lan_route route(std::uint32_t pipeline, std::uint32_t from, std::uint32_t to_pipeline,
                  std::uint32_t to, double bytes) const;
  lan_route tied_route(std::uint32_t pipeline, std::uint32_t from, std::uint32_t to);
  std::uint64_t summed_bytes(std::uint32_t pipeline, std::uint32_t stage) const;
  std::vector<peer_route> peers(std::uint32_t pipeline, std::uint32_t stage,
                                const std::vector<std::uint32_t>& runs) const;
  double between_s(std::uint32_t stage, const std::vector<std::uint32_t>& runs) const;
  const std::vector<all_reduce_rate>* sums_of_devices(std::uint32_t stage) const;

  const cluster& c_;
  const job_spec& job_;
  const pipeline_layout& layout_;
  const std::uint32_t pipelines_;
  const std::vector<stage_costs>& costs_;
  // By `costs`: each stage's node's link to others, and which of these have equal rates.
  std::vector<std::uint32_t> cards_, card_kinds_;
  std::uint32_t links_ = 0;
  /// A stage's peers by datacenter, and what their running sum takes: the same for all of them.
  struct stage_runs {
    std::vector<std::uint32_t> first;  // pipelines
    double between_s = 0;
    std::vector<node_index> nodes{};          // by pipeline
    std::vector<std::uint32_t> card_kinds{};  // by pipeline
  };
  std::vector<stage_runs> runs_;  // by stage
  /// Times over cards with rates by size, each of which costs some logarithms: most routes of a
  /// plan are of few kinds.
  struct known_route {
    std::uint32_t from = 0, to = 0, flows = 0;  // kinds of cards
    double bytes = 0, alone_s = 0, share = 1;
  };
  mutable std::vector<known_route> known_;
};

/// Seconds until a stage and its peers in all datacenters have summed their gradients on otherwise
/// idle links, without a tied embedding's transfers.
double peers_s(const stage_routes& routes);

}  // namespace troupe::planners
