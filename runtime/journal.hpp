#pragma once

#include <functional>

#include "messages/journal.hpp"
#include "messages/reason.hpp"

namespace troupe::runtime {

/// What survives a process.
class journal {
 public:
  virtual ~journal() = default;

  /// True: the entry is durable. False: it is not, and never may be; whoever needed it must stop at
  /// once and do nothing more.
  [[nodiscard]] virtual bool append(const journal_entry& e) = 0;

  /// Calls `each` for every entry, oldest first.
  virtual expected<void> replay(const std::function<void(const journal_entry&)>& each) const = 0;
};

}  // namespace troupe::runtime
