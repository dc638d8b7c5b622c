#pragma once

#include <cstdint>
#include <vector>

#include "messages/base/random.hpp"
#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_times.hpp"

namespace troupe::harness {

/// Random small pools, and times with everything that a search may trip over: memory that limits
/// the micro-batches in flight, rounds that such limits cost, links that differ by datacenter and
/// direction, sums whose slowest pair depends on the order, traffic with a price.
class random_space : public planners::space_times {
 public:
  explicit random_space(random_source& rng);

  planners::space_problem problem;

  stage_floor floor_of(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                       std::uint32_t count, std::uint32_t behind) const override;
  double tail_floor_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                      std::uint32_t count, std::uint32_t pipelines) const override;
  double line_s(const planners::space_line& line, std::uint32_t microbatches) const override;
  planners::space_value value(const planners::space_plan& plan) const override;

 private:
  struct of_kind {
    double speed = 1, gigabytes = 1, tensor_loss = 0;
  };
  struct piece {
    double work = 1, parameters = 1, kept = 0;
  };

  void make_pools(random_source& rng);
  void make_limits(random_source& rng);
  double work_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                std::uint32_t count) const;
  std::uint32_t held(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                     std::uint32_t count, std::uint32_t behind) const;
  double parameters(std::uint32_t first, std::uint32_t count) const;
  double send_s(std::uint32_t rows, const planners::space_seat& from,
                const planners::space_seat& to) const;
  double chunk_s(const planners::space_seat& from, const planners::space_seat& to) const;
  double pair_s(double bytes, std::uint32_t pipelines, double chunk_s) const;
  double traffic(const planners::space_plan& plan) const;

  std::vector<of_kind> kinds_;
  std::vector<piece> pieces_;
  std::vector<double> link_s_, price_;  // from * datacenters + to: of a unit of data
  double inside_s_ = 0;
};

}  // namespace troupe::harness
