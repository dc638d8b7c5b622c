#pragma once

#include <cstdint>
#include <vector>

#include "planners/search/space/space_problem.hpp"

namespace troupe::planners {

/// How many stages the pools have room for. Tensor degrees are powers of two, so that stages fit
/// into nodes if, for each degree t, those of t or more GPUs, in units of t, are no more than all
/// nodes together have units of t.
class space_room {
 public:
  explicit space_room(const space_problem& p);

  /// Pipelines of these classes, by stage, that a datacenter holds.
  std::uint32_t copies(std::uint32_t datacenter, const std::vector<std::uint32_t>& classes) const;
  bool holds(const space_plan& plan) const;
  /// GPUs of a kind, in all datacenters.
  std::uint32_t gpus(std::uint32_t kind) const { return gpus_[kind]; }
  std::uint32_t gpus(std::uint32_t kind, std::uint32_t datacenter) const {
    return units(datacenter, kind, 0);
  }
  bool has(const space_seat& s) const;

  /// The limits that `use` is subject to: units of each degree of each kind and datacenter. A
  /// limit that another one of fewer, larger units implies is left out.
  struct limit {
    std::uint32_t datacenter = 0, kind = 0, tensor = 1, units = 0;
  };
  const std::vector<limit>& limits() const { return limits_; }
  /// Units of a limit that a stage on this seat takes.
  std::uint32_t use(const limit& l, const space_seat& s) const {
    const auto& c = problem_->classes[s.cls];
    if (s.datacenter != l.datacenter || c.kind != l.kind || c.tensor < l.tensor) return 0;
    return c.tensor / l.tensor;
  }

 private:
  static constexpr std::uint32_t degrees = 16;
  std::uint32_t units(std::uint32_t datacenter, std::uint32_t kind, std::uint32_t degree) const {
    return units_[(datacenter * problem_->kinds.size() + kind) * degrees + degree];
  }

  const space_problem* problem_;
  std::vector<std::uint32_t> units_;  // of 2^degree GPUs
  std::vector<std::uint32_t> gpus_;
  std::vector<limit> limits_;
};

}  // namespace troupe::planners
