#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/prefill.hpp"
#include "messages/wire/stage.hpp"
#include "studies/trace_player.hpp"

// A trace of prompts beside a simulated training: its fronts and decoders, and the outcome.

namespace troupe::actors {
class virtual_cluster;
}  // namespace troupe::actors

namespace troupe::studies {

/// The iterations that a study counts, [first, end). Before `first` prefills begin: in a training's
/// first iteration nothing is lent. From `end` on nothing is offered, so that all requests can end
/// before the training does. Of a few iterations: all but the first two.
struct counted_iterations {
  std::uint64_t first = 0, end = 0;
};
counted_iterations counted_of(std::uint64_t iterations);

/// The tasks of a stage's device, from the stage's reports that cross the network: those of a stage
/// on the trainer's own node do not.
struct used_device {
  node_index node = 0;
  double guest_s = 0;
  std::vector<timed_task> tasks;  // of the training and of its guest; on the trainer's clock
};

/// The outcome of a study. Fields are filled as far as the world shows them: prefill_run has only
/// the requests, the decoders and their pages.
struct simulated_prefills {
  std::vector<played_request> requests;       // in the order of their arrivals
  std::uint32_t decoders = 0;                 // on nodes beside the training's
  bool all_offered = false;                   // before the training ended
  std::uint64_t blocks = 0, block_bytes = 0;  // that guests sent
  std::uint64_t resent_blocks = 0;            // among the latest two thousand prefills
  std::uint64_t pages_leaked = 0;             // reserved although every request has ended
  std::vector<double> hops_s;  // by prefill of several guests: sum of the last tile's transfers
  std::map<stage_name, used_device> devices;  // that are lent
  std::map<address, bubble_offer> offers;     // the newest, by gateway
};

/// The cluster with a front, and a node with one GPU for a decoder of the lent model, in every
/// datacenter. Existing hosts keep their indices.
troupe::cluster with_decoders(const troupe::cluster& c, const job_spec& training,
                              const prefill_study& study);
/// A job for each of these nodes: a decoder that declines the prompts that no bubble takes.
std::vector<job_spec> decoder_jobs(const troupe::cluster& with, const job_spec& training,
                                   const prefill_study& study);

/// Plays a study in a virtual cluster. It learns from the frames on the network when the training
/// lends its devices, and what the guests send.
class prefill_player {
 public:
  prefill_player(prefill_study study, const job_spec& training);

  /// Must be shown every frame that a host sends (virtual_cluster_options::loses).
  void watch(address from, const frame& f);

  /// Precondition for all below: it lives as long as the cluster.
  void join(actors::virtual_cluster& v, const troupe::cluster& c);
  /// Do all fronts know the decoder of their datacenter?
  bool ready() const { return player_->ready(); }
  /// The training has ended: nothing more is offered.
  void end_offers() { player_->end_offers(); }
  bool idle() const { return player_->open() == 0; }
  /// Has the training lent anything?
  bool lent() const { return !guests_.empty(); }

  simulated_prefills result() const;

 private:
  /// A stage, by its frames.
  struct watched_stage {
    std::optional<std::uint64_t> first;  // iteration that was signalled
    bool lends = false;                  // has signalled a later one
    std::uint64_t reported = 0;          // iteration of its newest report with tasks
  };
  /// A prefill, by its guests' blocks.
  struct watched_prefill {
    std::set<std::array<std::uint32_t, 3>> sent;  // kind, guest, index
    std::map<std::uint32_t, double> hop_sent_s;   // by guest: its last tile, until it arrives
  };

  void begin_if_lent();
  void on_signal(const stage_signal& s);
  void on_report(const stage_report& r);
  void on_block(address from, const prefill_block& b);
  void on_received(const blocks_received& r);

  prefill_study study_;
  const std::uint64_t iterations_;  // of the training
  actors::virtual_cluster* cluster_ = nullptr;
  const troupe::cluster* watched_ = nullptr;
  std::optional<trace_player> player_;
  bool begun_ = false;
  std::map<address, std::set<stage_name>> guests_;  // stages with guests, by gateway
  std::map<stage_name, watched_stage> stages_;
  std::map<prefill_name, watched_prefill> prefills_;
  std::deque<prefill_name> oldest_;  // of prefills_
  std::map<prefill_name, double> hop_s_;
  simulated_prefills result_;
};

}  // namespace troupe::studies
