#pragma once

#include <span>
#include <vector>

#include "formats/traces/throughputs.hpp"
#include "formats/traces/trace.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/replayed_times.hpp"

// Traces without invented models: docs/traces.md.

namespace troupe::formats {

struct replayed_trace {
  std::vector<arrival> jobs;  // in order
  replayed_times times;
};

/// Each job takes its duration, on its number of GPUs of its type, or of any if it names none.
/// Fails for a row without a duration.
expected<replayed_trace> replay_as_is(std::span<const trace_row> rows);

/// Each job takes its iterations by the measured speed of its model on its number of GPUs; one
/// without iterations does those that fill its duration on its own type, or on the fastest if it
/// names none. A model or number that was not measured has no time, and its job fails. Fails for a
/// row without model, or without any amount of work, and if no measured type is in the cluster.
expected<replayed_trace> replay_measured(std::span<const trace_row> rows, const throughputs& speeds,
                                         const cluster& c);

}  // namespace troupe::formats
