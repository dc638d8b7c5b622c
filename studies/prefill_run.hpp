#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/worlds/real_host.hpp"
#include "messages/domain/job.hpp"
#include "studies/prefill_simulation.hpp"

// A trace of prompts beside a real training.

namespace troupe::studies {

/// A time in which prompts were under way all the while, or none at all, on the wall clock.
struct offer_window {
  bool prompts = false;
  double begin_s = 0, end_s = 0;
};

struct real_prefills {
  simulated_prefills done;  // of the blocks nothing is known
  std::vector<offer_window> windows;
};

/// Decoders for a study in a real cluster: for each datacenter with a front one job, on a GPU type
/// that only a node without a stage of the training has there. Fails if there is none.
expected<std::vector<job_spec>> real_decoder_jobs(const troupe::cluster& c,
                                                  const job_spec& training,
                                                  const prefill_study& study);

/// The GPU type of the nodes without a decoder, if it is the same everywhere; else empty. A
/// training that may use the decoders' would wait for them.
std::string gpu_type_without(const troupe::cluster& c, const std::vector<job_spec>& decoders);

/// Plays a study on fronts of this process: prompts are offered in windows, and as long after each
/// none, so that what they cost the training can be told from what else happens on the machine.
class prefill_run {
 public:
  /// `fronts`: all of the cluster, in its order. Fails if one of them cannot begin.
  static expected<std::unique_ptr<prefill_run>> start(std::shared_ptr<const troupe::cluster> c,
                                                      prefill_study study, const job_spec& training,
                                                      std::vector<real_host_options> fronts);
  ~prefill_run();

  /// Do all fronts know all decoders?
  bool ready() const;
  /// Once; with windows of that length.
  void begin(double window_s);
  bool begun() const;
  /// Nothing more is offered; waits up to `limit_s` until all requests have ended.
  real_prefills end(double limit_s);

 private:
  struct impl;
  explicit prefill_run(std::unique_ptr<impl> i);
  std::unique_ptr<impl> impl_;
};

}  // namespace troupe::studies
