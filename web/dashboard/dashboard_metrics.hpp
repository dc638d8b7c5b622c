#pragma once

#include <map>
#include <string>

#include "messages/wire/client.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::web {

/// The dashboard's knowledge of the cluster.
struct cluster_facts {
  query_reply now;                              // about all jobs
  std::map<job_id, training_report> trainings;  // that are running: their newest reports
};

/// Metrics of the cluster in Prometheus's text format, version 0.0.4; null: the controller is
/// absent. What is not known is left out: a value never stays when its source has gone.
std::string cluster_metrics(const cluster_facts* known);

}  // namespace troupe::web
