#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "actors/worlds/virtual_cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/stage.hpp"
#include "studies/trace_player.hpp"

// A trace of prompts beside a simulated training: its fronts and decoders, and what became of it.

namespace troupe::studies {

/// Prompts for the bubbles of a training, whose job lends them (`pipeline.bubbles`).
struct prefill_study {
  trace_options play;  // the model is the job's
  std::vector<traced_prompt> prompts;
};

/// The iterations that a study counts, [first, end). Before them prefills begin: in a training's
/// first iteration nothing is lent. After them nothing is offered any more, so that all that was
/// offered can end before the training does. Of a few iterations: all but the first two.
struct counted_iterations {
  std::uint64_t first = 0, end = 0;
};
counted_iterations counted_of(std::uint64_t iterations);

/// What a stage's device did, by the reports of its stage that cross the network: that of the
/// trainer's own node has none.
struct used_device {
  node_index node = 0;
  double guest_s = 0;
  std::vector<timed_task> tasks;  // of the training and of its guest; on the trainer's clock
};

struct simulated_prefills {
  std::vector<played_request> requests;       // in the order of their arrivals
  std::uint32_t decoders = 0;                 // on nodes beside the training's
  bool all_offered = false;                   // before the training ended
  std::uint64_t blocks = 0, block_bytes = 0;  // sent, over every hop
  std::uint64_t resent_blocks = 0;            // of the last two thousand prefills
  std::uint64_t pages_leaked = 0;             // reserved although every request has ended
  std::vector<double> hops_s;                 // of prefills of several guests: the last tile's way
  std::map<stage_name, used_device> devices;  // that are lent
  std::map<address, bubble_offer> offers;     // the newest, by gateway
};

/// The cluster with a front, and a node with one GPU for a decoder of the lent model, in every
/// datacenter. Existing hosts keep their places.
troupe::cluster with_decoders(const troupe::cluster& c, const job_spec& training,
                              const prefill_study& study);
/// One for each of these nodes: it declines what no bubble takes.
std::vector<job_spec> decoder_jobs(const troupe::cluster& with, const job_spec& training,
                                   const prefill_study& study);

/// Plays a study in a virtual cluster.
class prefill_player {
 public:
  prefill_player(prefill_study study, const job_spec& training);

  /// See every frame that a host sends, before it is on its way: virtual_cluster_options::loses.
  void watch(address from, const frame& f);

  /// Precondition for all below: it lives as long as the cluster.
  void join(virtual_cluster& v, const troupe::cluster& c);
  /// Do all fronts know the decoder of their datacenter?
  bool ready() const;
  /// The training has ended: nothing more is offered.
  void end_offers() { player_->end_offers(); }
  bool idle() const { return player_->open() == 0; }
  /// Has the training lent anything?
  bool lent() const { return !stages_.empty(); }

  simulated_prefills result() const;

 private:
  void begin_if_known();
  void on_report(const stage_report& r);
  void on_hidden(const blocks_received& r);
  void on_block(address from, const prefill_block& b);

  prefill_study study_;
  std::string model_;
  std::uint64_t iterations_ = 0;  // of the training
  std::size_t fronts_ = 0;
  virtual_cluster* cluster_ = nullptr;
  const troupe::cluster* watched_ = nullptr;
  std::unique_ptr<trace_player> player_;
  std::map<address, std::set<stage_name>> stages_;  // with guests, by gateway
  std::map<stage_name, std::uint64_t> first_;       // iteration that was signalled
  std::set<stage_name> lend_;
  std::map<stage_name, std::uint64_t> reported_;  // iterations
  bool begun_ = false;
  // Blocks that their guest has sent, by prefill.
  std::map<prefill_name, std::set<std::array<std::uint32_t, 3>>> sent_;
  std::deque<prefill_name> sent_order_;
  std::map<prefill_name, std::map<std::uint32_t, double>> hop_sent_s_;  // by guest: its last tile
  std::map<prefill_name, double> hop_s_;                                // so far
  simulated_prefills result_;
};

}  // namespace troupe::studies
