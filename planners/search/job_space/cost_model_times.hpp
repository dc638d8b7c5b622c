#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/link_cost.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/plans/fits.hpp"
#include "planners/search/job_space/link_floors.hpp"
#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_times.hpp"
#include "planners/search/stage_table.hpp"

namespace troupe::planners {

/// The search's times by the cost model's closed form: `value` is evaluate(closed) of the plan on
/// the nodes that it would have. Stages hold 1F1B's micro-batches in flight, p - i in stage i.
/// Keeps references to the cluster and the idle GPUs.
class cost_model_times final : public space_times {
 public:
  /// `idle`: the GPUs that the job may use together. For work with a model, with one part of it a
  /// stage, and whole sequences.
  static expected<std::unique_ptr<cost_model_times>> of(const cluster& c, const idle_index& idle,
                                                        const job_spec& job,
                                                        const plan_space& space);

  /// The question, in the job's limits and by its objective. Classes are GPU types x degrees;
  /// kinds are GPU types.
  const space_problem& problem() const { return problem_; }
  /// The plan on its GPUs; none: no memory, or no room.
  std::optional<placed_plan> placed(const space_plan& plan) const;
  /// The job as its stages run it: with the schedule megatron, and the plan's samples of a
  /// micro-batch.
  job_spec job_of(const space_plan& plan) const;
  /// A plan of one group with these stages in place of its own, in the same datacenter; none: they
  /// are cut where this problem has no cut.
  std::optional<space_plan> like(const space_plan& plan,
                                 const std::vector<plan_stage>& stages) const;
  /// Gradients that a stage's peers sum, by stage: of the group with the most.
  std::vector<std::uint64_t> summed_bytes_of(const space_plan& plan) const;
  const cluster& its_cluster() const { return c_; }
  const idle_index& idle_of(std::uint32_t datacenter) const { return idle_in_[datacenter]; }

  stage_floor floor_of(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                       std::uint32_t count, std::uint32_t behind) const override;
  double tail_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                      std::uint32_t count, std::uint32_t pipelines) const override;
  double line_s(const space_line& line, std::uint32_t microbatches) const override;
  space_value value(const space_plan& plan) const override;
  std::uint64_t units_of(const space_plan& plan) const override {
    return 2'000 + 700 * std::uint64_t{plan.pipelines()} * plan.stages();
  }

 private:
  cost_model_times(const cluster& c, const idle_index& idle, const job_spec& job,
                   const plan_space& space);

  void add_pools();
  void add_classes();
  void add_rows();
  void set_max_stages();
  std::uint32_t piece(std::uint32_t unit) const;
  const stage_table& table(std::uint32_t tensor, std::uint32_t rows) const;
  const range_costs& costs(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                           std::uint32_t count, std::uint32_t behind) const;
  double hidden_s(std::uint32_t rows, std::uint32_t first) const;
  double sum_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                     std::uint32_t count, std::uint32_t pipelines) const;
  double over_card_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                     std::uint32_t count) const;
  struct min_sum {
    double bytes = 0, over_card_s = 0;
  };
  const min_sum& min_sum_of(std::uint32_t rows, std::uint32_t first, std::uint32_t count) const;
  double summed_bytes(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                      std::uint32_t count) const;
  /// Peers of a stage of the class that its node may have, itself included.
  double peers_here(std::uint32_t cls) const;
  bool crosses() const {
    return problem_.space.mixed_pipelines && problem_.space.several_datacenters &&
           problem_.datacenters > 1;
  }
  bool is_as_asked(const space_plan& plan) const;
  std::optional<std::vector<plan_stage>> stages_of(const space_plan& plan,
                                                   const space_group& group) const;

  const cluster& c_;
  const idle_index& idle_;
  job_spec job_;
  space_problem problem_;
  std::uint32_t unit_ = 1;  // of the model's pieces: what a piece of the problem is
  bool sends_in_steps_ = false;
  std::uint32_t largest_tensor_ = 1;
  std::vector<double> here_;  // peers_here, by class
  double max_here_ = 1, max_card_bytes_s_ = 0;
  std::vector<gpu_index> gpus_;      // by kind
  std::vector<idle_index> idle_in_;  // by datacenter
  std::optional<link_floors> links_;
  // By degree and rows; by rows and first piece.
  mutable std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<stage_table>> tables_;
  mutable std::map<std::pair<std::uint32_t, std::uint32_t>, double> hidden_;
  mutable std::map<std::pair<std::uint32_t, std::uint32_t>, min_sum> min_sums_;  // by range
};

}  // namespace troupe::planners
