#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/training/collectives/host_all_reduce.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Is its embedding tied to the head of another stage, or vice versa?
bool tied_to_another(const stage_setup& s);

/// The end of an iteration at one stage: its gradients are all-reduced with its peers in the other
/// pipelines, and, for an embedding tied to another stage's head, with that stage.
///
/// The two gradients of a tied embedding are added in the first stage before the pipelines'
/// all-reduce, as in a stage that has both: so the order of additions is the same for any number of
/// stages.
///
/// With payloads without bytes (a simulation) it counts them.
class gradient_all_reduce {
 public:
  /// A tensor to send to a peer, or to another stage of this pipeline.
  struct outgoing {
    tensor::kind what = tensor::kind::partial;
    std::uint32_t to_pipeline = 0, to_stage = 0;
    payload body;
    std::uint64_t bytes = 0;
    std::uint32_t chunk = 0;  // of running sums
    std::vector<pipeline_record> records{};
  };

  gradient_all_reduce() = default;
  explicit gradient_all_reduce(const stage_setup& s);

  /// Does this stage have peers or a tied embedding in another stage?
  static bool needed(const stage_setup& s);

  /// Starts with this stage's gradients, those of a tied embedding apart. Returns what to send.
  std::vector<outgoing> begin(payload own, std::uint64_t own_bytes, payload tied,
                              std::uint64_t tied_bytes);

  /// Takes a tensor from another stage; it may arrive before begin. Returns what to send.
  std::vector<outgoing> receive(const tensor& t, payload body);

  /// The tensors that this stage waits for, once it has begun.
  struct missing_tensor {
    tensor::kind what = tensor::kind::partial;
    std::uint32_t from_pipeline = 0, from_stage = 0;
    std::uint32_t chunk = 0;  // of running sums
  };
  std::vector<missing_tensor> missing() const;

  /// A received tensor has the wrong size; empty: none has.
  const std::string& error() const { return error_.empty() ? peers_sum_.error() : error_; }

  bool complete() const { return complete_; }
  /// The sums of the gradients that begin was given.
  std::pair<payload, payload> result() { return {std::move(own_), std::move(tied_)}; }

  /// Complete, or but for the last stage's sum of a tied embedding's gradients.
  bool summed() const { return summed_; }
  /// That one, for peers that have lost theirs.
  const std::optional<payload>& tied_sum() const { return received_tied_; }
  /// The first stage that had it may be lost: it is asked of the peers too.
  void ask_peers() { asks_peers_ = sends_tied_; }
  /// The sums without that one, which result() has once they are complete; own ones are gone then.
  std::pair<payload, payload> result_but_late() {
    return {std::exchange(own_, {}), sends_tied_ ? payload{} : std::exchange(tied_, {})};
  }

 private:
  using outgoing_tensors = std::vector<outgoing>;
  void advance(outgoing_tensors& out);
  bool check_tied_size();
  bool start_peers_sum(outgoing_tensors& out);
  bool finish_peers_sum(outgoing_tensors& out);
  void add(outgoing_tensors& out, std::vector<host_all_reduce::outgoing> more) const;
  void add_tied(outgoing_tensors& out, tensor::kind what, std::uint32_t to_stage) const;

  std::uint32_t pipelines_ = 1, pipeline_ = 0, stages_ = 1, stage_ = 0;
  bool asks_peers_ = false;
  bool sends_tied_ = false, adds_tied_ = false;  // the last stage, the first one
  host_all_reduce peers_sum_;
  payload own_, tied_;
  std::uint64_t own_bytes_ = 0, tied_bytes_ = 0;
  std::optional<payload> received_tied_;  // first stage: the last stage's; last stage: the sum
  std::string error_;
  bool started_ = false, peers_sum_started_ = false, summed_ = false, complete_ = false;
};

}  // namespace troupe::actors
