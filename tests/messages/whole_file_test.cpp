#include "messages/base/whole_file.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "harness/scratch.hpp"

using namespace troupe;

namespace {

std::string contents(const std::string& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

unsigned mode_of(const std::string& file) {
  struct stat s {};
  REQUIRE(::stat(file.c_str(), &s) == 0);
  return s.st_mode & 07777;
}

}  // namespace

TEST_CASE("a file is replaced as a whole, with the given permissions") {
  const test::scratch dir;
  const auto file = dir / "file";
  REQUIRE(write_whole_file(file, "a longer first text", 0600));
  CHECK(mode_of(file) == 0600);
  const std::string one = "one", two = "two";
  REQUIRE(write_whole_file(file, {std::as_bytes(std::span{one}), {}, std::as_bytes(std::span{two})},
                           0644));
  CHECK(contents(file) == "onetwo");
  CHECK(mode_of(file) == 0644);
  const auto before = ::umask(077);
  REQUIRE(write_whole_file(file, "private"));
  ::umask(before);
  CHECK(mode_of(file) == 0600);
  CHECK_FALSE(std::filesystem::exists(file + ".new"));
}

TEST_CASE("a file that cannot be replaced stays unchanged, and the error names it") {
  const test::scratch dir;
  const auto file = dir.write("file", "old");
  std::filesystem::create_directories(file + ".new/in the way");
  const auto blocked = write_whole_file(file, "new");
  REQUIRE_FALSE(blocked);
  CHECK(blocked.error().text.starts_with(file + ": cannot be written: "));
  CHECK(contents(file) == "old");
  // A half-written file is not left behind.
  std::filesystem::create_directories(dir / "directory/full");
  CHECK_FALSE(write_whole_file(dir / "directory", "new"));
  CHECK_FALSE(std::filesystem::exists(dir / "directory.new"));
}

TEST_CASE("a file that is written in parts is replaced after the last part") {
  const test::scratch dir;
  const auto file = dir.write("file", "old");
  const auto part = [](const std::string& s) { return std::as_bytes(std::span{s}); };
  CHECK_FALSE(write_whole_file(file, [&](const byte_sink& to) { return to(part("ne")) && false; }));
  CHECK(contents(file) == "old");
  CHECK_FALSE(std::filesystem::exists(file + ".new"));
  CHECK(
      write_whole_file(file, [&](const byte_sink& to) { return to(part("ne")) && to(part("w")); }));
  CHECK(contents(file) == "new");
}

TEST_CASE("a symbolic link in the place of the temporary file is not followed") {
  const test::scratch dir;
  const auto victim = dir.write("victim", "untouched");
  std::filesystem::create_symlink(victim, dir / "file.new");
  CHECK_FALSE(write_whole_file(dir / "file", "text"));
  CHECK(contents(victim) == "untouched");
}
