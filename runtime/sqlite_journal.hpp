#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "runtime/journal.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace troupe::runtime {

/// The journal in a file: SQLite in WAL mode, one row an entry, each with a checksum.
class sqlite_journal final : public journal {
 public:
  struct options {
    /// An entry is on the disk when append returns. Only tests may do without.
    bool durable = true;
  };

  /// Opens the file or makes it. Refuses: another process has it, it is no journal, it was written
  /// by a newer version, it cannot be read or written. The kernel gives the lock back however this
  /// process ends.
  static expected<std::shared_ptr<sqlite_journal>> open(const std::string& path, options o);
  static expected<std::shared_ptr<sqlite_journal>> open(const std::string& path) {
    return open(path, options{});
  }
  ~sqlite_journal() override;

  /// False once, false for ever: what follows a hole is worth nothing.
  [[nodiscard]] bool append(const journal_entry& e) override;

  /// Refuses a row that is missing, damaged or not understood, with its number.
  expected<void> replay(const std::function<void(const journal_entry&)>& each) const override;

 private:
  sqlite_journal() = default;
  expected<void> lock();
  expected<void> prepare(options o);
  expected<void> check_version();
  expected<void> run(const char* sql) const;
  expected<long long> number(const char* sql) const;
  tl::unexpected<reason> failure(const std::string& what) const;

  std::string path_;
  int lock_fd_ = -1;
  sqlite3* db_ = nullptr;
  sqlite3_stmt* insert_ = nullptr;
  long long last_ = 0;
  bool broken_ = false;
  mutable std::mutex mutex_;
};

}  // namespace troupe::runtime
