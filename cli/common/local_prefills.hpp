#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "cli/common/controller_connection.hpp"
#include "cli/common/interrupt.hpp"
#include "cli/common/local_cluster.hpp"
#include "studies/prefill_run.hpp"

namespace troupe::cli {

/// Offers a trace's prompts to the bubbles of a training on a cluster of this machine's processes.
/// The fronts are in this process.
class local_prefills {
 public:
  /// Submits the decoders and waits until they are ready. The cluster has been started without its
  /// fronts.
  static expected<std::unique_ptr<local_prefills>> start(const local_cluster& processes,
                                                         const std::string& cluster_file,
                                                         const std::string& state,
                                                         remote& controller, const job_spec& job,
                                                         const studies::prefill_study& study,
                                                         interrupt& stop);

  /// The gateways and the nodes without a decoder, by host name: what a training needs of such a
  /// cluster. Empty if it cannot have the study.
  static std::set<std::string> hosts_of_training(const std::string& cluster_file,
                                                 const job_spec& job,
                                                 const studies::prefill_study& study);

  /// Of the training, so that it does not wait for a decoder's GPU; may be empty.
  const std::string& gpu_type() const { return gpu_type_; }

  /// The training's report so far: the trace begins once it has shown how long its steps take.
  void look(const training_report& so_far);
  /// The training has ended.
  studies::real_prefills end();

 private:
  local_prefills() = default;
  std::unique_ptr<studies::prefill_run> run_;
  std::string gpu_type_;
};

}  // namespace troupe::cli
