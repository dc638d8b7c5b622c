#include "runtime/journal/sqlite_journal.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/private_files.hpp"
#include "runtime/journal/entry_checksum.hpp"
#include "runtime/journal/wal_check.hpp"

namespace troupe::runtime {
namespace {

constexpr long long application_id = 0x54525550;  // "TRUP"
constexpr long long schema_version = journal_schema_version;
// A short WAL is checked quickly at open, and little is lost with it.
constexpr std::size_t checkpoint_entries = 500;

struct statement {
  sqlite3_stmt* handle = nullptr;
  ~statement() { sqlite3_finalize(handle); }
};

// Random: a journal that is continued from an older copy must have another id than the original.
std::uint64_t fresh_id() {
  std::uint64_t id = 0;
  while (id == 0)
    if (::getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id)) id = 0;
  return id;
}

std::uint64_t identity_checksum(std::uint64_t id, long long first) {
  const std::array words{id, static_cast<std::uint64_t>(first)};
  return entry_checksum(0, std::as_bytes(std::span{words}));
}

/// Bytes of a file; -1: it is not there.
long long size_of(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 ? static_cast<long long>(s.st_size) : -1;
}

}  // namespace

expected<std::shared_ptr<sqlite_journal>> sqlite_journal::open(const std::string& path, options o) {
  const std::shared_ptr<sqlite_journal> j{new sqlite_journal};
  j->path_ = path;
  j->options_ = o;
  if (auto ok = j->lock(); !ok) return refuse(ok.error());
  if (auto ok = j->prepare(); !ok) return refuse(ok.error());
  return j;
}

sqlite_journal::~sqlite_journal() {
  sqlite3_finalize(insert_);
  // On a normal exit the journal becomes a single file.
  if (!broken_ && !places_.empty() && (!unchanged() || !checkpoint()))
    log(log_level::warn, "journal", "the WAL could not be truncated", {{"file", path_}});
  sqlite3_close(db_);
  if (witness_ && !witness_->sync())
    log(log_level::warn, "journal", "the witness could not be synced");
}

// On a separate file, because SQLite opens and closes the database file itself.
expected<void> sqlite_journal::lock() {
  const auto name = path_ + ".lock";
  lock_fd_ = descriptor{::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, private_file_mode)};
  if (lock_fd_ < 0)
    return refuse(reason::kind::unavailable, "cannot open the journal's lock {}: {}", name,
                  std::strerror(errno));
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = {};
    const auto size = ::pread(lock_fd_, holder, sizeof holder - 1, 0);
    return refuse(reason::kind::refused,
                  "another controller{} has the journal {}: there can be only one",
                  size > 0 ? fmt::format(" (process {})", holder) : "", path_);
  }
  ::fchmod(lock_fd_, private_file_mode);
  // Information for users; the lock holds without it.
  const auto self = std::to_string(::getpid());
  if (::ftruncate(lock_fd_, 0) != 0 || ::pwrite(lock_fd_, self.data(), self.size(), 0) < 0)
    log(log_level::warn, "journal", "cannot write its process into the lock",
        {{"file", name}, {"why", std::strerror(errno)}});
  return {};
}

tl::unexpected<reason> sqlite_journal::failure(const std::string& what) const {
  const int code = sqlite3_errcode(db_);
  const bool bad = code == SQLITE_NOTADB || code == SQLITE_CORRUPT;
  const char* why = code == SQLITE_NOTADB ? "it is not a journal of Troupe" : sqlite3_errmsg(db_);
  return refuse(bad ? reason::kind::malformed : reason::kind::unavailable,
                fmt::format("cannot {} the journal {}: {}", what, path_, why));
}

// A damaged journal is a decision for people: to go on without entries may start work twice.
/// Appends the user's choices.
tl::unexpected<reason> sqlite_journal::damaged(const std::string& what) const {
  return refuse(reason::kind::malformed,
                "{}. Nothing was changed. Restore the newest intact copy, or start once with "
                "--accept-older-journal to continue without the lost entries, or move {}* away to "
                "start with an empty journal",
                what, path_);
}

expected<void> sqlite_journal::run(const std::string& sql) const {
  if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) return failure("use");
  return {};
}

expected<long long> sqlite_journal::number(const char* sql) const {
  statement s;
  if (sqlite3_prepare_v2(db_, sql, -1, &s.handle, nullptr) != SQLITE_OK) return failure("read");
  if (sqlite3_step(s.handle) != SQLITE_ROW) return failure("read");
  return sqlite3_column_int64(s.handle, 0);
}

expected<std::string> sqlite_journal::text(const char* sql) const {
  statement s;
  if (sqlite3_prepare_v2(db_, sql, -1, &s.handle, nullptr) != SQLITE_OK) return failure("read");
  if (sqlite3_step(s.handle) != SQLITE_ROW) return failure("read");
  const auto* result = sqlite3_column_text(s.handle, 0);
  return std::string{result == nullptr ? "" : reinterpret_cast<const char*>(result)};
}

// -- opening

/// Before SQLite opens the files, since it repairs some damage silently.
expected<void> sqlite_journal::check_files() {
  const auto size = size_of(path_), wal = size_of(path_ + "-wal");
  if (size <= 0) {
    if (wal > 0 || !witness_->is_new())
      return damaged(fmt::format("the journal {} is {}, but {} shows that there was one", path_,
                                 size < 0 ? "missing" : "empty",
                                 wal > 0 ? "its -wal file" : "its .witness file"));
    fresh_ = true;
    return {};
  }
  if (options_.accept_older) return {};
  if (auto ok = check_wal(path_ + "-wal"); !ok) return damaged(ok.error().text);
  return {};
}

expected<void> sqlite_journal::prepare() {
  auto witness = journal_witness::open(path_ + ".witness");
  if (!witness) return refuse(witness.error());
  witness_ = std::move(*witness);
  if (auto ok = check_files(); !ok) return ok;
  // SQLite creates the WAL with the database's mode.
  descriptor fd{::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, private_file_mode)};
  if (fd < 0)
    return refuse(reason::kind::unavailable, "cannot open the journal {}: {}", path_,
                  std::strerror(errno));
  ::fchmod(fd, private_file_mode);
  fd.close();
  ::chmod((path_ + "-wal").c_str(), private_file_mode);
  if (sqlite3_open_v2(path_.c_str(), &db_, SQLITE_OPEN_READWRITE, nullptr) != SQLITE_OK)
    return failure("open");
  // A file that is rejected stays unchanged.
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  // EXCLUSIVE also excludes other programs, and needs no shared-memory file.
  if (auto ok = run("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
                    "PRAGMA wal_autocheckpoint = 0;");
      !ok)
    return ok;
  if (auto ok = run(fmt::format("PRAGMA synchronous = {}", options_.durable ? "FULL" : "OFF")); !ok)
    return ok;
  if (auto ok = check_version(); !ok) return ok;
  if (!fresh_) {
    if (auto ok = check_rows(); !ok) return ok;
    if (auto ok = check_witness(); !ok) return ok;
  }
  return begin();
}

// An application id in the file distinguishes a journal from any other SQLite database that a wrong
// path may lead to.
expected<void> sqlite_journal::check_version() {
  const auto app = number("PRAGMA application_id");
  const auto version = number("PRAGMA user_version");
  const auto tables = number("SELECT count(*) FROM sqlite_master");
  if (!app || !version || !tables)
    return refuse((!app ? app : !version ? version : tables).error());
  // A controller may have died between creating the file and creating its tables.
  fresh_ = fresh_ || (witness_->is_new() && *tables == 0 && *app == 0 && *version == 0);
  if (fresh_) return make_tables();
  if (*app != application_id)
    return refuse(reason::kind::malformed, "{} is a database, but not a journal of Troupe", path_);
  if (*version < 1 || *version > schema_version)
    return refuse(reason::kind::malformed,
                  "the journal {} has version {}; this program reads versions 1 to {}", path_,
                  *version, schema_version);
  version_ = *version;
  return {};
}

expected<void> sqlite_journal::make_tables() {
  id_ = fresh_id();
  return run(
      fmt::format("BEGIN; PRAGMA application_id = {}; PRAGMA user_version = {};"
                  "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, checksum INTEGER NOT NULL,"
                  "                      entry BLOB NOT NULL); {} COMMIT;",
                  application_id, schema_version, make_identity()));
}

std::string sqlite_journal::make_identity() const {
  return fmt::format(
      "CREATE TABLE identity (journal INTEGER NOT NULL, first INTEGER NOT NULL,"
      "                       checksum INTEGER NOT NULL);"
      "INSERT INTO identity VALUES ({}, 1, {});",
      static_cast<long long>(id_), static_cast<long long>(identity_checksum(id_, 1)));
}

// The first sequence number is part of the identity: after a compaction the rows no longer begin
// with 1, and rows missing at the beginning must be noticed.
expected<void> sqlite_journal::set_identity(std::uint64_t id, long long first) {
  return run(fmt::format("UPDATE identity SET journal = {}, first = {}, checksum = {}",
                         static_cast<long long>(id), first,
                         static_cast<long long>(identity_checksum(id, first))));
}

// integrity_check reads the pages, and count_rows the entries in them: a page that is intact may
// still be one of an older copy.
expected<void> sqlite_journal::check_rows() {
  const auto result = text("PRAGMA integrity_check(1)");
  if (!result) return damaged(result.error().text);
  if (*result != "ok") return damaged(fmt::format("the journal {} is damaged: {}", path_, *result));
  if (version_ == 1) {
    id_ = fresh_id();  // see upgrade()
    return count_rows(1);
  }
  const auto ids = number("SELECT count(*) FROM identity");
  const auto id = number("SELECT journal FROM identity");
  const auto first = number("SELECT first FROM identity");
  const auto sum = number("SELECT checksum FROM identity");
  if (!ids || *ids != 1 || !id || !first || !sum ||
      static_cast<std::uint64_t>(*sum) !=
          identity_checksum(static_cast<std::uint64_t>(*id), *first))
    return damaged(fmt::format("the journal {} has no id", path_));
  id_ = static_cast<std::uint64_t>(*id);
  return count_rows(*first);
}

expected<void> sqlite_journal::count_rows(long long first) {
  first_ = first;
  last_ = first_ - 1;
  return each_row([this](long long row, std::span<const std::byte>) -> expected<void> {
    last_ = row;
    return {};
  });
}

// The witness is at most one commit behind (a crash between commit and note) and never ahead. Ahead
// means that durable entries are missing; another id, that the file was swapped.
expected<void> sqlite_journal::check_witness() {
  if (options_.accept_older) return {};
  // A controller may have died between creating the journal and its witness; version 1 had none.
  if (witness_->is_new() && ((last_ < first_ && first_ == 1) || version_ == 1)) return {};
  const auto& found = witness_->found();
  TROUPE_INVARIANT(found.size() <= 2, "a witness has two slots");
  if (found.empty())
    return damaged(fmt::format(
        "the witness of the journal {} is {}: it is unknown whether its {} entries are complete",
        path_, witness_->is_new() ? "missing" : "damaged", last_));
  const auto of_this = [this](const auto& r) { return r.journal == id_; };
  if (std::ranges::none_of(found, of_this))
    return damaged(fmt::format(
        "the journal {} is not the one of its witness (id {:016x}, the witness has {:016x})", path_,
        id_, found.front().journal));
  for (const auto& r : found)
    if (of_this(r) && static_cast<long long>(r.sequence) > last_)
      return damaged(fmt::format(
          "the journal {} ends with entry {}, but its witness says that {} were written", path_,
          last_, r.sequence));
  return {};
}

/// Version 1 (the first release) had neither an id nor a witness. Its entries are readable, because
/// records have only grown at their ends. Version 2 had no entries with the cluster.
expected<void> sqlite_journal::upgrade() {
  if (version_ == schema_version) return {};
  log(log_level::info, "journal", "upgraded the schema",
      {{"file", path_}, {"from", version_}, {"to", schema_version}, {"entries", size()}});
  return run(fmt::format("BEGIN; {} PRAGMA user_version = {}; COMMIT;",
                         version_ == 1 ? make_identity() : "", schema_version));
}

/// All checks have passed: from here on the files may change.
expected<void> sqlite_journal::begin() {
  if (auto ok = upgrade(); !ok) return ok;
  if (options_.accept_older) {
    id_ = fresh_id();
    if (auto ok = set_identity(id_, first_); !ok) return ok;
    log(log_level::warn, "journal", "continuing with the readable entries, under a new id",
        {{"file", path_}, {"entries", size()}});
  }
  if (auto ok = checkpoint(); !ok) return ok;
  // Both slots, so that no older id remains.
  for (int slot = 0; slot < 2; ++slot)
    if (auto ok = witness_->write({id_, static_cast<std::uint64_t>(last_)}); !ok) return ok;
  if (auto ok = witness_->sync(); !ok) return ok;
  for (const char* suffix : {"", "-wal", ".witness", ".lock"}) {
    struct stat s {};
    if (::stat((path_ + suffix).c_str(), &s) == 0)
      places_.push_back({path_ + suffix, s.st_dev, s.st_ino, s.st_size, s.st_mtim});
  }
  if (sqlite3_prepare_v3(db_, "INSERT INTO entries VALUES (?, ?, ?)", -1, SQLITE_PREPARE_PERSISTENT,
                         &insert_, nullptr) != SQLITE_OK)
    return failure("write");
  return {};
}

// Moves the log into the database and truncates it. SQLite's own checkpoints are off
// (wal_autocheckpoint), so that files change their sizes only where note_files() follows.
expected<void> sqlite_journal::checkpoint() {
  // Only a concurrent reader could prevent this, and the lock excludes readers.
  if (sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr) !=
      SQLITE_OK)
    return failure("check-point");
  in_wal_ = 0;
  return {};
}

// -- reading

// Sequences are consecutive, so a missing row is noticed as a gap.
expected<void> sqlite_journal::each_row(const row_function& each) const {
  statement s;
  const char* sql = "SELECT sequence, checksum, entry FROM entries ORDER BY sequence";
  if (sqlite3_prepare_v2(db_, sql, -1, &s.handle, nullptr) != SQLITE_OK)
    return damaged(failure("read").value().text);
  const auto bad = [this](long long row, const std::string& what) {
    return damaged(fmt::format("row {} of the journal {} {}", row, path_, what));
  };
  long long row = first_;
  for (int step = 0; (step = sqlite3_step(s.handle)) != SQLITE_DONE; ++row) {
    if (step != SQLITE_ROW)
      return damaged(failure(fmt::format("read row {} of", row)).value().text);
    if (sqlite3_column_int64(s.handle, 0) != row) return bad(row, "is missing");
    const std::span bytes{static_cast<const std::byte*>(sqlite3_column_blob(s.handle, 2)),
                          static_cast<std::size_t>(sqlite3_column_bytes(s.handle, 2))};
    if (static_cast<std::uint64_t>(sqlite3_column_int64(s.handle, 1)) !=
        entry_checksum(static_cast<std::uint64_t>(row), bytes))
      return bad(row, "is damaged: checksum mismatch");
    if (auto ok = each(row, bytes); !ok) return ok;
  }
  return {};
}

expected<void> sqlite_journal::replay(const std::function<void(const journal_entry&)>& each) const {
  const std::lock_guard guard{mutex_};
  return each_row([&](long long row, std::span<const std::byte> bytes) -> expected<void> {
    const auto e = decode_entry(bytes);
    if (!e)
      return damaged(fmt::format("row {} of the journal {} cannot be decoded: {}", row, path_,
                                 e.error().text));
    each(*e);
    return {};
  });
}

// -- writing

// last_ changes only after COMMIT: it is the number that the witness gets.
expected<void> sqlite_journal::append(std::span<const journal_entry> batch) {
  const std::lock_guard guard{mutex_};
  if (auto ok = unchanged(); !ok) return give_up(ok.error());
  if (auto ok = run("BEGIN"); !ok) return give_up(ok.error());
  if (auto ok = insert(batch); !ok) return give_up(ok.error());
  if (auto ok = run("COMMIT"); !ok) return give_up(ok.error());
  TROUPE_INVARIANT(first_ <= last_ + 1, "the rows of the journal are numbered without gaps");
  last_ += static_cast<long long>(batch.size());
  in_wal_ += batch.size();
  return after_commit();
}

// Deletes and inserts in one transaction: a crash leaves all old entries or the whole snapshot. The
// snapshot continues the numbers of the entries that it replaces, so a witness stays valid.
expected<void> sqlite_journal::compact(std::span<const journal_entry> snapshot) {
  const std::lock_guard guard{mutex_};
  if (auto ok = unchanged(); !ok) return give_up(ok.error());
  if (auto ok = run("BEGIN; DELETE FROM entries"); !ok) return give_up(ok.error());
  if (auto ok = set_identity(id_, last_ + 1); !ok) return give_up(ok.error());
  if (auto ok = insert(snapshot); !ok) return give_up(ok.error());
  if (auto ok = run("COMMIT"); !ok) return give_up(ok.error());
  first_ = last_ + 1;
  last_ += static_cast<long long>(snapshot.size());
  TROUPE_INVARIANT(number("SELECT count(*) FROM entries") == last_ - first_ + 1,
                   "a compacted journal has the rows of its snapshot alone");
  in_wal_ = checkpoint_entries;
  return after_commit();
}

expected<void> sqlite_journal::insert(std::span<const journal_entry> entries) {
  auto sequence = last_;
  for (const auto& e : entries) {
    const auto bytes = encode(e);
    TROUPE_INVARIANT(!bytes.empty(), "an entry of the journal has bytes");
    const auto sum = entry_checksum(static_cast<std::uint64_t>(++sequence), bytes);
    sqlite3_bind_int64(insert_, 1, sequence);
    sqlite3_bind_int64(insert_, 2, static_cast<long long>(sum));
    sqlite3_bind_blob64(insert_, 3, bytes.data(), bytes.size(), SQLITE_STATIC);
    const bool done = sqlite3_step(insert_) == SQLITE_DONE;
    auto failed = done ? refuse(reason{}) : failure("write");
    sqlite3_reset(insert_);
    sqlite3_clear_bindings(insert_);
    if (!done) return failed;
  }
  return {};
}

expected<void> sqlite_journal::after_commit() {
  TROUPE_INVARIANT(size() == 0 || sqlite3_last_insert_rowid(db_) == last_,
                   "the newest row of the journal is the last one that is counted");
  auto ok = witness_->write({id_, static_cast<std::uint64_t>(last_)});
  if (ok && in_wal_ >= checkpoint_entries) ok = checkpoint();
  if (ok) ok = note_files();
  return ok ? ok : give_up(ok.error());
}

/// Once false, always false: entries after a gap are useless.
expected<void> sqlite_journal::give_up(const reason& why) {
  broken_ = true;
  sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return refuse(why.code, why.text + "; nothing more will be written");
}

}  // namespace troupe::runtime
