#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "messages/domain/job.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::simulation {

/// The digests that a training's weights have if nothing goes wrong: of its job and the iteration
/// alone, whichever messages were lost, repeated or late. It has rules of its own, and shares the
/// arithmetic of single digests with the simulated device, but nothing of the exchange.
class undisturbed {
 public:
  /// `microbatches`: by pipeline. All stages begin after `first` iterations.
  undisturbed(const stage_setup& one, std::vector<std::uint32_t> microbatches);

  /// The weights of a stage of a pipeline, after that number of iterations.
  std::uint64_t digest(std::uint32_t pipeline, std::uint32_t stage, std::uint64_t iteration);

 private:
  using weights = std::vector<std::vector<std::uint64_t>>;  // by pipeline and stage
  void run(std::uint64_t iteration);

  std::vector<std::uint32_t> microbatches_;
  std::uint32_t stages_;
  std::uint64_t first_, seed_;
  bool tied_, sums_;                // an embedding over two stages; gradients are summed at all
  std::vector<weights> completed_;  // from the first iteration on
};

/// Compares every update that a simulated stage reports with the undisturbed training's.
class weights_oracle {
 public:
  void on_weights(const job_spec* job, const stage_setup& s, std::uint64_t iteration,
                  std::uint64_t digest);

  /// The first that differs, as a sentence; empty: none.
  const std::string& invalid() const { return wrong_; }
  /// Updates that were compared.
  std::uint64_t compared() const { return compared_; }

 private:
  std::map<std::pair<lease_id, std::uint64_t>, undisturbed> runs_;  // and the trainer's incarnation
  std::uint64_t compared_ = 0;
  std::string wrong_;
};

}  // namespace troupe::simulation
