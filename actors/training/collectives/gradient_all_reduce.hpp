#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/training/collectives/host_all_reduce.hpp"
#include "messages/stage.hpp"

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
/// With empty payloads (a simulation) it counts bytes.
class gradient_all_reduce {
 public:
  /// Something to send to a peer, or to another stage of this pipeline.
  struct parcel {
    tensor::kind what = tensor::kind::part;
    std::uint32_t to_pipeline = 0, to_stage = 0;
    payload body;
    std::uint64_t bytes = 0;
  };

  gradient_all_reduce() = default;
  explicit gradient_all_reduce(const stage_setup& s);

  /// Is there anybody to sum with?
  static bool needed(const stage_setup& s);

  /// This stage's own gradients: those of its own parameters and those of a tied embedding. Gives
  /// what to send.
  std::vector<parcel> begin(payload own, std::uint64_t own_bytes, payload tied,
                            std::uint64_t tied_bytes);

  /// What came from another stage; it may come before begin. Gives what to send.
  std::vector<parcel> take(const tensor& t, payload body);

  /// What this stage waits for, once it has begun.
  struct missing_tensor {
    tensor::kind what = tensor::kind::part;
    std::uint32_t from_pipeline = 0, from_stage = 0;
  };
  std::vector<missing_tensor> missing() const;

  /// What came and has another size than it must have; empty: all is well.
  const std::string& mistake() const { return mistake_.empty() ? exchange_.mistake() : mistake_; }

  /// Are the whole sums here?
  bool complete() const { return complete_; }
  /// The sums of what begin was given.
  std::pair<payload, payload> result() { return {std::move(own_), std::move(tied_)}; }

 private:
  using parcels = std::vector<parcel>;
  void look(parcels& out);
  bool tied_fits();
  bool give_part(parcels& out);
  bool take_sum(parcels& out);
  void add(parcels& out, std::vector<host_all_reduce::parcel> more) const;
  void add_tied(parcels& out, tensor::kind what, std::uint32_t to_stage) const;

  std::uint32_t pipelines_ = 1, pipeline_ = 0, stages_ = 1, stage_ = 0;
  bool gives_tied_ = false, takes_tied_ = false;  // the last stage, the first one
  host_all_reduce exchange_;
  payload own_, tied_;
  std::uint64_t own_bytes_ = 0, tied_bytes_ = 0;
  std::optional<payload> others_;  // the other stage's part, or the whole sum, of the embedding
  std::string mistake_;
  bool begun_ = false, given_ = false, summed_ = false, complete_ = false;
};

}  // namespace troupe::actors
