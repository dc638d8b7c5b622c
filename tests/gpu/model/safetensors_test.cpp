#include "gpu/model/safetensors.hpp"

#include <fmt/format.h>

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

/// A header's entry for a list of 32-bit floats, or of integers.
std::string tensor(const std::string& name, std::uint64_t begin, std::uint64_t end,
                   const std::string& dtype = "F32") {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name, dtype,
                     (end - begin) / 4, begin, end);
}

/// The refusal of a file with these tensors and `bytes` bytes of data; empty: it is accepted.
std::string refused(const std::vector<std::string>& tensors, std::size_t bytes) {
  return refused(file_of(fmt::format("{{{}}}", fmt::join(tensors, ",")), std::string(bytes, '\0')));
}

template <class Word>
std::string text_of(const std::vector<Word>& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(Word)};
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
  const std::uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff}, brains[] = {0x3f80, 0xc000};
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
  CHECK(h == std::vector<float>{1, -2, 0x1p-24f, 65504});
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
            " has a header of 100 bytes, after 100000000 of other files of its folder, expected at "
            "most 100000000 together");
  CHECK_FALSE(safetensors::open(write("large", max_header_bytes + 1)));
  const std::vector<std::filesystem::path> many(max_safetensors_files + 1, more);
  const auto too_many = safetensors::open_all(many);
  REQUIRE_FALSE(too_many);
  CHECK(too_many.error().text ==
        dir.path() + ": found 10001 *.safetensors, expected at most 10000");
}

TEST_CASE("tensors that overlap, leave a hole or end before the file does are refused") {
  using Catch::Contains;
  const auto a = tensor("a", 0, 8), b = tensor("b", 8, 16), c = tensor("c", 16, 24);
  CHECK(refused({a, b, c}, 24) == "");
  CHECK(refused({c, a, b}, 24) == "");  // in any order of their names
  CHECK(refused({tensor("none", 8, 8), b, a, c}, 24) == "");
  CHECK(refused(std::vector<std::string>{}, 0) == "");
  CHECK_THAT(refused({a, tensor("b", 0, 8), c}, 24),
             Contains("places 'b' at byte 0, expected byte 8: "));
  CHECK_THAT(refused({a, tensor("b", 4, 16), c}, 24), Contains("places 'b' at byte 4"));
  CHECK_THAT(refused({a, c}, 24), Contains("places 'c' at byte 16, expected byte 8: "));
  CHECK_THAT(refused({b, c}, 24), Contains("places 'b' at byte 8, expected byte 0: "));
  CHECK_THAT(refused({a, b, c}, 28), Contains("has 28 bytes of data, expected 24: "));
  CHECK_THAT(refused({a, b, c}, 23), Contains("places 'c' at bytes 16 to 24 of 23"));
  CHECK_THAT(refused(std::vector<std::string>{}, 4), Contains("has 4 bytes of data"));
  CHECK_THAT(refused({a, R"("b":{"dtype":"F32","shape":[2],"data_offsets":[16,8]})"}, 16),
             Contains("places 'b' at bytes 16 to 8"));
  // One that is not read has its place, too.
  CHECK_THAT(refused({tensor("a", 0, 8, "I32"), tensor("b", 4, 12)}, 12),
             Contains("places 'b' at byte 4"));
  CHECK_THAT(refused({tensor("a", 0, 8, "I64")}, 8), Contains("whose shape needs 16"));
}

TEST_CASE("a header with a name twice, or that is not one object of texts, is refused") {
  using Catch::Contains;
  const auto a = tensor("a", 0, 4), b = tensor("b", 4, 8);
  CHECK_THAT(refused({a, b, a}, 8), Contains("found the name 'a' twice"));
  CHECK_THAT(refused({a, tensor("\\u0061", 4, 8)}, 8), Contains("found the name 'a' twice"));
  CHECK_THAT(refused({R"("__metadata__":{"x":"1"})", R"("__metadata__":{"x":"1"})", a}, 4),
             Contains("found the name '__metadata__' twice"));
  CHECK_THAT(refused({R"("a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]})"}, 4),
             Contains("found the name 'dtype' twice"));
  CHECK(refused({R"("__metadata__":{"dtype":"x"})", a}, 4) == "");  // in another object
  CHECK_THAT(refused({R"("__metadata__":{"x":1})", a}, 4),
             Contains("has metadata 'x' that is not a text"));
  CHECK_THAT(refused(file_of(" {" + a + "}", "1234")), Contains("does not begin with '{'"));
  CHECK(refused(file_of("{" + a + "}   ", "1234")) == "");
}

TEST_CASE("a number that is not finite is refused with its tensor, file and position") {
  using Catch::Contains;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(),
                  infinity = std::numeric_limits<float>::infinity();
  const auto reading = [](const std::string& dtype, std::size_t n, const std::string& data) {
    const auto header =
        fmt::format(R"({{"some.weight":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})",
                    dtype, n, data.size());
    const auto s = test::loaded(
        safetensors::open(test::temporary("values.safetensors", file_of(header, data))));
    std::vector<float> out(n);
    const auto ok = s.read(*s.find("some.weight"), out);
    return ok ? std::string{} : ok.error().text;
  };
  const std::string sentence = "values.safetensors: 'some.weight': found ";
  std::vector<float> all(600'000, 3e38f);
  CHECK(reading("F32", all.size(), text_of(all)) == "");
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{4095}, std::size_t{262'144}, all.size() - 1})
    for (const float wrong : {nan, infinity, -infinity}) {
      auto damaged = all;
      damaged[at] = wrong;
      CHECK_THAT(
          reading("F32", all.size(), text_of(damaged)),
          Contains(sentence + fmt::format("{} at value {}, expected finite numbers", wrong, at)));
    }
  using words = std::vector<std::uint16_t>;
  CHECK(reading("F16", 2, text_of(words{0x7bff, 0xfbff})) == "");
  CHECK_THAT(reading("F16", 2, text_of(words{0, 0x7c00})), Contains(sentence + "inf at value 1"));
  CHECK_THAT(reading("F16", 2, text_of(words{0x7e00, 0})), Contains(sentence + "nan at value 0"));
  CHECK(reading("BF16", 2, text_of(words{0x7f7f, 0xff7f})) == "");
  CHECK_THAT(reading("BF16", 2, text_of(words{0, 0xff80})), Contains(sentence + "-inf at value 1"));
  CHECK_THAT(reading("BF16", 2, text_of(words{0, 0x7fc0})), Contains(sentence + "nan at value 1"));
}
