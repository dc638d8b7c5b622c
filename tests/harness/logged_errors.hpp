#pragma once

#include <string>
#include <string_view>

#include "runtime/host/log.hpp"

namespace troupe::harness {

/// Keeps errors that are logged while it lives, and everything else out of the test's output.
class logged_errors {
 public:
  logged_errors() {
    runtime::set_log_sink([this](runtime::log_level level, std::string_view line) {
      if (level == runtime::log_level::error) lines_ += std::string{line} + '\n';
    });
  }
  ~logged_errors() { runtime::set_log_sink({}); }
  logged_errors(const logged_errors&) = delete;
  bool has(const std::string& words) const { return lines_.find(words) != std::string::npos; }
  const std::string& all() const { return lines_; }

 private:
  std::string lines_;
};

}  // namespace troupe::harness
