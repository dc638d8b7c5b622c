#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "messages/codec.hpp"
#include "runtime/journal.hpp"

namespace troupe::runtime {

/// What a simulated host has written, as bytes. It outlives the host's incarnations.
struct memory_disk {
  std::vector<std::vector<std::byte>> entries;
};

/// A journal on a simulated disk, for one incarnation of a host.
class memory_journal final : public journal {
 public:
  /// `torn` is asked before each append; true: the host dies in the middle of it. The entry is not
  /// kept, nor is any that this incarnation still appends.
  explicit memory_journal(std::shared_ptr<memory_disk> disk, std::function<bool()> torn = {})
      : disk_{std::move(disk)}, torn_{std::move(torn)} {}

  [[nodiscard]] bool append(const journal_entry& e) override {
    if (!dead_ && torn_ && torn_()) dead_ = true;
    if (!dead_) disk_->entries.push_back(encode(e));
    return !dead_;
  }

  expected<void> replay(const std::function<void(const journal_entry&)>& each) const override {
    for (const auto& bytes : disk_->entries) {
      const auto e = decode_entry(bytes);
      if (!e) return tl::unexpected(e.error());
      each(*e);
    }
    return {};
  }

  /// The incarnation is over: nothing that it still does reaches the disk.
  void kill() { dead_ = true; }

 private:
  std::shared_ptr<memory_disk> disk_;
  std::function<bool()> torn_;
  bool dead_ = false;
};

}  // namespace troupe::runtime
