#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "messages/random.hpp"
#include "runtime/journal/journal.hpp"

namespace troupe::runtime {

/// What a simulated host has written. It outlives the host's incarnations, and may be damaged while
/// the host is down, as a file may be.
struct memory_disk {
  struct row {
    std::vector<std::byte> bytes;
    std::uint64_t checksum = 0;
  };
  std::uint64_t id = 1;
  std::uint64_t first = 1;  // the first row's sequence
  std::vector<row> rows;
  std::uint64_t witnessed = 0;  // the last durable sequence, as the witness outside the rows has it

  /// One bit of one row changes; nothing happens to an empty disk.
  void flip_bit(random_source& random);
  /// The newest rows are gone, and the witness does not know.
  void lose_tail(std::size_t count);
};

/// What becomes of an append or a compaction.
enum class append_fate : std::uint8_t {
  kept,
  lost,     // the host dies in the middle of the write: nothing of the batch is there later
  unheard,  // the host dies right after the write: the batch is there, but nobody was told
  full      // no space is left: nothing is there, and the host lives to hear of it
};

/// A journal on a simulated disk, for one incarnation of a host.
class memory_journal final : public journal {
 public:
  using journal::append;

  /// `fate` is asked before each write. A host that is to die must be ended by whoever answers.
  explicit memory_journal(std::shared_ptr<memory_disk> disk, std::function<append_fate()> fate = {})
      : disk_{std::move(disk)}, fate_{std::move(fate)} {}

  std::uint64_t id() const override { return disk_->id; }
  [[nodiscard]] expected<void> append(std::span<const journal_entry> batch) override;
  expected<void> replay(const std::function<void(const journal_entry&)>& each) const override;
  [[nodiscard]] expected<void> compact(std::span<const journal_entry> snapshot) override;
  std::uint64_t size() const override { return disk_->rows.size(); }

  /// The incarnation is over: nothing that it still does reaches the disk.
  void kill() { dead_ = true; }

 private:
  expected<void> write(std::span<const journal_entry> entries, bool instead_of_all);

  std::shared_ptr<memory_disk> disk_;
  std::function<append_fate()> fate_;
  bool dead_ = false;
};

}  // namespace troupe::runtime
