#pragma once

#include <cstddef>
#include <deque>

#include "messages/base/statistics.hpp"

namespace troupe::actors {

/// The usual duration of an operation: the median of the last ones. Their maximum would be wrong:
/// an operation that the operating system has once interrupted would be expected to take as long
/// again, fit into no bubble, and so never show that it is faster. The guard allows for the
/// difference.
class median_of_recent {
 public:
  /// `unknown`: before the first.
  double value(double unknown) const {
    return all_.empty() ? unknown : statistics::median({all_.begin(), all_.end()});
  }
  void add(double took) {
    all_.push_back(took);
    if (all_.size() > remembered) all_.pop_front();
  }

 private:
  static constexpr std::size_t remembered = 32;
  std::deque<double> all_;
};

}  // namespace troupe::actors
