#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "messages/wire/client.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::web {

/// The dashboard's knowledge of the cluster.
struct cluster_facts {
  query_reply now;                              // about all jobs
  std::map<job_id, training_report> trainings;  // that are running: their newest reports
  std::map<end_word, std::uint64_t> ended{};    // jobs since the dashboard's start, by why
};

/// Metrics of the cluster in Prometheus's text format, version 0.0.4; null: the controller is
/// absent. What is not known is left out: a value never stays when its source has gone.
std::string cluster_metrics(const cluster_facts* known);

}  // namespace troupe::web
