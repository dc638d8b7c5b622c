#include "messages/base/untrusted_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "harness/scratch.hpp"

using namespace troupe;
using troupe::test::scratch;

TEST_CASE("a file is read from an offset or from its tail, and is empty beyond its end") {
  const scratch room;
  const auto file = room.write("log", "0123456789");
  const auto piece = [&](std::uint64_t offset, std::size_t max_bytes) {
    const auto p = read_piece(file, offset, max_bytes);
    REQUIRE(p);
    return std::pair{p->offset, p->bytes};
  };
  CHECK(piece(0, 100) == std::pair<std::uint64_t, std::string>{0, "0123456789"});
  CHECK(piece(3, 4) == std::pair<std::uint64_t, std::string>{3, "3456"});
  CHECK(piece(8, 4) == std::pair<std::uint64_t, std::string>{8, "89"});
  CHECK(piece(10, 4) == std::pair<std::uint64_t, std::string>{10, ""});
  CHECK(piece(20, 4) == std::pair<std::uint64_t, std::string>{10, ""});
  const auto tail = read_tail(file, 4);
  REQUIRE(tail);
  CHECK(tail->offset == 6);
  CHECK(tail->bytes == "6789");
  CHECK(read_tail(file, 100)->bytes == "0123456789");
  CHECK(append_to(file, "ab"));
  CHECK(read_tail(file, 3)->bytes == "9ab");
  CHECK(append_to(room / "new", "first"));
  CHECK(read_tail(room / "new", 100)->bytes == "first");
}

TEST_CASE(
    "a FIFO, a symbolic link and a directory are neither read nor written, and do not block") {
  const scratch room;
  const auto file = room.write("file", "secret");
  REQUIRE(::mkfifo((room / "fifo").c_str(), 0600) == 0);
  REQUIRE(::symlink(file.c_str(), (room / "link").c_str()) == 0);
  for (const char* name : {"fifo", "link", "."}) {
    INFO(name);
    const auto read = read_piece(room / name, 0, 10);
    REQUIRE_FALSE(read);
    CHECK(read.error().code == reason::kind::invalid);
    CHECK_FALSE(read_tail(room / name, 10));
    CHECK_FALSE(append_to(room / name, "x"));
  }
  CHECK(read_tail(file, 10)->bytes == "secret");
  const auto none = read_piece(room / "none", 0, 10);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == reason::kind::unknown);
}

TEST_CASE(
    "a file above its disk limit drops its older half, and offsets into the newer half stay "
    "valid") {
  const scratch room;
  constexpr std::size_t size = 4 << 20;
  const auto file = room.write("log", std::string(size - 3, 'x') + "end");
  REQUIRE(limit_disk_use(file, size * 2));
  CHECK(read_piece(file, 0, 1)->offset == 0);  // it is within its limit
  const int probe = ::open(room.write("probe", std::string(1 << 16, 'x')).c_str(), O_WRONLY);
  const bool has_holes =
      ::fallocate(probe, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 16) == 0;
  ::close(probe);
  if (!has_holes) return;
  CHECK(limit_disk_use(room / "none", 1));
  CHECK(limit_disk_use(file, 1 << 20));
  CHECK(std::filesystem::file_size(file) == size);
  const auto first = read_piece(file, 0, 1 << 20);
  REQUIRE(first);
  CHECK(first->offset == size - (1 << 19));  // half of the limit is left
  CHECK(first->bytes.size() == 1 << 19);
  const auto inside = read_piece(file, size - 10, 1 << 20);
  REQUIRE(inside);
  CHECK(inside->offset == size - 10);
  CHECK(inside->bytes.size() == 10);
  const auto behind = read_piece(file, size - (1 << 19) - 5, 3);  // in the hole, just before data
  REQUIRE(behind);
  CHECK(behind->offset == size - (1 << 19));
  CHECK(behind->bytes == "xxx");
  CHECK(read_tail(file, 3)->bytes == "end");
  struct stat s {};
  REQUIRE(::stat(file.c_str(), &s) == 0);
  CHECK(s.st_blocks * 512 <= 1 << 20);
  CHECK(limit_disk_use(file, 3 << 18));  // it is below that now
  CHECK(read_piece(file, 0, 1)->offset == size - (1 << 19));
}

TEST_CASE("a file is read whole within its limit, and not through what is no file") {
  const scratch room;
  const auto file = room.write("file", "0123456789");
  CHECK(read_file(file, 10) == std::string{"0123456789"});
  CHECK(read_file(file, 9).error().text == file + ": found 10 bytes, expected at most 9");
  CHECK(read_file("/dev/zero", 10).error().text ==
        "/dev/zero: is a device, expected a regular file");
  CHECK(read_file(room.path(), 10).error().text ==
        room.path() + ": is a directory, expected a regular file");
  REQUIRE(::mkfifo((room / "fifo").c_str(), 0600) == 0);
  CHECK(read_file(room / "fifo", 10).error().text ==
        room / "fifo" + ": is a fifo, expected a regular file");
  REQUIRE(::symlink(file.c_str(), (room / "link").c_str()) == 0);
  CHECK(read_file(room / "link", 10) == std::string{"0123456789"});
  REQUIRE(::symlink((room / "fifo").c_str(), (room / "to-fifo").c_str()) == 0);
  CHECK(read_file(room / "to-fifo", 10).error().code == reason::kind::invalid);
}

TEST_CASE("a file that has become shorter is an error when it is read") {
  const scratch room;
  const auto file = room.write("file", "0123456789");
  const auto opened = untrusted_file::open(file);
  REQUIRE(opened);
  std::byte four[4];
  CHECK(opened->read(6, four));
  std::filesystem::resize_file(file, 8);
  CHECK(opened->read(4, four));
  const auto cut = opened->read(6, four);
  REQUIRE_FALSE(cut);
  CHECK(cut.error().text == file + ": has become shorter: found 8 bytes, expected at least 10");
}

TEST_CASE("lines are read across blocks, and a line longer than the limit is an error") {
  const scratch room;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += std::to_string(i) + '\n';
  const auto lines_of = [&](const std::string& of, std::size_t limit) {
    line_reader from{std::move(*untrusted_file::open(room.write("lines", of))), limit};
    int count = 0;
    for (;;) {
      const auto line = from.next();
      if (!line) return std::pair{count, line.error().text};
      if (!*line) return std::pair{count, std::string{}};
      CHECK(**line == std::to_string(count++));
    }
  };
  CHECK(lines_of(text + "no end", 10) == std::pair{20'000, std::string{}});
  CHECK(lines_of(text + std::string(100, 'x') + '\n', 10) ==
        std::pair{20'000, room / "lines" + ": line 20001 has more than 10 bytes"});
  CHECK(lines_of(text + std::string(1 << 20, '\0'), 10).first == 20'000);
}
