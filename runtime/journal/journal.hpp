#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "messages/journal.hpp"
#include "messages/reason.hpp"

namespace troupe::runtime {

/// What survives a process.
class journal {
 public:
  virtual ~journal() = default;

  /// A random number that was made with the journal, never 0: it tells this journal from all
  /// others.
  virtual std::uint64_t id() const = 0;

  /// Returns when all of these entries are durable: one write, one sync. An error means that they
  /// are not, and that no later append will succeed: whoever needed them must stop at once and do
  /// nothing more. A journal that is opened later has all of them or none.
  [[nodiscard]] virtual expected<void> append(std::span<const journal_entry> batch) = 0;
  [[nodiscard]] expected<void> append(const journal_entry& e) { return append(std::span{&e, 1}); }

  /// Calls `each` for every entry, oldest first. Refuses what is damaged, cut short or of another
  /// journal.
  virtual expected<void> replay(const std::function<void(const journal_entry&)>& each) const = 0;

  /// Puts these entries in the place of all that are there, in one durable write. Errors as append.
  [[nodiscard]] virtual expected<void> compact(std::span<const journal_entry> snapshot) = 0;

  /// Entries that a replay would give.
  virtual std::uint64_t size() const = 0;

  /// Refuses if what was written is no longer where it was written to (deleted, replaced). Cheap:
  /// to be asked every now and then.
  virtual expected<void> check() { return {}; }
};

}  // namespace troupe::runtime
