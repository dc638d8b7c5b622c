#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "runtime/journal/journal.hpp"

namespace troupe::actors {

/// Group commit: entries that are not durable yet, and actions to run once they are.
class commit_batch {
 public:
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }

  void add(journal_entry e) { entries_.push_back(std::move(e)); }

  /// Runs `what` immediately if no entry is pending, otherwise after the pending ones are durable,
  /// in order.
  template <class F>
  void when_durable(F&& what) {
    if (empty())
      what();
    else
      actions_.emplace_back(std::forward<F>(what));
  }

  /// Writes the entries, then runs the deferred actions. On error none was run, and none may be run
  /// any more.
  expected<void> commit(runtime::journal& to) {
    if (auto ok = to.append(entries_); !ok) return ok;
    entries_.clear();
    for (const auto& act : std::exchange(actions_, {})) act();
    return {};
  }

 private:
  std::vector<journal_entry> entries_;
  std::vector<std::function<void()>> actions_;
};

}  // namespace troupe::actors
