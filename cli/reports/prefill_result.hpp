#pragma once

#include <optional>
#include <string>

#include "cli/common/output.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/stage.hpp"
#include "studies/paired_windows.hpp"
#include "studies/prefill_simulation.hpp"

namespace troupe::cli {

/// A trace of prompts beside a training.
struct prefill_result {
  studies::prefill_study study;
  studies::simulated_prefills done;
  std::optional<double> iteration_s_without;  // of the same training alone
  std::optional<double> training_without;     // and the share of its devices' time in steps
  std::optional<paired_windows> paired{};     // of a real training
  bool realtime = false;                      // its hosts have real-time priority
};

/// The share of all devices' time in a training's forwards, recomputes and backwards, in the
/// iterations that count.
double training_share(const training_report& r);

json document_of(const prefill_result& r, const job_spec& job, const training_report& training);
std::string text_of(const prefill_result& r, const job_spec& job, const training_report& training);

}  // namespace troupe::cli
