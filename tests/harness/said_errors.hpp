#pragma once

#include <string>
#include <string_view>

#include "runtime/host/log.hpp"

namespace troupe::harness {

/// Keeps errors that are logged while it lives, and everything else out of the test's output.
class said_errors {
 public:
  said_errors() {
    runtime::set_log_sink([this](runtime::log_level level, std::string_view line) {
      if (level == runtime::log_level::error) lines_ += std::string{line} + '\n';
    });
  }
  ~said_errors() { runtime::set_log_sink({}); }
  said_errors(const said_errors&) = delete;
  bool has(const std::string& words) const { return lines_.find(words) != std::string::npos; }
  const std::string& all() const { return lines_; }

 private:
  std::string lines_;
};

}  // namespace troupe::harness
