#include "runtime/journal/memory_journal.hpp"

#include <algorithm>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/journal/entry_checksum.hpp"

// The simulated disk has the failures of the real one that matter to the controller: a write that
// is lost or unreported, a full disk, a flipped bit, a lost tail. It has the same checksums and the
// same rule of the witness, so simulated worlds test the reaction to each.
namespace troupe::runtime {

void memory_disk::flip_bit(random_source& random) {
  if (rows.empty()) return;
  auto& bytes = rows[random.below(rows.size())].bytes;
  bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1U << random.below(8));
}

void memory_disk::lose_tail(std::size_t count) {
  rows.resize(rows.size() - std::min(rows.size(), count));
}

expected<void> memory_journal::append(std::span<const journal_entry> batch) {
  return write(batch, false);
}

expected<void> memory_journal::compact(std::span<const journal_entry> snapshot) {
  return write(snapshot, true);
}

// A dead incarnation writes nothing: in a simulation its actors may still run until the handler
// returns. full is an error that the caller sees; lost and unreported it never sees, because its
// host ends.
expected<void> memory_journal::write(std::span<const journal_entry> entries, bool instead_of_all) {
  const auto fate = dead_ || !fate_ ? append_fate::kept : fate_();
  const bool arrives = !dead_ && (fate == append_fate::kept || fate == append_fate::unreported);
  dead_ = dead_ || fate != append_fate::kept;
  if (arrives) {
    auto next = disk_->first + disk_->rows.size();
    if (instead_of_all) {
      disk_->rows.clear();
      disk_->first = next;
    }
    for (const auto& e : entries) {
      auto bytes = encode(e);
      const auto sum = entry_checksum(next++, bytes);
      disk_->rows.push_back({std::move(bytes), sum});
    }
    TROUPE_INVARIANT(next == disk_->first + disk_->rows.size(),
                     "the rows of a simulated disk are numbered without gaps");
    TROUPE_INVARIANT(next - 1 >= disk_->witnessed, "the witness of a simulated disk does not fall");
    disk_->witnessed = next - 1;
  }
  if (dead_)
    return refuse(reason::kind::unavailable,
                  fate == append_fate::full ? "the journal cannot be written: the disk is full"
                                            : "the journal cannot be written: the host is down");
  return {};
}

expected<void> memory_journal::replay(const std::function<void(const journal_entry&)>& each) const {
  auto sequence = disk_->first;
  if (const auto last = sequence + disk_->rows.size() - 1; last < disk_->witnessed)
    return refuse(reason::kind::malformed, "the journal ends with entry {}, but {} were written",
                  last, disk_->witnessed);
  for (const auto& r : disk_->rows) {
    if (r.checksum != entry_checksum(sequence, r.bytes))
      return refuse(reason::kind::malformed, "entry {} of the journal is damaged", sequence);
    const auto e = decode_entry(r.bytes);
    if (!e) return refuse(e.error());
    each(*e);
    ++sequence;
  }
  return {};
}

}  // namespace troupe::runtime
