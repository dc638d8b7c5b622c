#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace troupe::runtime {

/// Lets one line a minute pass about each subject (an address, a key), and counts those between, so
/// that a stranger cannot fill a disk with log lines. Time is whatever the caller counts in.
class log_limiter {
 public:
  /// How many lines this one stands for, itself included; 0: it must not be written now.
  std::uint64_t pass(const std::string& subject, double now_s) {
    if (subjects_.size() >= max_subjects)
      std::erase_if(subjects_, [&](const auto& s) { return now_s - s.second.since_s >= every_s; });
    // Where there are too many subjects those that are new share one.
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
    std::uint64_t lines = 0;  // since the last that passed
  };

  std::map<std::string, entry> subjects_;
};

}  // namespace troupe::runtime
