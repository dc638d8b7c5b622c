#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "messages/base/random.hpp"
#include "runtime/host/private_files.hpp"
#include "runtime/journal/sqlite_journal.hpp"
#include "runtime/world.hpp"

// Real files with the damage that disks, users and crashes cause.

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

namespace fs = std::filesystem;

constexpr std::array suffixes{"", "-wal", ".witness"};

journal_entry accepted_job(std::uint64_t n) {
  job_accepted a;
  a.job = n;
  a.request = n * 17;
  a.spec.name = "job " + std::string(n % 90, 'x');
  return a;
}

/// The files of a journal as a crash of its controller leaves them, at a moment of a test's choice.
class crashed_journal {
 public:
  /// Entries 1 to `entries`, in transactions of 1 to 3; after `compact_at` of them a compaction
  /// (that keeps all), if it is not 0.
  explicit crashed_journal(std::uint64_t entries, std::uint64_t compact_at = 0) {
    auto opened = sqlite_journal::open(dir_ / "journal", {.durable = false});
    REQUIRE(opened);
    auto& j = **opened;
    for (std::uint64_t n = 1; n <= entries;) {
      std::vector<journal_entry> batch;
      for (std::uint64_t size = 1 + n % 3; size > 0 && n <= entries; --size, ++n)
        batch.push_back(accepted_job(n));
      written_.insert(written_.end(), batch.begin(), batch.end());
      REQUIRE(j.append(batch));
      if (compact_at != 0 && written_.size() >= compact_at) {
        REQUIRE(j.compact(written_));
        compact_at = 0;
      }
    }
    keep("end");
  }

  /// Copies of the files, into a directory of their own.
  void keep(const std::string& name) {
    fs::create_directories(dir_ / name);
    for (const auto* s : suffixes)
      fs::copy_file(dir_ / ("journal" + std::string{s}), dir_ / (name + "/journal" + s),
                    fs::copy_options::overwrite_existing);
  }
  std::string fresh_copy() {
    fs::remove_all(dir_ / "try");
    fs::copy(dir_ / "end", dir_ / "try");
    return dir_ / "try/journal";
  }
  const std::vector<journal_entry>& written() const { return written_; }

 private:
  scratch dir_;
  std::vector<journal_entry> written_;
};

expected<std::vector<journal_entry>> entries_after_open(const std::string& path,
                                                        bool accept_older = false) {
  auto j = sqlite_journal::open(path, {.durable = false, .accept_older = accept_older});
  if (!j) return refuse(j.error());
  std::vector<journal_entry> found;
  auto ok = (*j)->replay([&](const journal_entry& e) { found.push_back(e); });
  if (!ok) return refuse(ok.error());
  return found;
}

void flip_bit_at(const std::string& path, std::uint64_t bit) {
  std::fstream f{path, std::ios::in | std::ios::out | std::ios::binary};
  f.seekg(static_cast<std::streamoff>(bit / 8));
  const auto byte = static_cast<char>(f.get() ^ (1 << (bit % 8)));
  f.seekp(static_cast<std::streamoff>(bit / 8));
  f.put(byte);
}

std::string damage_one(const std::string& path, random_source& random) {
  const auto file = path + suffixes[random.below(suffixes.size())];
  const auto size = fs::file_size(file);
  switch (random.below(size == 0 ? 1 : 8)) {
    case 0:
      fs::remove(file);
      return file + " was removed";
    case 1:
    case 2: {
      const auto to = random.below(size);
      fs::resize_file(file, to);
      return file + " was cut to " + std::to_string(to) + " of " + std::to_string(size);
    }
    default: {
      const auto bit = random.below(size * 8);
      flip_bit_at(file, bit);
      return file + ": bit " + std::to_string(bit) + " of " + std::to_string(size) + " bytes";
    }
  }
}

void require_refused(const expected<std::vector<journal_entry>>& found, const std::string& words) {
  REQUIRE_FALSE(found);
  INFO(found.error().text);
  CHECK(found.error().text.find(words) != std::string::npos);
  CHECK(found.error().text.find("--accept-older-journal") != std::string::npos);
}

unsigned mode_of(const std::string& path) {
  struct stat s {};
  REQUIRE(::stat(path.c_str(), &s) == 0);
  return s.st_mode & 0777;
}

}  // namespace

TEST_CASE("damage anywhere in a journal's files is refused or loses nothing") {
  random_source random{20};
  std::size_t refused = 0, harmless = 0;
  for (const std::uint64_t compact_at : {0, 25}) {
    crashed_journal j{60, compact_at};
    for (int attempt = 0; attempt < 150; ++attempt) {
      const auto path = j.fresh_copy();
      INFO(damage_one(path, random));
      const auto found = entries_after_open(path);
      if (found) {
        REQUIRE(*found == j.written());
        ++harmless;
      } else {
        INFO(found.error().text);
        CHECK(found.error().text.size() > 40);
        ++refused;
      }
    }
  }
  INFO(refused << " refused, " << harmless << " harmless");
  CHECK(refused > 100);
  CHECK(harmless > 10);  // unused bytes, the older slot of the witness
}

TEST_CASE("opening a damaged journal leaves it unchanged, and it is accepted once it is repaired") {
  crashed_journal j{30};
  const auto path = j.fresh_copy();
  const auto frame = fs::file_size(path + "-wal") / 2;
  flip_bit_at(path + "-wal", frame * 8);
  REQUIRE_FALSE(entries_after_open(path));
  REQUIRE_FALSE(entries_after_open(path));
  flip_bit_at(path + "-wal", frame * 8);
  const auto found = entries_after_open(path);
  REQUIRE(found);
  CHECK(*found == j.written());
}

TEST_CASE(
    "a journal that is missing, empty, another one, or without its WAL or witness is refused") {
  crashed_journal j{40}, other{40};
  j.keep("again");
  SECTION("missing") {
    const auto path = j.fresh_copy();
    fs::remove(path);
    require_refused(entries_after_open(path), "is missing");
    fs::remove(path + "-wal");
    require_refused(entries_after_open(path), "is missing");
  }
  SECTION("emptied") {
    const auto path = j.fresh_copy();
    fs::resize_file(path, 0);
    require_refused(entries_after_open(path), "is empty");
  }
  SECTION("its WAL is gone, and with it all entries") {
    const auto path = j.fresh_copy();
    fs::remove(path + "-wal");
    REQUIRE_FALSE(entries_after_open(path));
  }
  SECTION("another journal in its place") {
    const auto path = j.fresh_copy(), stranger = other.fresh_copy();
    fs::copy_file(stranger, path, fs::copy_options::overwrite_existing);
    fs::copy_file(stranger + "-wal", path + "-wal", fs::copy_options::overwrite_existing);
    require_refused(entries_after_open(path), "not the one of its witness");
  }
  SECTION("its witness is gone") {
    const auto path = j.fresh_copy();
    fs::remove(path + ".witness");
    require_refused(entries_after_open(path), "witness");
  }
}

TEST_CASE("an older copy of the journal is refused, and accepted with a new id on request") {
  scratch dir;
  const auto path = dir / "journal";
  std::uint64_t id = 0;
  {
    auto j = sqlite_journal::open(path);
    REQUIRE(j);
    id = (*j)->id();
    for (std::uint64_t n = 1; n <= 10; ++n) REQUIRE((*j)->append(accepted_job(n)));
  }
  fs::copy_file(path, path + ".backup");
  {
    auto j = sqlite_journal::open(path);
    REQUIRE(j);
    CHECK((*j)->id() == id);
    REQUIRE((*j)->append(accepted_job(11)));
  }
  fs::copy_file(path + ".backup", path, fs::copy_options::overwrite_existing);
  fs::remove(path + "-wal");
  require_refused(entries_after_open(path), "ends with entry 10");
  const auto accepted = entries_after_open(path, true);
  REQUIRE(accepted);
  CHECK(accepted->size() == 10);
  auto j = sqlite_journal::open(path);
  REQUIRE(j);
  CHECK((*j)->id() != id);
  CHECK((*j)->size() == 10);
}

TEST_CASE("an unconfirmed last transaction that a power cut has torn is dropped") {
  scratch dir;
  fs::create_directories(dir / "cut");
  const auto path = dir / "journal", cut = dir / "cut/journal";
  auto j = sqlite_journal::open(path);
  REQUIRE(j);
  for (std::uint64_t n = 1; n <= 10; ++n) REQUIRE((*j)->append(accepted_job(n)));
  fs::copy_file(path + ".witness", cut + ".witness");
  REQUIRE((*j)->append(std::vector{accepted_job(11), accepted_job(12)}));
  fs::copy_file(path, cut);
  fs::copy_file(path + "-wal", cut + "-wal");
  fs::resize_file(cut + "-wal", fs::file_size(cut + "-wal") - 100);
  const auto found = entries_after_open(cut);
  INFO((found ? std::string{} : found.error().text));
  REQUIRE(found);
  CHECK(found->size() == 10);
}

TEST_CASE("a flipped bit in the middle of the WAL is refused, even if the witness is much older") {
  scratch dir;
  fs::create_directories(dir / "cut");
  const auto path = dir / "journal", cut = dir / "cut/journal";
  auto j = sqlite_journal::open(path);
  REQUIRE(j);
  REQUIRE((*j)->append(accepted_job(1)));
  fs::copy_file(path + ".witness", cut + ".witness");  // what a power cut may leave of it
  for (std::uint64_t n = 2; n <= 20; ++n) REQUIRE((*j)->append(accepted_job(n)));
  fs::copy_file(path, cut);
  fs::copy_file(path + "-wal", cut + "-wal");
  flip_bit_at(cut + "-wal", fs::file_size(cut + "-wal") / 2 * 8);
  require_refused(entries_after_open(cut), "later ones are intact");
}

TEST_CASE("a batch is appended as a whole, and a compacted journal does not keep growing") {
  scratch dir;
  const auto path = dir / "journal";
  {
    auto j = sqlite_journal::open(path);
    REQUIRE(j);
    for (std::uint64_t n = 1; n <= 700; ++n) {  // further than a checkpoint
      REQUIRE((*j)->append(accepted_job(n)));
      if (n == 600) CHECK(fs::file_size(path + "-wal") < 3'000'000);
    }
    REQUIRE((*j)->compact(std::vector{accepted_job(1), accepted_job(2)}));
    CHECK((*j)->size() == 2);
    CHECK(fs::file_size(path + "-wal") == 0);
    REQUIRE((*j)->append(accepted_job(3)));
    CHECK((*j)->size() == 3);
  }
  const auto size = fs::file_size(path);
  for (int round = 0; round < 5; ++round) {
    auto j = sqlite_journal::open(path);
    REQUIRE(j);
    std::vector<journal_entry> batch;
    for (std::uint64_t n = 1; n <= 500; ++n) batch.push_back(accepted_job(n));
    REQUIRE((*j)->append(batch));
    REQUIRE((*j)->compact(std::vector{accepted_job(1), accepted_job(2), accepted_job(3)}));
  }
  const auto found = entries_after_open(path);
  REQUIRE(found);
  CHECK(*found == std::vector{accepted_job(1), accepted_job(2), accepted_job(3)});
  CHECK(fs::file_size(path) <= size + 200'000);  // the file does not grow for ever
}

TEST_CASE(
    "a journal whose file is deleted or replaced under its controller accepts no more entries") {
  scratch dir;
  const auto path = dir / "journal";
  const std::string file = GENERATE("", "-wal", ".witness", ".lock");
  const bool replaced = GENERATE(false, true);
  CAPTURE(file, replaced);
  auto j = sqlite_journal::open(path);
  REQUIRE(j);
  REQUIRE((*j)->append(accepted_job(1)));
  REQUIRE((*j)->check());
  fs::rename(path + file, path + file + ".away");
  if (replaced) fs::copy_file(path + file + ".away", path + file);
  const auto said = GENERATE(true, false) ? (*j)->check() : (*j)->append(accepted_job(2));
  REQUIRE_FALSE(said);
  CHECK(said.error().text.find(replaced ? "was replaced" : "was deleted") != std::string::npos);
  CHECK_FALSE((*j)->append(accepted_job(3)));
}

TEST_CASE("only the owner can access a journal's files, even if they were open to all before") {
  scratch dir;
  const auto path = dir / "journal";
  const auto all_private = [&] {
    for (const char* s : {"", "-wal", ".witness", ".lock"}) {
      INFO(s);
      CHECK(mode_of(path + s) == 0600);
    }
  };
  {
    auto j = sqlite_journal::open(path);
    REQUIRE((*j)->append(accepted_job(1)));
    all_private();
  }
  for (const char* s : {"", "-wal", ".witness", ".lock"}) ::chmod((path + s).c_str(), 0644);
  auto j = sqlite_journal::open(path);
  REQUIRE(j);
  REQUIRE((*j)->append(accepted_job(2)));
  all_private();
}

TEST_CASE("a state directory is closed to other users, and refused if it is another user's") {
  scratch dir;
  REQUIRE(prepare_private_directory(dir / "new/state"));
  CHECK(mode_of(dir / "new/state") == 0700);
  fs::create_directory(dir / "open");
  ::chmod((dir / "open").c_str(), 0755);
  REQUIRE(prepare_private_directory(dir / "open"));
  CHECK(mode_of(dir / "open") == 0700);
  dir.write("file", "");
  CHECK_FALSE(prepare_private_directory(dir / "file"));
  fs::create_directory(dir / "theirs");
  if (::chown((dir / "theirs").c_str(), 12345, 12345) != 0) {
    WARN("not root: cannot make another user's directory");
    return;
  }
  const auto theirs = prepare_private_directory(dir / "theirs");
  REQUIRE_FALSE(theirs);
  CHECK(theirs.error().text.find("belongs to user 12345") != std::string::npos);
}
