#pragma once

#include <string>

#include "cli/output/output.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/stage.hpp"
#include "studies/prefill_result.hpp"

namespace troupe::cli {

/// The figures of a study beside a training, with --json and for people.
json document_of(const studies::prefill_result& r, const job_spec& job,
                 const training_report& training);
std::string text_of(const studies::prefill_result& r, const job_spec& job,
                    const training_report& training);

/// Delays of a training's steps by prefills.
json delays_document(const bubble_use& used);

}  // namespace troupe::cli
