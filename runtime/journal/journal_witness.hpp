#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "messages/base/descriptor.hpp"
#include "messages/base/reason.hpp"

namespace troupe::runtime {

/// A small file next to a journal that records what the journal must at least contain: its id and
/// the sequence number of a durable entry. It is text, in two slots of 512 bytes that are written
/// alternately, each with a checksum.
///
/// Order of writes: the journal's commit is synced first, then a slot is written; the slot is
/// synced by sync(), once per heartbeat, since a second sync per commit would halve the commit
/// rate. So the witness is never ahead of the journal: a journal that ends before its witness has
/// lost entries. After a crash of the process it is behind by at most one commit, after a power
/// failure by the commits since the last sync(); both are normal. If a power failure tears a slot,
/// its checksum fails and the other slot counts.
class journal_witness {
 public:
  struct record {
    std::uint64_t journal = 0;
    std::uint64_t sequence = 0;
    bool operator==(const record&) const = default;
  };

  /// Opens the file or creates an empty one, without changing its contents.
  static expected<std::unique_ptr<journal_witness>> open(const std::string& path);

  /// The valid slots when it was opened: none to two.
  const std::vector<record>& found() const { return found_; }
  /// It has never been written: no slot is valid, and nothing is damaged.
  bool is_new() const { return new_; }

  expected<void> write(const record& r);
  expected<void> sync();

 private:
  explicit journal_witness(descriptor fd) : fd_{std::move(fd)} {}
  expected<void> failure(const char* what) const;

  descriptor fd_;
  bool new_ = false, dirty_ = false;
  unsigned next_slot_ = 0;
  std::vector<record> found_;
  record last_;  // that this process has written
};

}  // namespace troupe::runtime
