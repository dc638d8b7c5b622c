#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "actors/worlds/real_host.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/stage.hpp"
#include "runtime/host/timed_calls.hpp"
#include "studies/paired_windows.hpp"
#include "studies/prefill_simulation.hpp"

// A trace of prompts beside a training of real processes.

namespace troupe::studies {

/// The outcome of a study beside real processes.
struct real_prefills {
  simulated_prefills done;  // without what only a simulation observes: blocks, hops, devices
  std::vector<offer_window> windows;
};

/// How a study divides a real cluster.
struct study_hosts {
  std::vector<job_spec> decoders;  // one job for each front
  // Gateways and the nodes without a decoder, by host name: the hosts of the training.
  std::set<std::string> training;
  // The GPU type of these nodes, if they have the same; else empty. A training that may use the
  // decoders' type would wait for their GPUs.
  std::string gpu_type;
};

/// For each front the decoder runs on a node of the front's datacenter with one GPU, of a type that
/// no other node has. Fails if there is no such node, or no front.
expected<study_hosts> hosts_of_study(const troupe::cluster& c, const job_spec& training,
                                     const prefill_study& study);

/// Plays a study on fronts of this process. Prompts are offered in windows, each followed by one
/// of equal length without prompts, so that their cost to the training can be told from other load
/// on the machine. The training's latest iterations give the length.
class prefill_run {
 public:
  /// `fronts`: all of the cluster, in its order. Fails if one of them cannot begin.
  static expected<std::unique_ptr<prefill_run>> start(
      prefill_study study, const job_spec& training, std::vector<actors::real_host_options> fronts);
  ~prefill_run();

  /// Do all fronts know all decoders?
  bool ready() const { return player_->ready(); }
  /// The training's report so far: the first window begins when that has enough iterations.
  void look(const training_report& so_far);
  /// The training has ended. Nothing more is offered; waits up to `limit_s` until all requests
  /// have ended, and as long again until the decoders have reported free pages.
  real_prefills end(double limit_s);

 private:
  prefill_run() = default;
  void next_window();
  void end_window();
  void await_last();

  std::vector<std::unique_ptr<actors::real_host>> fronts_;
  runtime::real_clock clock_;
  bool begun_ = false;
  std::unique_ptr<trace_player> player_;  // constant

  // Used only by the thread of calls_, as the player's state.
  std::vector<offer_window> windows_;
  bool offers_ = true, over_ = false;
  double window_s_ = 0, window_began_s_ = 0;

  runtime::timed_calls calls_;  // destroyed first: its thread uses the others
};

}  // namespace troupe::studies
