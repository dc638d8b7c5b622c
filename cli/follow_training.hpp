#pragma once

#include <functional>

#include "cli/remote.hpp"
#include "messages/job.hpp"
#include "messages/stage.hpp"

namespace troupe::cli {

/// Hands a training in and follows it until it has ended; `progress` hears of it from time to time.
/// Refuses what the cluster refuses, and a job that did not finish, with what it said.
expected<training_report> follow_training(
    remote& cluster, const job_spec& job,
    const std::function<void(const training_report&)>& progress = {});

}  // namespace troupe::cli
