#include <catch2/catch.hpp>

#include <fstream>

#include "golden.hpp"
#include "harness/source_dir.hpp"
#include "third_format.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct recorded_bytes {
  std::string name;
  std::vector<std::byte> bytes;
};

std::string path_of(const char* file) {
  return test::source_dir() + "/tests/messages/recorded/" + file;
}

/// Lines of a name, a colon and the bytes.
std::vector<recorded_bytes> read(const char* file) {
  std::vector<recorded_bytes> all;
  std::ifstream in{path_of(file)};
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(": ");
    all.push_back({line.substr(0, colon), from_hex(line.substr(colon + 2))});
  }
  return all;
}

}  // namespace

TEST_CASE("the recorded entries of a journal of version 3 are read") {
  const auto expected = entries_of_third_format();
  const auto recorded = read("journal_3.txt");
  REQUIRE(recorded.size() == expected.size());
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    INFO(recorded[i].name);
    CHECK(recorded[i].name == expected[i].first);
    const auto found = decode_entry(recorded[i].bytes);
    if (!found) FAIL(found.error().text);
    CHECK(*found == expected[i].second);
  }
}

TEST_CASE("the recorded frames of protocol versions 3 and 4 are refused with both versions") {
  const int version = GENERATE(3, 4);
  const auto recorded = read(version == 3 ? "wire_3.txt" : "wire_4.txt");
  REQUIRE_FALSE(recorded.empty());
  for (const auto& frame : recorded) {
    INFO(frame.name);
    const auto found = decode(frame.bytes);
    REQUIRE_FALSE(found);
    CHECK(found.error().code == reason::kind::refused);
    CHECK(found.error().text == "The message is of protocol version " + std::to_string(version) +
                                    "; this side speaks version 5.");
  }
}
