#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "messages/domain/job.hpp"
#include "studies/prefill_simulation.hpp"

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

  std::string trace_, model_, rule_;
  double rate_ = 1, ttft_s_ = 0, cancels_ = 0;
  std::optional<double> guard_ms_, op_ms_, guest_gb_;
  std::uint32_t look_ahead_ = 0, chunk_ = 0, depth_ = 0, saturated_ = 0;
};

}  // namespace troupe::cli
