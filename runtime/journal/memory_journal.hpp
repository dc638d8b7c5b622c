#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "messages/base/random.hpp"
#include "runtime/journal/journal.hpp"

namespace troupe::runtime {

/// A simulated host's disk. It survives crashes of the host, and tests can damage it while the host
/// is down.
struct memory_disk {
  struct row {
    std::vector<std::byte> bytes;
    std::uint64_t checksum = 0;
  };
  std::uint64_t id = 1;
  std::uint64_t first = 1;  // the first row's sequence
  std::vector<row> rows;
  std::uint64_t witnessed = 0;  // the last durable sequence number according to the witness

  /// Flips one bit of one row, if there is one.
  void flip_bit(random_source& random);
  /// Removes the newest rows; the witness still counts them.
  void lose_tail(std::size_t count);
};

/// The outcome of an append or a compaction.
enum class append_fate : std::uint8_t {
  kept,
  lost,        // the host dies during the write: none of the batch is stored
  unreported,  // the host dies right after the write: the batch is stored, but append did not
               // return
  full         // the disk is full: append returns an error
};

/// A journal on a simulated disk, for one incarnation of a host.
class memory_journal final : public journal {
 public:
  using journal::append;

  /// `fate` is called before each write. If it returns lost or unreported, the caller must end the
  /// host.
  explicit memory_journal(std::shared_ptr<memory_disk> disk, std::function<append_fate()> fate = {})
      : disk_{std::move(disk)}, fate_{std::move(fate)} {}

  std::uint64_t id() const override { return disk_->id; }
  [[nodiscard]] expected<void> append(std::span<const journal_entry> batch) override;
  expected<void> replay(const std::function<void(const journal_entry&)>& each) const override;
  [[nodiscard]] expected<void> compact(std::span<const journal_entry> snapshot) override;
  std::uint64_t size() const override { return disk_->rows.size(); }

  /// The incarnation has ended: its later writes are ignored.
  void kill() { dead_ = true; }

 private:
  expected<void> write(std::span<const journal_entry> entries, bool instead_of_all);

  std::shared_ptr<memory_disk> disk_;
  std::function<append_fate()> fate_;
  bool dead_ = false;
};

}  // namespace troupe::runtime
