#pragma once

#include <string>

#include "messages/reason.hpp"

namespace troupe::runtime {

/// Looks whether a write-ahead log of SQLite is whole. SQLite itself stops reading at the first
/// frame whose checksum is wrong, without a word, and takes what came before it for everything.
///
/// Refuses a damaged header with frames behind it, and a damaged frame with frames behind it that a
/// later transaction wrote: the damaged one had been synced before those. A damaged or cut last
/// transaction is let pass, since a crash in the middle of a write looks the same; whether it had
/// been durable, the journal's witness knows. A file that is not there is whole.
expected<void> check_wal(const std::string& path);

}  // namespace troupe::runtime
