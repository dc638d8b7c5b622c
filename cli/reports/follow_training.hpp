#pragma once

#include <functional>

#include "cli/common/controller_connection.hpp"
#include "cli/common/interrupt.hpp"
#include "messages/job.hpp"
#include "messages/stage.hpp"

namespace troupe::cli {

/// Hands a training in and follows it until it has ended; `progress` hears of it from time to time.
/// Refuses what the cluster refuses, a job that did not finish, with what it said, and to go on
/// after a signal, with what was reached (reason::kind::unavailable).
expected<training_report> follow_training(
    remote& cluster, const job_spec& job,
    const std::function<void(const job_status&)>& progress = {}, interrupt* stop = nullptr);

}  // namespace troupe::cli
