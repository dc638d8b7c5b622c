#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "actors/training/trainer/worker_reports.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The stages' reports of one iteration, added in one order whenever the reports arrive: losses
/// and values by pipeline, squared norms from the last stage to the first. Sums of doubles depend
/// on their order, and a record must not depend on which host was quicker.
class ordered_sums {
 public:
  void add(const stage_report& r) {
    if (r.loss == 0 && r.squared_norm == 0 && !r.worker) return;
    auto& p = parts_[{r.name.pipeline, r.name.stage}];
    p.loss = r.loss;
    p.squared_norm = r.squared_norm;
    if (r.worker) p.worker = *r.worker;
  }

  /// Only last stages have a loss, and the stages of pipeline 0 have each parameter once.
  /// `divisors`: by pipeline, the number of all micro-batches over that of its own, so that a loss
  /// counts by the samples that it is the mean of. (Of equal pipelines it is their number,
  /// exactly.)
  void add_to(iteration_record& record, const std::vector<double>& divisors) const {
    double squared_norm = 0;
    for (const auto& [name, p] : parts_) {
      record.loss += p.loss / divisors[name.first];
      if (p.worker) worker_reports::add(record, *p.worker);
    }
    for (auto at = parts_.rbegin(); at != parts_.rend(); ++at)
      if (at->first.first == 0) squared_norm += at->second.squared_norm;
    record.gradient_norm = std::sqrt(squared_norm);
  }

 private:
  struct part {
    double loss = 0, squared_norm = 0;
    std::optional<worker_report> worker;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, part> parts_;  // by pipeline and stage
};

}  // namespace troupe::actors
