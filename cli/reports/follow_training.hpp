#pragma once

#include <functional>

#include "cli/connection/controller_connection.hpp"
#include "cli/output/interrupt.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::cli {

/// Submits a training and follows it until it has ended; `progress` is called from time to time,
/// with all that is known of its iterations.
/// Fails if the cluster rejects it, if the job does not finish (with its output), and after a
/// signal (reason::kind::unavailable, with the progress so far).
expected<training_report> follow_training(
    remote& cluster, const job_spec& job,
    const std::function<void(const job_status&, const training_report&)>& progress = {},
    interrupt* stop = nullptr);

}  // namespace troupe::cli
