#pragma once

#include <string>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"

namespace troupe::cli {

/// Is the file a JSON document, as `troupe train --json` prints?
bool is_document(const std::string& file);

/// A profile that has the job's model and sequence length; otherwise an error with what it
/// has.
expected<device_profile> load_profile_for(const std::string& file, const job_spec& job);

/// The same for all GPUs of a cluster. An empty name changes nothing.
expected<void> use_profile(const std::string& file, const job_spec& job, cluster& c);

/// The source of a plan's estimate: planners::source_of for the GPUs of the allocation's first
/// node.
std::string source_of(const cluster& c, const job_spec& job, const plan& how, node_index first);

}  // namespace troupe::cli
