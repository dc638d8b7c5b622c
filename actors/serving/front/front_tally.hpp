#pragma once

#include <deque>

#include "actors/serving/front/completions.hpp"
#include "messages/wire/generation.hpp"

namespace troupe::actors {

/// Counts the outcomes of a front's requests, for its report.
class front_tally {
 public:
  /// Times of which the report has quantiles.
  static constexpr std::size_t newest = 256;

  /// An attempt begins.
  void begun(std::uint32_t attempt) { counts_.retries += attempt > 1 ? 1 : 0; }
  /// An update of a request, `after_s` after it was submitted.
  void count(const completion_update& n, double after_s);
  /// `enough`: its client needs no more; otherwise it has left.
  void cancelled(bool enough) { ++(enough ? counts_.finished : counts_.cancelled); }

  void write(front_report& to) const;

 private:
  front_counts counts_;
  std::deque<double> first_tokens_s_;
};

}  // namespace troupe::actors
