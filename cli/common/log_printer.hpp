#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/common/output.hpp"
#include "messages/units.hpp"

namespace troupe::cli {

/// One log of a job: an attempt's, of its nodes the one with this rank.
struct log_name {
  std::uint32_t attempt = 0, rank = 0;
  lease_id lease = 0;
};

/// Prints one log as it comes in pieces, and keeps no more of it than an unfinished line.
class log_printer {
 public:
  enum class form {
    plain,     // the bytes as they are
    prefixed,  // "ATTEMPT.RANK| " before each line
    text,      // one JSON string, escaped: the document's value for "text"
    lines,     // a JSON document a line: {"job", "attempt", "rank", "lease", "line"}
  };
  log_printer(const output& out, form f, job_id job, log_name which)
      : out_{out}, form_{f}, job_{job}, which_{which} {}

  void print(std::string_view piece);
  /// No more will come: what is unfinished is printed.
  void end();

 private:
  void print_line(std::string_view line) const;

  const output& out_;
  form form_;
  job_id job_;
  log_name which_;
  std::string held_;  // of an unfinished line, or of an unfinished character
};

}  // namespace troupe::cli
