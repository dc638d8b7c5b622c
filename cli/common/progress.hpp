#pragma once

#include <string>

#include "messages/client.hpp"

namespace troupe::cli {

/// "iteration 120 of 3,000 (4 %), loss 3.2140, 17,994 tokens/s, 2m 05s left": what is known of it;
/// empty before the first iteration.
std::string progress_text(const job_status& j);

/// What was predicted of an attempt's memory, and what became of it.
std::string memory_text(const memory_record& m);

/// One line on standard error that is written over: on a terminal; nothing elsewhere.
class progress_line {
 public:
  ~progress_line() { clear(); }
  void show(const std::string& text);
  /// The line is gone; what comes next begins where it was.
  void clear();

 private:
  std::string shown_;
};

}  // namespace troupe::cli
