#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/runs.hpp"

namespace troupe::bench {

/// A server of configs/models/scribe with OpenAI's API: `troupe serve`, or a cluster of processes
/// with a front. Ends with this; the program ends if it cannot start.
class http_service {
 public:
  static http_service alone(const scratch& in);
  static http_service cluster(const scratch& in);
  ~http_service();
  http_service(http_service&&) noexcept;
  http_service(const http_service&) = delete;

  /// Seconds from a request of this prompt to its first token.
  double first_token_s(const std::string& prompt) const;
  /// Processor seconds of the server's processes for a token, with so many streams of `count`
  /// tokens at a time.
  double cpu_s_of_token(std::size_t streams, std::size_t count) const;

 private:
  http_service(std::string url, std::vector<int> pids, std::string end)
      : url_{std::move(url)}, pids_{std::move(pids)}, end_{std::move(end)} {}
  double cpu_s() const;

  std::string url_;
  std::vector<int> pids_;
  std::string end_;  // a command
};

}  // namespace troupe::bench
