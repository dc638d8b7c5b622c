#pragma once

#include <cstddef>
#include <optional>

#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Sums up, for the trainer's reports, the reports of a program's stages on their workers. Without
/// a program it stays empty.
class worker_reports {
 public:
  /// When a stage is ready, and of each of its iterations.
  void add(const stage_report& r);
  /// A report of an iteration's stage; they come in any order.
  static void add(iteration_record& record, const worker_report& w);
  void complete(const iteration_record& record);

  const std::optional<program_training>& all() const { return all_; }
  /// The largest of all stages; 0: unknown.
  double peak_bytes() const;

 private:
  std::optional<program_training> all_;
};

/// A record as the controller keeps thousands of: with the first of its values.
iteration_record with_few_values(iteration_record r);

}  // namespace troupe::actors
