#include "gpu/model/safetensors.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "harness/files.hpp"
#include "harness/scratch.hpp"

using namespace troupe;
using namespace troupe::gpu;

namespace {

std::string file_of(std::string header, const std::string& data) {
  const std::uint64_t n = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &n, 8);
  return bytes + header + data;
}

std::string refused(const std::string& bytes) {
  const auto s = safetensors::open(test::temporary("bad.safetensors", bytes));
  return s ? "" : s.error().text;
}

}  // namespace

TEST_CASE("a safetensors file is read as it was written") {
  const auto file = test::temporary_folder() / "good.safetensors";
  const std::vector<float> a{1, 2, 3, 4, 5, 6}, b{-1};
  CHECK(write_safetensors(file, {{"a", {2, 3}, a}, {"b", {1}, b}}, {{"iteration", "7"}}));
  const auto s = test::loaded(safetensors::open(file));
  CHECK(s.iteration() == "7");
  REQUIRE(s.find("a"));
  CHECK(s.find("a")->shape == std::vector<std::uint64_t>{2, 3});
  std::vector<float> again(6), once(1);
  CHECK(s.read(*s.find("a"), again));
  CHECK(s.read(*s.find("b"), once));
  CHECK(again == a);
  CHECK(once == b);
  CHECK(s.find("c") == nullptr);
  CHECK_FALSE(std::filesystem::exists(file.string() + ".new"));
}

TEST_CASE("both kinds of 16-bit floats are converted to single precision") {
  const std::uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7c00}, brains[] = {0x3f80, 0xc000};
  std::string data(12, '\0');
  std::memcpy(data.data(), halves, 8);
  std::memcpy(data.data() + 8, brains, 4);
  const auto file = test::temporary(
      "halves.safetensors", file_of(R"({"h":{"dtype":"F16","shape":[4],"data_offsets":[0,8]},)"
                                    R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]}})",
                                    data));
  const auto s = test::loaded(safetensors::open(file));
  std::vector<float> h(4), b(2);
  CHECK(s.read(*s.find("h"), h));
  CHECK(s.read(*s.find("b"), b));
  CHECK(h == std::vector<float>{1, -2, 0x1p-24f, std::numeric_limits<float>::infinity()});
  CHECK(b == std::vector<float>{1, -2});
}

TEST_CASE("a file that is not a safetensors file is refused with a sentence") {
  using Catch::Contains;
  CHECK_THAT(refused(""), Contains("too short"));
  CHECK_THAT(refused("abc"), Contains("too short"));
  CHECK_THAT(refused(std::string(64, '\xff')), Contains("is truncated"));
  CHECK_THAT(refused(file_of("hello", "")), Contains("not a JSON object in its header"));
  CHECK_THAT(refused(file_of("[1]", "")), Contains("not a JSON object in its header"));
  CHECK_THAT(refused(file_of(std::string(5'000'000, '['), "")), Contains("5000000 levels"));
  CHECK_THAT(refused(file_of("{\"a\":[" + std::string(4'000'001, ',') + "]}", "")),
             Contains("4000004 values"));
  CHECK_THAT(refused(file_of(R"({"a":3})", "")), Contains("no dtype"));
  CHECK_THAT(refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234")),
             Contains("bytes 0 to 8 of 4"));
  CHECK_THAT(refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234")),
             Contains("shape needs 8"));
  CHECK_THAT(refused(file_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],)"
                             R"("data_offsets":[0,4]}})",
                             "1234")),
             Contains("invalid shape"));
  CHECK_THAT(refused(file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234")),
             Contains("invalid shape"));
  const auto none = safetensors::open(test::temporary_folder() / "nothing");
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().text, Contains("cannot be opened"));
}

TEST_CASE("a directory that does not exist is refused with a sentence") {
  const auto written = write_safetensors(test::temporary_folder() / "no" / "such", {}, {});
  REQUIRE_FALSE(written);
  CHECK_THAT(written.error().text, Catch::Contains("cannot be written"));
}

TEST_CASE("a safetensors file that becomes shorter is an error when a tensor is read") {
  const auto file = test::temporary_folder() / "cut.safetensors";
  const std::vector<float> a{1, 2, 3, 4};
  REQUIRE(write_safetensors(file, {{"a", {4}, a}}, {}));
  const auto s = test::loaded(safetensors::open(file));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  std::vector<float> again(4);
  const auto cut = s.read(*s.find("a"), again);
  REQUIRE_FALSE(cut);
  CHECK_THAT(cut.error().text, Catch::Contains("has become shorter"));
}

TEST_CASE("a folder's files are limited in number, and their headers in their sum") {
  using Catch::Contains;
  const test::scratch dir;
  const auto tensor = std::string{R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})"};
  const auto write = [&](const std::string& name, std::uint64_t header_bytes) {
    auto header = "{" + tensor + ",\"__metadata__\":{\"x\":\"";
    header.resize(header_bytes - 3, 'x');
    return std::filesystem::path{dir.write(name, file_of(header + "\"}}", "1234"))};
  };
  const auto half = write("half", max_header_bytes / 2), rest = write("rest", max_header_bytes / 2),
             more = write("more", 100);
  const auto whole = safetensors::open_all({half, rest});
  REQUIRE(whole);
  CHECK(whole->at(1).find("a"));
  const auto beyond = safetensors::open_all({half, rest, more});
  REQUIRE_FALSE(beyond);
  CHECK(beyond.error().text ==
        more.string() +
            " has a header of 100 bytes, after 67108864 of other files of its folder, expected at "
            "most 67108864 together");
  CHECK_FALSE(safetensors::open(write("large", max_header_bytes + 1)));
  const std::vector<std::filesystem::path> many(max_safetensors_files + 1, more);
  const auto too_many = safetensors::open_all(many);
  REQUIRE_FALSE(too_many);
  CHECK(too_many.error().text ==
        dir.path() + ": found 10001 *.safetensors, expected at most 10000");
}
