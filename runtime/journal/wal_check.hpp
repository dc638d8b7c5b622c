#pragma once

#include <string>

#include "messages/base/reason.hpp"

namespace troupe::runtime {

/// Checks that a SQLite write-ahead log is complete. SQLite itself silently stops reading at the
/// first frame with a wrong checksum and drops everything after it.
///
/// Rejects a damaged header followed by frames, and a damaged frame followed by frames of a later
/// transaction: the damaged one had been synced before those. A damaged or truncated last
/// transaction is accepted, since a crash during a write looks the same; whether it had been
/// durable is known to the journal's witness. A missing file is accepted.
expected<void> check_wal(const std::string& path);

}  // namespace troupe::runtime
