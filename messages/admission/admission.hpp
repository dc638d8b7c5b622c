#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "messages/admission/limits.hpp"
#include "messages/admission/objection.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/job.hpp"

// Limits of job specifications. job_keys.hpp has the limits of each key; the reader of job files
// uses them for errors with line numbers; the controller checks every submission before it is
// written to the journal, since clients may be other programs. Everything that determines the
// controller's work or memory is limited.

namespace troupe::admission {

/// Models of these families are given as operators, those of others by their sizes.
bool is_given_as_operators(std::string_view family);
/// A contradiction between the sizes of a transformer; heads must not be 0.
std::optional<objection> objection_to(const model& m);

/// The first problem of a decoder (`serve:`), or of how bubbles are lent (`bubbles:`); its key is
/// one of that map. `has_files`: guests really run, and need the model's folder.
std::optional<objection> objection_to(const serving& s);
std::optional<objection> objection_to(const bubble_lending& b, bool has_files);

/// The first problem of `elastic:`; its key is one of the job file.
std::optional<objection> objection_to_elastic(const job_spec& job);

/// "found 8, expected at most max_gpus (4)"
std::string more_than_max_gpus(const job_spec& job);

/// The first problem of a job, or nothing. Checks the job alone: whether a cluster can run it is up
/// to the planners.
std::optional<objection> objection_to(const job_spec& job);

/// The same, as a reason: "layers: found 4000, expected a whole number from 1 to 2000".
expected<void> admit(const job_spec& job);

}  // namespace troupe::admission
