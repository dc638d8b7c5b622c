#pragma once

#include <functional>

#include "messages/journal.hpp"
#include "messages/reason.hpp"

namespace troupe::runtime {

/// What survives a process. When append returns, the entry is durable.
class journal {
 public:
  virtual ~journal() = default;

  virtual void append(const journal_entry& e) = 0;

  /// Calls `each` for every entry, oldest first.
  virtual expected<void> replay(const std::function<void(const journal_entry&)>& each) const = 0;
};

}  // namespace troupe::runtime
