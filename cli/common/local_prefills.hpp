#pragma once

#include <memory>
#include <string>

#include "cli/common/controller_connection.hpp"
#include "cli/common/interrupt.hpp"
#include "cli/common/local_cluster.hpp"
#include "studies/prefill_run.hpp"

namespace troupe::cli {

/// Starts a study on a cluster of this machine's processes, which runs without its fronts: they are
/// in this process. Submits the decoders, and waits until they are ready.
expected<std::unique_ptr<studies::prefill_run>> start_local_prefills(
    const local_cluster& processes, std::shared_ptr<const cluster> c, const std::string& state,
    remote& controller, const job_spec& training, const studies::prefill_study& study,
    const std::vector<job_spec>& decoders, interrupt& stop);

}  // namespace troupe::cli
