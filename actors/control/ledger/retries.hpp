#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "messages/base/units.hpp"
#include "messages/domain/end.hpp"
#include "messages/domain/job.hpp"

// When a job that has failed is queued again: pure functions of its spec and of how it ended.

namespace troupe::actors {

/// `retries:`, or what `elastic:` means by its own; none: the job has failed with its attempt.
std::optional<retry_rule> retry_rule_of(const job_spec& spec);
/// For attempts that their node did not start, for no reason that it knows.
retry_rule not_started_rule();

/// Is a job repeated after such an end, if it has attempts left?
bool is_repeated_after(const retry_rule& rule, end_word why, std::optional<std::int32_t> exit_code);

/// Time from the end of an attempt, the k-th in a row that failed, to the next one's start: doubled
/// each time, and up to a tenth longer by job and k, so that jobs that failed together do not come
/// back together. k is 1 at least.
double backoff_s(const retry_rule& rule, std::uint32_t k, job_id job);

/// "exit 1", "signal 9", "rank_wait": a word with its number, for people.
std::string end_text(end_word why, std::optional<std::int32_t> exit_code);

}  // namespace troupe::actors
