#pragma once

#include <cstdint>
#include <optional>

#include "messages/wire/work.hpp"

namespace troupe::actors {

/// An elastic program in virtual time: it saves by itself every `checkpoint_every_s` of work, which
/// takes no time, and for `save_s` when it is stopped. All times are in seconds since it began.
class simulated_program {
 public:
  /// Does the order start one? Precondition of everything else.
  static bool runs(const work_order& w) { return w.program && w.program->save_s; }

  /// `asked_s`: when it was asked to stop; none: it was not.
  simulated_program(const work_order& w, double slowdown, std::optional<double> asked_s)
      : order_{w}, slowdown_{slowdown}, asked_s_{asked_s} {}

  /// Completed iterations of this attempt.
  std::uint64_t iterations(double at_s) const;
  /// The progress that a real one would report; `saved` by its own checkpoints.
  program_progress progress(double at_s) const;

  struct end {
    double at_s = 0;
    std::uint64_t iterations = 0;  // completed by then
    std::uint64_t saved = 0;       // from the job's beginning
  };
  /// The end of a program that was asked to stop: it completes its iteration and saves. One that
  /// had not begun its first iteration ends at once; one that needs more than its grace is killed
  /// then.
  end stopped() const;
  /// The end of one that is killed.
  end killed(double at_s) const;

  /// Its last report.
  program_progress progress(const end& e) const;

 private:
  double iteration_s() const { return order_.iteration_s * slowdown_; }
  double worked_s(double at_s) const;
  double begun_s() const { return order_.start_s * slowdown_; }  // its first iteration

  const work_order& order_;
  double slowdown_ = 1;
  std::optional<double> asked_s_;
};

}  // namespace troupe::actors
