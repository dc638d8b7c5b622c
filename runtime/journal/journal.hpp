#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "messages/base/reason.hpp"
#include "messages/wire/journal.hpp"

namespace troupe::runtime {

/// Durable storage of journal entries.
class journal {
 public:
  virtual ~journal() = default;

  /// A random number created with the journal, never 0, that identifies it.
  virtual std::uint64_t id() const = 0;

  /// Returns when all of these entries are durable: one write, one sync. On error they are not, and
  /// no later append will succeed: the caller must stop at once and do nothing more. When the
  /// journal is opened later, it has all of them or none.
  [[nodiscard]] virtual expected<void> append(std::span<const journal_entry> batch) = 0;
  [[nodiscard]] expected<void> append(const journal_entry& e) { return append(std::span{&e, 1}); }

  /// Calls `each` for every entry, oldest first. Rejects damaged or truncated entries and those of
  /// another journal.
  virtual expected<void> replay(const std::function<void(const journal_entry&)>& each) const = 0;

  /// Replaces all entries with these, in one durable write. Errors as for append.
  [[nodiscard]] virtual expected<void> compact(std::span<const journal_entry> snapshot) = 0;

  /// Number of entries that a replay would return.
  virtual std::uint64_t size() const = 0;

  /// Fails if the files are no longer in place (deleted, replaced). Cheap: meant to be called
  /// periodically.
  virtual expected<void> check() { return {}; }
};

}  // namespace troupe::runtime
