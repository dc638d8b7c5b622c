#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "messages/admission/job_keys.hpp"
#include "messages/admission/objection.hpp"
#include "messages/domain/end.hpp"

// `retries:` of a job file: its keys, their bounds and its words.

namespace troupe::admission {

inline constexpr std::uint32_t max_retries = 1000;
inline constexpr double max_retry_delay_s = 30 * 86'400.0;
inline constexpr std::size_t max_exit_statuses = 256;  // of unless_exit, ranges expanded
inline constexpr std::int32_t max_exit_status = 255;

/// `on` and `unless_exit` have readers and checks of their own.
const key_table<retry_rule>& retry_keys();

/// The words after which a job may be repeated: those of `on`.
const std::vector<std::string>& retry_words();

/// The first problem of `retries:`; its key is one of the job file.
std::optional<objection> objection_to_retries(const job_spec& job);

}  // namespace troupe::admission
