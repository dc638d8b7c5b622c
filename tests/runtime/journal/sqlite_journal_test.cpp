#include "runtime/journal/sqlite_journal.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include <fmt/format.h>

#include "harness/first_release.hpp"
#include "runtime/journal/entry_checksum.hpp"
#include "runtime/world.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

std::shared_ptr<sqlite_journal> must_open_journal(const std::string& path) {
  auto j = sqlite_journal::open(path);
  INFO((j ? std::string{} : j.error().text));
  REQUIRE(j);
  return *j;
}

journal_entry numbered_entry(std::uint64_t n) {
  return job_ended{
      .job = n, .at_s = 1.5 * static_cast<double>(n), .detail = std::string(n % 50, 'x')};
}

expected<std::vector<journal_entry>> all_of(const sqlite_journal& j) {
  std::vector<journal_entry> found;
  auto ok = j.replay([&](const journal_entry& e) { found.push_back(e); });
  if (!ok) return refuse(ok.error());
  return found;
}

void tamper(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  REQUIRE(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(db);
}

void fill(const std::string& path, std::uint64_t entries, bool durable = true) {
  const auto j = sqlite_journal::open(path, {.durable = durable});
  REQUIRE(j);
  for (std::uint64_t n = 1; n <= entries; ++n) REQUIRE((*j)->append(numbered_entry(n)));
}

std::vector<std::byte> bytes_of_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace

TEST_CASE("appended entries are there, in order, after the journal is opened again") {
  scratch dir;
  fill(dir / "journal", 100);
  fill(dir / "journal", 50);
  const auto found = all_of(*must_open_journal(dir / "journal"));
  REQUIRE(found);
  REQUIRE(found->size() == 150);
  for (std::uint64_t n = 0; n < 150; ++n) REQUIRE((*found)[n] == numbered_entry(n % 100 + 1));
}

TEST_CASE("a second controller on the same journal is refused, with the holder's pid") {
  scratch dir;
  const auto first = must_open_journal(dir / "journal");
  const auto second = sqlite_journal::open(dir / "journal");
  REQUIRE_FALSE(second);
  REQUIRE(second.error().code == reason::kind::refused);
  REQUIRE(second.error().text.find("another controller (process " + std::to_string(::getpid()) +
                                   ")") == 0);
}

TEST_CASE("SIGKILL loses no appended entry and releases the journal") {
  scratch dir;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto j = sqlite_journal::open(dir / "journal");
    std::uint64_t n = 0;
    while (j && n < 1'000'000'000) {
      ++n;
      if (!(*j)->append(numbered_entry(n)) || ::write(ready[1], &n, sizeof n) != sizeof n) break;
    }
    ::_exit(1);
  }
  ::close(ready[1]);
  std::uint64_t durable = 0;
  while (durable < 20) REQUIRE(::read(ready[0], &durable, sizeof durable) == sizeof durable);
  REQUIRE_FALSE(sqlite_journal::open(dir / "journal"));
  ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  while (::read(ready[0], &durable, sizeof durable) == sizeof durable) continue;
  ::close(ready[0]);
  const auto found = all_of(*must_open_journal(dir / "journal"));
  REQUIRE(found);
  REQUIRE(found->size() >= durable);
  for (std::uint64_t n = 1; n <= found->size(); ++n) REQUIRE((*found)[n - 1] == numbered_entry(n));
}

TEST_CASE("a damaged, missing or replaced row is refused with its number") {
  scratch dir;
  const auto path = dir / "journal";
  const auto [sql, text] = GENERATE(table<std::string, std::string>(
      {{"UPDATE entries SET entry = zeroblob(length(entry)) WHERE sequence = 7",
        "row 7 of the journal"},
       {"DELETE FROM entries WHERE sequence = 4", "row 4 of the journal"},
       {"UPDATE entries SET entry = (SELECT entry FROM entries WHERE sequence = 2), checksum = "
        "(SELECT checksum "
        "FROM entries WHERE sequence = 2) WHERE sequence = 3",
        "row 3 of the journal"}}));
  fill(path, 10, false);
  tamper(path, sql);
  const auto found = sqlite_journal::open(path);
  REQUIRE_FALSE(found);
  REQUIRE(found.error().code == reason::kind::malformed);
  REQUIRE(found.error().text.find(text) == 0);
}

TEST_CASE("a file that is not a journal, or has another version, is refused and left unchanged") {
  scratch dir;
  const std::string text =
      "This is a text that somebody keeps, and not at all a database of any kind.\n";
  std::ofstream{dir / "text"} << text << text;
  const auto no_database = sqlite_journal::open(dir / "text");
  REQUIRE_FALSE(no_database);
  REQUIRE(no_database.error().code == reason::kind::malformed);
  REQUIRE(no_database.error().text.find("it is not a journal of Troupe") != std::string::npos);
  std::string line;
  std::getline(std::ifstream{dir / "text"}, line);
  REQUIRE(line + "\n" == text);

  tamper(dir / "other", "CREATE TABLE mine (a)");
  const auto other = sqlite_journal::open(dir / "other");
  REQUIRE_FALSE(other);
  REQUIRE(other.error().text.find("not a journal of Troupe") != std::string::npos);

  fill(dir / "newer", 1);
  tamper(dir / "newer", "PRAGMA user_version = 9");
  const auto newer = sqlite_journal::open(dir / "newer");
  REQUIRE_FALSE(newer);
  REQUIRE(newer.error().text.find("has version 9") != std::string::npos);

  REQUIRE_FALSE(sqlite_journal::open(dir / "no/such/directory/journal"));
}

TEST_CASE("a journal of the first release is upgraded with all its entries") {
  scratch dir;
  const auto path = dir / "journal";
  const auto old = harness::first_release_journal();
  std::string rows;
  long long sequence = 0;
  for (const auto& o : old) {
    std::string hex{o.hex};
    std::erase(hex, ' ');
    const auto bytes = bytes_of_hex(hex);
    ++sequence;
    rows += fmt::format(
        "INSERT INTO entries VALUES ({}, {}, x'{}');", sequence,
        static_cast<long long>(entry_checksum(static_cast<std::uint64_t>(sequence), bytes)), hex);
  }
  tamper(path,
         "PRAGMA journal_mode = WAL; PRAGMA application_id = 1414681936; PRAGMA user_version = 1;"
         "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, checksum INTEGER NOT NULL,"
         "                      entry BLOB NOT NULL);" +
             rows);
  std::uint64_t id = 0;
  for (int opened = 0; opened < 2; ++opened) {
    const auto j = must_open_journal(path);
    const auto found = all_of(*j);
    REQUIRE(found);
    REQUIRE(found->size() == old.size() + static_cast<std::size_t>(opened));
    for (std::size_t i = 0; i < old.size(); ++i) CHECK((*found)[i] == old[i].entry);
    CHECK(j->id() != 0);
    CHECK((opened == 0 || j->id() == id));
    id = j->id();
    REQUIRE(j->append(numbered_entry(1)));
  }
  // Put back over the upgraded one, it is not the journal that the witness knows.
  std::filesystem::remove(path);
  tamper(path,
         "PRAGMA application_id = 1414681936; PRAGMA user_version = 1;"
         "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, checksum INTEGER NOT NULL,"
         "                      entry BLOB NOT NULL);" +
             rows);
  CHECK_FALSE(sqlite_journal::open(path));
}

TEST_CASE("a journal with a damaged page is refused") {
  scratch dir;
  const auto path = dir / "journal";
  fill(path, 2000, false);
  {
    std::fstream f{path, std::ios::in | std::ios::out | std::ios::binary};
    f.seekp(4096 * 5);
    const std::string noise(4096, '\x5a');
    f.write(noise.data(), static_cast<std::streamsize>(noise.size()));
  }
  REQUIRE_FALSE(sqlite_journal::open(path));
}

TEST_CASE("append fails when the disk is full, and keeps failing afterwards") {
  scratch dir;
  const auto path = dir / "journal";
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    auto j = sqlite_journal::open(path);
    const rlimit limit{200'000, 200'000};
    if (!j || ::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    std::uint64_t n = 1;
    auto written = (*j)->append(numbered_entry(n));
    while (n < 100'000 && written) written = (*j)->append(numbered_entry(++n));
    if (n == 100'000) ::_exit(2);
    if (written.error().code != reason::kind::unavailable) ::_exit(5);
    const rlimit more{RLIM_INFINITY, 200'000};
    ::setrlimit(RLIMIT_FSIZE, &more);
    const auto full = (*j)->append(numbered_entry(n));
    if (full || full.error().code != reason::kind::unavailable) ::_exit(3);
    // Even with room again, no entry may follow a failed one: the journal would have a gap.
    ::truncate((path + "-wal").c_str(), 0);
    const auto after = (*j)->append(numbered_entry(0));
    ::_exit(!after && after.error().text.find("an earlier write") != std::string::npos ? 0 : 4);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
}

TEST_CASE("a journal whose controller died before its first entry counts as new") {
  scratch dir;
  const auto path = dir / "journal";
  SECTION("before its tables") {
    tamper(path, "PRAGMA journal_mode = WAL");
  }
  SECTION("before its first page") {
    std::ofstream{path};
    std::ofstream{path + "-wal"};
  }
  SECTION("before its witness") {
    fill(path, 0);
    std::filesystem::remove(path + ".witness");
  }
  fill(path, 2);
  CHECK(all_of(*must_open_journal(path))->size() == 2);
}

TEST_CASE("another program's empty database, and a journal without its witness, are refused") {
  scratch dir;
  const auto path = dir / "journal";
  SECTION("a program's") {
    tamper(path, "PRAGMA application_id = 77");
  }
  SECTION("a version") {
    tamper(path, "PRAGMA user_version = 1");
  }
  SECTION("one entry") {
    fill(path, 1);
    std::filesystem::remove(path + ".witness");
  }
  CHECK_FALSE(sqlite_journal::open(path));
}

TEST_CASE("a journal with two ids, or with a changed id, is refused") {
  scratch dir;
  const auto path = dir / "journal";
  const auto* change = GENERATE("INSERT INTO identity SELECT * FROM identity",
                                "UPDATE identity SET checksum = checksum + 1",
                                "UPDATE identity SET journal = journal + 1",
                                "UPDATE identity SET first = 2", "DELETE FROM identity");
  CAPTURE(change);
  fill(path, 3);
  tamper(path, change);
  const auto refused = sqlite_journal::open(path);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text.find("has no id") != std::string::npos);
}

TEST_CASE("the error for a locked journal names its holder as far as the lock file does") {
  scratch dir;
  const auto path = dir / "journal";
  const int other = ::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(::flock(other, LOCK_EX) == 0);
  const auto said = [&] { return sqlite_journal::open(path).error().text; };
  CHECK(said().starts_with("another controller has the journal "));
  REQUIRE(::write(other, std::string(60, '7').data(), 60) == 60);
  CHECK(said().starts_with("another controller (process " + std::string(31, '7') + ") has "));
  ::close(other);
}
