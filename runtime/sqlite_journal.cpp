#include "runtime/sqlite_journal.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "messages/codec.hpp"
#include "runtime/log.hpp"

namespace troupe::runtime {
namespace {

constexpr long long application_id = 0x54525550;  // "TRUP"
constexpr long long schema_version = 1;

// The number is part of it: a row in another's place does not pass.
long long checksum(long long sequence, std::span<const std::byte> entry) {
  return static_cast<long long>(
      XXH3_64bits_withSeed(entry.data(), entry.size(), static_cast<std::uint64_t>(sequence)));
}

struct statement {
  sqlite3_stmt* handle = nullptr;
  ~statement() { sqlite3_finalize(handle); }
};

}  // namespace

expected<std::shared_ptr<sqlite_journal>> sqlite_journal::open(const std::string& path, options o) {
  const std::shared_ptr<sqlite_journal> j{new sqlite_journal};
  j->path_ = path;
  if (auto ok = j->lock(); !ok) return tl::unexpected{ok.error()};
  if (auto ok = j->prepare(o); !ok) return tl::unexpected{ok.error()};
  return j;
}

sqlite_journal::~sqlite_journal() {
  sqlite3_finalize(insert_);
  sqlite3_close(db_);
  if (lock_fd_ >= 0) ::close(lock_fd_);  // after the database: the lock covers its last write
}

// On a file of its own: SQLite opens and closes the database's file as it likes.
expected<void> sqlite_journal::lock() {
  const auto name = path_ + ".lock";
  lock_fd_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_fd_ < 0)
    return refuse(reason::kind::unavailable,
                  fmt::format("cannot open the journal's lock {}: {}", name, std::strerror(errno)));
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = {};
    const auto size = ::pread(lock_fd_, holder, sizeof holder - 1, 0);
    return refuse(reason::kind::refused,
                  fmt::format("another controller{} has the journal {}: there can be only one",
                              size > 0 ? fmt::format(" (process {})", holder) : "", path_));
  }
  const auto self = std::to_string(::getpid());
  if (::ftruncate(lock_fd_, 0) != 0 || ::pwrite(lock_fd_, self.data(), self.size(), 0) < 0)
    return refuse(reason::kind::unavailable,
                  fmt::format("cannot write {}: {}", name, std::strerror(errno)));
  return {};
}

tl::unexpected<reason> sqlite_journal::failure(const std::string& what) const {
  const int code = sqlite3_errcode(db_);
  const bool damaged = code == SQLITE_NOTADB || code == SQLITE_CORRUPT;
  const char* why = code == SQLITE_NOTADB ? "it is not a journal of Troupe" : sqlite3_errmsg(db_);
  return refuse(damaged ? reason::kind::malformed : reason::kind::unavailable,
                fmt::format("cannot {} the journal {}: {}", what, path_, why));
}

expected<void> sqlite_journal::run(const char* sql) const {
  if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return failure("use");
  return {};
}

expected<long long> sqlite_journal::number(const char* sql) const {
  statement s;
  if (sqlite3_prepare_v2(db_, sql, -1, &s.handle, nullptr) != SQLITE_OK) return failure("read");
  if (sqlite3_step(s.handle) != SQLITE_ROW) return failure("read");
  return sqlite3_column_int64(s.handle, 0);
}

expected<void> sqlite_journal::check_version() {
  const auto app = number("PRAGMA application_id");
  const auto version = number("PRAGMA user_version");
  const auto tables = number("SELECT count(*) FROM sqlite_master");
  if (!app || !version || !tables)
    return tl::unexpected{(!app ? app : !version ? version : tables).error()};
  if (*tables == 0 && *app == 0 && *version == 0)
    return run(
        fmt::format("BEGIN; PRAGMA application_id = {}; PRAGMA user_version = {};"
                    "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, checksum INTEGER NOT NULL,"
                    "                      entry BLOB NOT NULL); COMMIT;",
                    application_id, schema_version)
            .c_str());
  if (*app != application_id)
    return refuse(reason::kind::malformed,
                  fmt::format("{} is a database, but not a journal of Troupe", path_));
  if (*version != schema_version)
    return refuse(
        reason::kind::malformed,
        fmt::format("the journal {} has version {}; this program reads and writes version {}",
                    path_, *version, schema_version));
  return {};
}

expected<void> sqlite_journal::prepare(options o) {
  if (sqlite3_open_v2(path_.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr) !=
      SQLITE_OK)
    return failure("open");
  // EXCLUSIVE also keeps others' programs out, and needs no shared memory beside the file.
  if (auto ok = run("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"); !ok) return ok;
  if (auto ok = run(o.durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = OFF"); !ok)
    return ok;
  if (auto ok = check_version(); !ok) return ok;
  const auto last = number("SELECT coalesce(max(sequence), 0) FROM entries");
  if (!last) return tl::unexpected{last.error()};
  last_ = *last;
  if (sqlite3_prepare_v3(db_, "INSERT INTO entries VALUES (?, ?, ?)", -1, SQLITE_PREPARE_PERSISTENT,
                         &insert_, nullptr) != SQLITE_OK)
    return failure("write");
  return {};
}

bool sqlite_journal::append(const journal_entry& e) {
  const auto bytes = encode(e);
  const std::lock_guard guard{mutex_};
  if (broken_) return false;
  const auto sequence = last_ + 1;
  sqlite3_bind_int64(insert_, 1, sequence);
  sqlite3_bind_int64(insert_, 2, checksum(sequence, bytes));
  sqlite3_bind_blob64(insert_, 3, bytes.data(), bytes.size(), SQLITE_STATIC);
  const bool done = sqlite3_step(insert_) == SQLITE_DONE;
  if (!done) {
    broken_ = true;
    log(log_level::error, "journal", "cannot write; nothing more will be",
        {{"file", path_}, {"why", sqlite3_errmsg(db_)}});
  }
  sqlite3_reset(insert_);
  sqlite3_clear_bindings(insert_);
  if (done) last_ = sequence;
  return done;
}

expected<void> sqlite_journal::replay(const std::function<void(const journal_entry&)>& each) const {
  const std::lock_guard guard{mutex_};
  statement s;
  const char* sql = "SELECT sequence, checksum, entry FROM entries ORDER BY sequence";
  if (sqlite3_prepare_v2(db_, sql, -1, &s.handle, nullptr) != SQLITE_OK) return failure("read");
  const auto bad = [this](long long row, const std::string& what) {
    return refuse(reason::kind::malformed,
                  fmt::format("row {} of the journal {} {}", row, path_, what));
  };
  long long row = 1;
  for (int step = 0; (step = sqlite3_step(s.handle)) != SQLITE_DONE; ++row) {
    if (step != SQLITE_ROW) return failure(fmt::format("read row {} of", row));
    if (sqlite3_column_int64(s.handle, 0) != row) return bad(row, "is missing");
    const std::span bytes{static_cast<const std::byte*>(sqlite3_column_blob(s.handle, 2)),
                          static_cast<std::size_t>(sqlite3_column_bytes(s.handle, 2))};
    if (sqlite3_column_int64(s.handle, 1) != checksum(row, bytes))
      return bad(row, "is damaged: its checksum does not fit its bytes");
    const auto e = decode_entry(bytes);
    if (!e) return bad(row, "is not understood: " + e.error().text);
    each(*e);
  }
  return {};
}

}  // namespace troupe::runtime
