#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The iterations and events of a training that the controller has not acknowledged. Every report
/// carries all events and the oldest iterations; an acknowledgement names a report, and what that
/// one carried is forgotten. So each iteration reaches the controller once, although reports and
/// acknowledgements may be lost.
class controller_reports {
 public:
  /// Iterations of one report: a training may be far ahead of the controller's disk.
  static constexpr std::size_t max_iterations = 256;

  /// Iterations of an earlier trainer that were never reported.
  void restore(std::vector<iteration_record> unreported) { iterations_ = std::move(unreported); }
  void add(const iteration_record& r) { iterations_.push_back(r); }
  void add_event(const std::string& sentence) { events_.push_back(sentence); }

  /// Writes what is not acknowledged into the next report, and numbers it.
  void write(training_report& r);
  /// False: the acknowledgement is of no report that counts.
  bool acknowledge(std::uint64_t sequence);

  bool empty() const { return iterations_.empty() && events_.empty(); }
  bool has_iterations() const { return !iterations_.empty(); }
  /// Are there enough for a report?
  bool has_full_report() const { return iterations_.size() >= max_iterations; }
  /// Is it so since the latest iteration? While the controller does not answer, only every
  /// max_iterations, and not for each further one.
  bool fills_report() const { return iterations_.size() % max_iterations == 0; }

 private:
  struct sent {
    std::uint64_t sequence = 0;
    std::size_t iterations = 0, events = 0;
  };
  std::vector<iteration_record> iterations_;
  std::vector<std::string> events_;
  std::deque<sent> in_flight_;
  std::uint64_t sequence_ = 0;
};

}  // namespace troupe::actors
