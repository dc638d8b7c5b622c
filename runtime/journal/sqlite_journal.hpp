#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "messages/base/descriptor.hpp"
#include "runtime/journal/journal.hpp"
#include "runtime/journal/journal_witness.hpp"

struct sqlite3;
struct sqlite3_stmt;

// Durability, in the order in which an append relies on it:
//
// 1. One SQLite transaction per batch, in WAL mode with synchronous = FULL: COMMIT returns after
// the log's sync, which is the only sync of an append.
//
// 2. The witness (journal_witness.hpp) notes the last sequence number. SQLite forgives a log that
// was cut at a frame's end, or a file that an older copy replaced; the witness does not.
//
// 3. Sizes and times of change of all files, before every write (unchanged()): a log that another
// program has cut would otherwise grow a hole in the middle.
//
// 4. At open the log is checked frame by frame (wal_check.hpp), and every row by its checksum,
// before anything is changed: a rejected journal stays as evidence.
//
// A failed write ends the journal for this process: the caller has to stop, as its state is ahead
// of the disk.

namespace troupe::runtime {

/// Version of the tables and entries that this program writes. Older versions are upgraded at open,
/// newer ones are rejected.
inline constexpr long long journal_schema_version = 4;

/// The journal in a file: SQLite in WAL mode, one row per entry, each with a checksum, and a
/// witness next to it that records what the file must contain. Any SQLite program can read it while
/// no controller runs.
class sqlite_journal final : public journal {
 public:
  using journal::append;

  struct options {
    /// append returns when entries are on the disk. Only tests may disable this.
    bool durable = true;
    /// Accept a journal that may have lost its last entries, and give it a new id, so that nodes
    /// drop work that it may no longer know.
    bool accept_older = false;
  };

  /// Opens or creates the file. Fails without changing it if another process has it; if it is not a
  /// journal, was written by a newer version, or cannot be read or written; if it or its WAL is
  /// damaged, truncated, missing or does not match its witness. The lock is released by the kernel
  /// when the process ends.
  static expected<std::shared_ptr<sqlite_journal>> open(const std::string& path, options o);
  static expected<std::shared_ptr<sqlite_journal>> open(const std::string& path) {
    return open(path, options{});
  }
  ~sqlite_journal() override;

  std::uint64_t id() const override { return id_; }
  [[nodiscard]] expected<void> append(std::span<const journal_entry> batch) override;
  /// Rejects an entry that cannot be decoded, with its number; open() has checked for damage.
  expected<void> replay(const std::function<void(const journal_entry&)>& each) const override;
  [[nodiscard]] expected<void> compact(std::span<const journal_entry> snapshot) override;
  std::uint64_t size() const override { return static_cast<std::uint64_t>(last_ - first_ + 1); }
  expected<void> check() override;

 private:
  using row_function = std::function<expected<void>(long long, std::span<const std::byte>)>;
  /// One of the journal's files, as this process has last seen or written it.
  struct place {
    std::string path;
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    timespec written{};
  };

  sqlite_journal() = default;
  expected<void> lock();
  expected<void> check_files();
  expected<void> prepare();
  expected<void> check_version();
  expected<void> check_rows();
  expected<void> count_rows(long long first);
  expected<void> check_witness();
  expected<void> upgrade();
  expected<void> begin();
  expected<void> make_tables();
  std::string make_identity() const;
  expected<void> set_identity(std::uint64_t id, long long first);
  expected<void> insert(std::span<const journal_entry> entries);
  expected<void> checkpoint();
  expected<void> each_row(const row_function& each) const;
  expected<void> after_commit();
  expected<void> give_up(const reason& why);
  expected<void> note_files();
  expected<void> unchanged() const;
  expected<void> run(const std::string& sql) const;
  expected<long long> number(const char* sql) const;
  expected<std::string> text(const char* sql) const;
  tl::unexpected<reason> failure(const std::string& what) const;
  tl::unexpected<reason> damaged(const std::string& what) const;

  std::string path_;
  options options_;
  descriptor lock_fd_;  // closed after the database and the witness: covers their last writes
  sqlite3* db_ = nullptr;
  sqlite3_stmt* insert_ = nullptr;
  std::unique_ptr<journal_witness> witness_;
  std::vector<place> places_;
  std::uint64_t id_ = 0;
  long long first_ = 1, last_ = 0;              // sequences; first > last: no entry
  std::size_t in_wal_ = 0;                      // entries since the last checkpoint
  long long version_ = journal_schema_version;  // of the file when it was opened
  bool fresh_ = false;                          // the file did not exist
  bool broken_ = false;
  mutable std::mutex mutex_;
};

}  // namespace troupe::runtime
