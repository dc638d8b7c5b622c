#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "messages/reason.hpp"

namespace troupe::runtime {

/// A small file beside a journal that knows what the journal must at least hold: its id, and the
/// sequence of an entry that was durable. It is text, in two slots of 512 bytes that are written in
/// turn, each with a checksum.
///
/// Order: the journal's commit is synced first, then a slot is written, and it is not synced at
/// once (a second sync would halve the commits a second) but by sync(), every heartbeat. So the
/// witness is never ahead of the journal: a journal that ends before its witness has lost entries.
/// After a crash of the process it is behind by one commit at most, after a power cut by what was
/// committed since the last sync(); a journal that goes on behind its witness is whole. A slot that
/// a power cut tore fails its checksum, and the other one counts.
class journal_witness {
 public:
  struct record {
    std::uint64_t journal = 0;
    std::uint64_t sequence = 0;
    bool operator==(const record&) const = default;
  };

  /// Opens the file or makes an empty one, without changing what it holds.
  static expected<std::unique_ptr<journal_witness>> open(const std::string& path);
  ~journal_witness();
  journal_witness(const journal_witness&) = delete;
  journal_witness& operator=(const journal_witness&) = delete;

  /// The slots that can be believed, when it was opened: none to two.
  const std::vector<record>& found() const { return found_; }
  /// It has never been written to: then nothing was found, and nothing is damaged.
  bool is_new() const { return new_; }

  expected<void> write(const record& r);
  expected<void> sync();

 private:
  explicit journal_witness(int fd) : fd_{fd} {}
  expected<void> failure(const char* what) const;

  int fd_ = -1;
  bool new_ = false, dirty_ = false;
  unsigned next_slot_ = 0;
  std::vector<record> found_;
};

}  // namespace troupe::runtime
