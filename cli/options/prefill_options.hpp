#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "messages/domain/job.hpp"
#include "studies/trace_player.hpp"

namespace troupe::cli {

/// Options of `troupe train` that offer a trace's prompts to the bubbles of the training.
class prefill_options {
 public:
  void options(CLI::App& app);

  bool given() const { return !trace_.empty(); }

  /// Makes the job lend its bubbles, and reads the trace. Without --prefill-model the job has to
  /// lend them itself, unless it is a slot job. `real`: prompts are computed, so that the model's
  /// folder needs its weights; longer prompts than it can have are cut, in the trace as well.
  expected<studies::prefill_study> apply(job_spec& job, std::uint64_t seed, bool real) const;

 private:
  expected<void> lend(job_spec& job, bool real) const;
  expected<served_model_files> model_of(const job_spec& job, bool real) const;

  std::string trace_, model_;
  studies::trace_options play_;
  std::vector<std::function<void(bubble_lending&)>> overrides_;  // of the job's
};

}  // namespace troupe::cli
