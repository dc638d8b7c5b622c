#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace troupe::runtime {

/// Passes one line per minute and subject (an address, a key) and counts the others, so that an
/// untrusted peer cannot fill the disk with log lines. Times are in any unit of the caller.
class log_limiter {
 public:
  /// Returns how many lines this one stands for, itself included; 0: do not write it.
  std::uint64_t pass(const std::string& subject, double now_s) {
    if (subjects_.size() >= max_subjects)
      std::erase_if(subjects_, [&](const auto& s) { return now_s - s.second.since_s >= every_s; });
    // Beyond the limit, new subjects share one entry.
    const bool room = subjects_.size() < max_subjects || subjects_.contains(subject);
    auto [at, first] = subjects_.try_emplace(room ? subject : "", entry{now_s, 0});
    auto& e = at->second;
    ++e.lines;
    if (!first && now_s - e.since_s < every_s) return 0;
    e.since_s = now_s;
    return std::exchange(e.lines, 0);
  }

 private:
  static constexpr double every_s = 60;
  static constexpr std::size_t max_subjects = 1000;
  struct entry {
    double since_s = 0;
    std::uint64_t lines = 0;  // since the last one that was written
  };

  std::map<std::string, entry> subjects_;
};

}  // namespace troupe::runtime
