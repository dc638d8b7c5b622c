#pragma once

#include <vector>

#include "messages/wire/stage.hpp"

namespace troupe::cli {

/// From each iteration's first forward to its last update, in whole nanoseconds.
std::vector<double> iteration_lengths_s(const training_report& r);

/// The mean time from an iteration's first forward to its last update.
double mean_iteration_s(const training_report& r);

/// The fraction of the stages' time in which they compute, the slow first iteration included.
double utilization(const training_report& r);

}  // namespace troupe::cli
