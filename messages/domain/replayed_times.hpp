#pragma once

#include <map>
#include <string>
#include <vector>

// Times of replayed jobs, where a trace or measurements give them (docs/traces.md).

namespace troupe {

/// The time of an iteration on the GPUs that a replayed job asks for.
struct replayed_time {
  std::string gpu_type;  // empty: of any type
  double iteration_s = 0;
  double planned_s = 0;  // what policies are given, the same for alike jobs
};

/// A job of a trace that runs on exactly as many GPUs as it asks for.
struct replayed_job {
  std::vector<replayed_time> times;  // by type, each type once
  std::string why_none;              // a sentence, if there are none
};

/// By the job's name.
using replayed_times = std::map<std::string, replayed_job, std::less<>>;

}  // namespace troupe
