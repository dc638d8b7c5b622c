#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/host/pause.hpp"
#include "runtime/journal/sqlite_journal.hpp"
#include "runtime/world.hpp"

// A journal while it is open: how it is written to the disk, and what other programs do to it.

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;
namespace fs = std::filesystem;

namespace {

sqlite3* newest_connection = nullptr;

/// SQLite calls it for each connection.
int note_connection(sqlite3* db, const char**, const void*) {
  newest_connection = db;
  return SQLITE_OK;
}

/// A pragma's value on the journal's own connection; another one has settings of its own.
std::string pragma(const std::string& name) {
  sqlite3_stmt* s = nullptr;
  REQUIRE(newest_connection != nullptr);
  REQUIRE(sqlite3_prepare_v2(newest_connection, ("PRAGMA " + name).c_str(), -1, &s, nullptr) ==
          SQLITE_OK);
  REQUIRE(sqlite3_step(s) == SQLITE_ROW);
  std::string value{reinterpret_cast<const char*>(sqlite3_column_text(s, 0))};
  sqlite3_finalize(s);
  return value;
}

job_ended end_of(std::uint64_t n) {
  return {.job = n, .at_s = 1, .detail = std::string(n % 50, 'x')};
}

void write_at(const std::string& path, off_t at, const std::string& bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  CHECK(::pwrite(fd, bytes.data(), bytes.size(), at) == static_cast<ssize_t>(bytes.size()));
  ::close(fd);
}

}  // namespace

TEST_CASE(
    "SQLite syncs each transaction of a journal, when it is new and when it is opened again") {
  scratch dir;
  REQUIRE(sqlite3_auto_extension(reinterpret_cast<void (*)()>(note_connection)) == SQLITE_OK);
  for (int i = 0; i < 2; ++i) {
    newest_connection = nullptr;
    const auto j = sqlite_journal::open(dir / "journal");
    REQUIRE(j);
    CHECK(pragma("synchronous") == "2");  // FULL
    CHECK(pragma("journal_mode") == "wal");
    REQUIRE((*j)->append(end_of(1)));
    REQUIRE((*j)->compact(std::vector<journal_entry>{end_of(2)}));
    CHECK(pragma("synchronous") == "2");
  }
  sqlite3_cancel_auto_extension(reinterpret_cast<void (*)()>(note_connection));
}

TEST_CASE(
    "a journal whose files another program truncates or writes accepts no entry, and names the "
    "file") {
  struct change {
    const char* name;
    const char* file;
    void (*make)(const std::string&);
    const char* words;
  };
  const auto halve = [](const std::string& p) { fs::resize_file(p, fs::file_size(p) / 2); };
  const auto empty = [](const std::string& p) { fs::resize_file(p, 0); };
  const auto grow = [](const std::string& p) { fs::resize_file(p, fs::file_size(p) + 4096); };
  const auto refill = [](const std::string& p) {
    const auto size = fs::file_size(p);
    fs::resize_file(p, size / 2);
    fs::resize_file(p, size);
  };
  const auto overwrite = [](const std::string& p) { write_at(p, 200, "damage"); };
  const auto c = GENERATE_COPY(values<change>({
      {"half of the WAL", "journal-wal", halve, "journal-wal was cut from "},
      {"all of the WAL", "journal-wal", empty, " to 0 bytes by another program"},
      {"holes in the WAL", "journal-wal", refill, "journal-wal was written by another program"},
      {"bytes in the WAL", "journal-wal", overwrite, "journal-wal was written by another"},
      {"a longer WAL", "journal-wal", grow, "journal-wal was written by another program"},
      {"half of the database", "journal", halve, "journal was cut from "},
      {"bytes in the database", "journal", overwrite, "journal was written by another program"},
      {"an empty witness", "journal.witness", empty, "journal.witness was cut from 1024 to 0"},
      {"another witness", "journal.witness", overwrite, "journal.witness was written by another"},
  }));
  const bool append_first = GENERATE(false, true);
  CAPTURE(c.name, append_first);
  scratch dir;
  const auto opened = sqlite_journal::open(dir / "journal");
  REQUIRE(opened);
  auto& j = **opened;
  for (std::uint64_t n = 1; n <= 5; ++n) REQUIRE(j.append(end_of(n)));
  REQUIRE(j.check());
  pause(0.02);  // file systems count time in steps of some milliseconds
  c.make(dir / c.file);
  const auto found = append_first ? j.append(end_of(6)) : j.check();
  REQUIRE_FALSE(found);
  CHECK(found.error().code == reason::kind::unavailable);
  CHECK_THAT(found.error().text, Catch::Matchers::Contains(c.words));
  CHECK_THAT(found.error().text, Catch::Matchers::Contains("may lack entries"));
  CHECK_FALSE(j.append(end_of(7)));
  CHECK_FALSE(j.check());
}

TEST_CASE(
    "a journal's own writes, its check-points included, are not taken for another program's") {
  scratch dir;
  const auto j = sqlite_journal::open(dir / "journal", {.durable = false});
  REQUIRE(j);
  std::vector<journal_entry> kept;
  for (std::uint64_t n = 1; n <= 1200; ++n) {
    REQUIRE((*j)->append(end_of(n)));
    if (n % 100 == 0) REQUIRE((*j)->check());
    if (n % 400 == 0) REQUIRE((*j)->compact(std::vector<journal_entry>{end_of(n)}));
  }
  CHECK((*j)->check());
  CHECK((*j)->replay([&](const journal_entry& e) { kept.push_back(e); }));
  CHECK(kept == std::vector<journal_entry>{end_of(1200)});
  CHECK((*j)->check());
}
