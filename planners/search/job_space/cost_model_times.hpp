#pragma once

#include <cstdint>
#include <functional>
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
#include "planners/cost/plan_time.hpp"
#include "planners/plans/fits.hpp"
#include "planners/schedule/schedule.hpp"
#include "planners/search/job_space/gpu_kinds.hpp"
#include "planners/search/job_space/link_floors.hpp"
#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_times.hpp"
#include "planners/search/stage_table.hpp"

namespace troupe::planners {

/// Why a job's pipelines, whatever the space, are in one datacenter: who sums its gradients has no
/// gateways. Empty: they need not be.
std::string why_one_datacenter(const job_spec& job);

/// How plans are timed.
struct plan_timing {
  fidelity by = fidelity::closed;  // or a longer lower bound of the schedule's time
  /// How many times as long as its iterations a run takes on these GPUs, at least 1. None: nothing
  /// interrupts it.
  std::function<double(const allocation& where)> longer{};
};

/// The search's times by the cost model's closed form: `value` is evaluate() of the plan, by
/// default in its closed form, on the nodes that it would have. Stages hold 1F1B's micro-batches in
/// flight, p - i in stage i. Keeps references to the cluster and the idle GPUs.
class cost_model_times final : public space_times {
 public:
  /// `idle`: the GPUs that the job may use together. For work with a model, with one part of it a
  /// stage, and whole sequences.
  static expected<std::unique_ptr<cost_model_times>> of(const cluster& c, const idle_index& idle,
                                                        const job_spec& job,
                                                        const plan_space& space,
                                                        const plan_timing& timing = {});

  /// The question, in the job's limits and by its objective. Classes are GPU types x degrees;
  /// kinds are GPU types in nodes of one speed.
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
  /// Whether stages on GPUs of one type differ by their nodes.
  bool has_speeds() const { return kinds_.has_speeds(); }
  const plan_timing& timing() const { return timing_; }

  stage_floor floor_of(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                       std::uint32_t count, std::uint32_t behind) const override;
  double tail_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                      std::uint32_t count, std::uint32_t pipelines) const override;
  hop_floor leaving_floor(std::uint32_t rows, std::uint32_t cls, bool to_next) const override;
  node_sum node_sum_of(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                       std::uint32_t count) const override;
  double line_s(const space_line& line, std::uint32_t microbatches) const override;
  space_value value(const space_plan& plan) const override;
  /// Peers of one kind have a sum's floor of their own.
  const space_times& of_alike() const override { return alike_; }
  std::uint64_t units_of(const space_plan& plan) const override {
    return 2'000 + 300 * std::uint64_t{plan.pipelines()} * plan.stages();
  }

 private:
  cost_model_times(const cluster& c, const idle_index& idle, const job_spec& job,
                   const plan_space& space);

  void add_pools();
  void add_classes();
  void add_rows();
  void set_max_stages();
  std::uint32_t piece(std::uint32_t unit) const;
  /// Costs of a class, and the shortest sends that a stage of it may have.
  struct class_facts {
    const stage_table* table = nullptr;
    std::uint32_t kind = 0;
    double memory_bytes = 0, launch_s = 0;
    double send_s = 0, crossing_s = 0, hop_s = 0;
    double receive_s = 0, leaving_send_s = 0, leaving_receive_s = 0;
  };
  struct known_hop {
    double bytes = -1, s = 0;
  };
  struct rows_facts {
    std::uint32_t rows = 0;
    std::vector<std::unique_ptr<stage_table>> tables;  // by degree
    std::vector<class_facts> classes;
    mutable std::vector<double> hidden_s;   // by first piece; below 0: not known
    mutable std::vector<known_hop> hops{};  // by sender's and receiver's class and datacenter
  };
  const rows_facts& facts(std::uint32_t rows) const;
  rows_facts facts_of_rows(std::uint32_t rows) const;
  const range_costs& costs(const class_facts& k, std::uint32_t first, std::uint32_t count,
                           std::uint32_t behind) const;
  double hidden_s(std::uint32_t rows, std::uint32_t first) const;
  double hop_s(std::uint32_t rows, const space_seat& from, const space_seat& to,
               double bytes) const;
  /// `kinds`: of plans whose pipelines may be of several kinds.
  double tail_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                      std::uint32_t count, std::uint32_t pipelines, bool kinds) const;
  double sum_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                     std::uint32_t count, std::uint32_t pipelines, bool kinds) const;
  /// The same over several datacenters. `card_s`: of all gradients over the card.
  double sum_of_runs_s(double card_s, double bytes, double here, std::uint32_t pipelines,
                       std::uint32_t flows) const;
  /// Gradients that a stage sums with its peers, and their time over the fastest card of its kind.
  struct stage_sum {
    double bytes = -1, over_card_s = -1;  // below 0: not known
  };
  /// One past the last class: at least, of any class.
  const stage_sum& sum_of(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                          std::uint32_t count) const;
  /// Peers of a stage of the class that its node may have, itself included.
  double peers_here(std::uint32_t cls, bool kinds) const;
  bool crosses() const {
    return problem_.space.mixed_pipelines && problem_.space.several_datacenters &&
           problem_.datacenters > 1;
  }
  bool is_as_asked(const space_plan& plan) const;
  /// GPUs of the kinds of its seats, which its plan does not name; none: they cannot be had so.
  std::optional<allocation> seated_on(const space_plan& plan) const;
  std::optional<std::vector<plan_stage>> stages_of(const space_plan& plan,
                                                   const space_group& group) const;

  /// These times for plans whose pipelines are all alike.
  class alike_times final : public space_times {
   public:
    explicit alike_times(const cost_model_times& all) : all_{all} {}
    stage_floor floor_of(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                         std::uint32_t count, std::uint32_t behind) const override {
      return all_.floor_of(rows, cls, first, count, behind);
    }
    double tail_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                        std::uint32_t count, std::uint32_t pipelines) const override {
      return all_.tail_floor_s(rows, cls, first, count, pipelines, false);
    }
    double line_s(const space_line& line, std::uint32_t microbatches) const override {
      return all_.line_s(line, microbatches);
    }
    space_value value(const space_plan& plan) const override { return all_.value(plan); }
    std::uint64_t units_of(const space_plan& plan) const override { return all_.units_of(plan); }

   private:
    const cost_model_times& all_;
  };

  const cluster& c_;
  const idle_index& idle_;
  job_spec job_;
  plan_timing timing_;
  space_problem problem_;
  std::uint32_t unit_ = 1;  // of the model's pieces: what a piece of the problem is
  bool sends_in_steps_ = false;
  std::uint32_t largest_tensor_ = 1;
  struct node_peers {
    std::vector<double> here;  // peers_here, by class
    double max = 1;
  };
  node_peers peers_[2];  // of pipelines that are all alike; of any kinds
  gpu_kinds kinds_;
  std::vector<idle_index> idle_in_;  // by datacenter
  std::optional<link_floors> links_;
  alike_times alike_{*this};
  mutable std::map<std::uint32_t, std::unique_ptr<rows_facts>> facts_;
  mutable const rows_facts* last_facts_ = nullptr;
  mutable std::vector<stage_sum> sums_;  // by range and class
  struct line_steps {
    std::vector<step_costs> steps;
    std::vector<double> hop_s, wan_s;
  };
  mutable line_steps scratch_;  // of line_s(), which is asked for very often
};

}  // namespace troupe::planners
