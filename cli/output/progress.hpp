#pragma once

#include <string>

#include "cli/output/output.hpp"
#include "messages/wire/client.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::cli {

/// "iteration 120 of 3,000 (4 %), loss 3.2140, 17,994 tokens/s, 2m 05s left", as far as known;
/// empty before the first iteration.
std::string progress_text(const job_status& j);

/// The predicted and the measured memory of an attempt.
std::string memory_text(const memory_record& m);

/// A line on standard error that is overwritten: on a terminal; otherwise nothing is shown.
class progress_line {
 public:
  ~progress_line() { clear(); }
  void show(const std::string& text);
  /// Erases the line; later output begins in its place.
  void clear();

 private:
  std::string shown_;
};

/// Progress in a log: a line now and then, since one that is overwritten cannot be shown. On a
/// terminal none is due.
class progress_log {
 public:
  explicit progress_log(double interval_s = 10, bool terminal = on_terminal())
      : interval_s_{interval_s}, due_s_{interval_s}, terminal_{terminal} {}

  /// Is it time to print `text`? Not before it differs from the last one.
  bool is_due(const std::string& text, double now_s);

 private:
  double interval_s_, due_s_;
  bool terminal_;
  std::string printed_;
};

/// "..., 2m 05s left", if the work goes on as fast as until now: `share` of it, from 0 to 1, was
/// done in `elapsed_s`. Without a time while that is a guess.
std::string with_time_left(std::string text, double share, double elapsed_s);

/// Progress of what a verb itself computes: a line on a terminal, now and then a line elsewhere.
class work_progress {
 public:
  /// `share`: what is done of the whole.
  void show(const std::string& text, double share);
  /// Erases the terminal's line.
  void clear() { line_.clear(); }

 private:
  runtime::stopwatch since_;
  progress_line line_;
  progress_log log_;
};

}  // namespace troupe::cli
