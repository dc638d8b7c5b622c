#pragma once

#include <optional>
#include <string>

#include "actors/control/ledger/ledger.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/wire/client.hpp"

namespace troupe::actors {

/// The time until the job may be started again; none: it does not wait for that.
std::optional<double> retry_in_s(const job_record& j, double now_s);

/// A job's part about how it, and its attempts, have ended.
void add_ends(job_status& s, const job_record& j, const ledger& book, double now_s);

/// "attempt 2 of 4 failed (exit 1 on e-0); the next not before 12:01:40 UTC": of a job that waits
/// before its next attempt.
std::string backoff_text(const cluster& c, const job_record& j);

}  // namespace troupe::actors
