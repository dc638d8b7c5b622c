#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/training/device/socket_folder.hpp"

namespace troupe::actors {

/// Copies of a stage's state after its latest updates, in its node's memory: they outlive the
/// worker that has written them, and the stage's actor. Two, since stages of a training may be one
/// iteration apart. Called by the actor before a loss and by the one after it, on their threads.
class kept_states {
 public:
  /// It takes the place of one of the same iteration, and of later ones.
  void add(std::uint64_t iteration, std::shared_ptr<const socket_folder> folder) {
    constexpr std::size_t newest = 2;
    const std::lock_guard lock{guard_};
    std::erase_if(all_, [&](const auto& one) { return one.first >= iteration; });
    all_.emplace_back(iteration, std::move(folder));
    if (all_.size() > newest) all_.pop_front();
  }
  void clear() {
    const std::lock_guard lock{guard_};
    all_.clear();
  }
  /// Ascending.
  std::vector<std::uint64_t> iterations() const {
    const std::lock_guard lock{guard_};
    std::vector<std::uint64_t> found;
    for (const auto& one : all_) found.push_back(one.first);
    return found;
  }
  /// Null: there is none.
  std::shared_ptr<const socket_folder> of(std::uint64_t iteration) const {
    const std::lock_guard lock{guard_};
    const auto at = std::ranges::find(all_, iteration, [](const auto& one) { return one.first; });
    return at == all_.end() ? nullptr : at->second;
  }

 private:
  mutable std::mutex guard_;
  std::deque<std::pair<std::uint64_t, std::shared_ptr<const socket_folder>>> all_;
};

}  // namespace troupe::actors
