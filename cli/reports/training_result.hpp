#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/output/output.hpp"
#include "cli/reports/prefill_result.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::cli {

/// The result of a training, as JSON and as text.
struct training_result {
  std::string world;
  job_spec job;
  training_report report;
  std::uint64_t fingerprint = 0;  // virtual worlds only
  double wall_s = 0;
  std::optional<studies::prefill_result> prefills{};  // if a trace was offered
  double predicted_bytes = 0;                         // per GPU, by the plan; 0: unknown
  std::vector<job_spec> members{};  // of a union with adapters; empty: it is one job
};

json document_of(const training_result& r);
std::string text_of(const training_result& r);

/// The stages' costs from the document of an earlier run.
expected<std::vector<stage_costs>> load_costs(const std::string& file);

}  // namespace troupe::cli
