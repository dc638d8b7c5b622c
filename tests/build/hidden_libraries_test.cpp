#include <catch2/catch.hpp>
#include <regex>
#include <sstream>

#include "build/configured.hpp"

// TROUPE_ONLY=gpu, for machines that have a GPU and few libraries.

using namespace troupe::test;

TEST_CASE("the GPU part configures without the libraries of the rest") {
  const auto part = configure_hidden("hidden");
  INFO(part.result.said);
  CHECK(part.result.status == 0);
  // They are hidden: the whole of Troupe misses the first of them.
  const auto whole = configure_hidden("hidden-whole", true);
  INFO(whole.result.said);
  CHECK(whole.result.status != 0);
  CHECK(whole.result.said.find("msgpack.hpp") != std::string::npos);
}

TEST_CASE("an unknown part is refused") {
  const auto r = configure("unknown", "-DTROUPE_ONLY=cpu", true).result;
  CHECK(r.status != 0);
  CHECK(r.said.find("TROUPE_ONLY is 'cpu'; it can be gpu, or empty for everything") !=
        std::string::npos);
}

TEST_CASE("the GPU part builds without the libraries of the rest and passes its tests",
          "[.][alone]") {
  const auto part = configure_hidden("alone");
  INFO(part.result.said);
  REQUIRE(part.result.status == 0);
  const auto built = run("ninja -C '" + part.folder + "' -j ${TROUPE_JOBS:-$(nproc)}");
  INFO(built.said);
  REQUIRE(built.status == 0);

  // Headers that no compiler could be kept from finding: none was read, and none of the libraries
  // is linked.
  static const std::regex of_the_rest{
      "/(caf|boost|coin|CLI|prometheus|sodium)/|zmq|msgpack|sqlite3|xxh|libcaf|libCbc|libsodium"};
  const auto used = run("ninja -C '" + part.folder + "' -t deps; cd '" + part.folder +
                        "' && ldd gpu_tests bench_gpu_training");
  REQUIRE(used.said.find("/fmt/format.h") != std::string::npos);
  REQUIRE(used.said.find("libstdc++") != std::string::npos);
  std::istringstream lines{used.said};
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK_FALSE(std::regex_search(line, of_the_rest));
  }

  const auto tested = run("ctest --test-dir '" + part.folder + "' -LE slow --output-on-failure");
  INFO(tested.said);
  CHECK(tested.status == 0);
  CHECK(tested.said.find(" gpu ...") != std::string::npos);
}
