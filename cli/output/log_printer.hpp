#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/output/output.hpp"
#include "messages/base/units.hpp"

namespace troupe::cli {

/// The log of one attempt of a job on the node with this rank.
struct log_name {
  std::uint32_t attempt = 0, rank = 0;
  lease_id lease = 0;
};

/// Prints a log piece by piece, keeping only an incomplete line.
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
  /// The log is complete: prints an incomplete last line.
  void end();

 private:
  void print_line(std::string_view line) const;

  const output& out_;
  form form_;
  job_id job_;
  log_name which_;
  std::string held_;  // an incomplete line or character
};

}  // namespace troupe::cli
