#pragma once

#include <cstddef>
#include <deque>

#include "messages/base/statistics.hpp"

namespace troupe::actors {

/// How long something usually takes: the median of the last times. The largest of them would stand
/// for good: an operation that was once interrupted by the operating system would be expected to
/// take as long again, fit into no bubble, and so never show that it is faster. What it may take
/// longer than usual is the guard's part.
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
