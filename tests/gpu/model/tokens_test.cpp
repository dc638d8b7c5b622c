#include "gpu/model/tokens.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "gpu/pipeline.hpp"
#include "harness/files.hpp"
#include "text/tokens/open_tokenizer.hpp"
#include "text/tokens/tokenizer.hpp"

using namespace troupe;
using namespace troupe::gpu;
using Catch::Contains;

namespace {

model reader(std::uint32_t sequence, std::uint32_t vocabulary = 256) {
  auto m = test::small_model();
  m.sequence = sequence;
  m.vocabulary = vocabulary;
  return m;
}

std::vector<std::uint32_t> numbers(const payload& p) {
  std::vector<std::uint32_t> v(p.bytes().size() / 4);
  std::memcpy(v.data(), p.bytes().data(), p.bytes().size());
  return v;
}

std::uint32_t token(const token_data& d, std::uint64_t i) {
  std::uint32_t t = 0;
  REQUIRE(d.read(i, {&t, 1}));
  return t;
}

std::string utf8(unsigned c) {
  if (c < 128) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
}

std::string llm_c_header(std::uint32_t magic, std::uint32_t version, std::uint32_t count) {
  const std::uint32_t numbers[256] = {magic, version, count};
  return {reinterpret_cast<const char*>(numbers), sizeof numbers};
}

template <class Word>
std::string bytes_of(const std::vector<Word>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Word)};
}

/// A vocabulary of all bytes, "he", "ll", "hell", " w", "ell" and the end of a text.
std::filesystem::path small_vocabulary() {
  std::string json = "{";
  unsigned next = 256;
  for (unsigned b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const auto c = printable ? b : next++;
    json += (c == '"' || c == '\\' ? "\"\\" : "\"") + utf8(c) + "\":" + std::to_string(b) + ",";
  }
  json += "\"he\":256,\"ll\":257,\"hell\":258,\"\xC4\xA0w\":259,\"ell\":260,\"<|endoftext|>\":261}";
  test::temporary("words/vocab.json", json);
  return test::temporary("words/merges.txt", "#version: 0.2\nh e\nl l\nhe ll\n\xC4\xA0 w\ne ll\n")
      .parent_path();
}

}  // namespace

TEST_CASE("a text's tokens are its bytes, and its targets are the bytes that follow") {
  const auto file = test::temporary("data.txt", "The quick brown fox jumps over the lazy dog.");
  const auto d = test::loaded(token_data::open(file, {}, reader(8)));
  CHECK(d.size() == 44);
  CHECK(token(d, 0) == 'T');
  const auto b = test::loaded(d.sample(1, 2, 3, 5));
  const auto in = numbers(b.tokens), out = numbers(b.targets);
  REQUIRE(in.size() == 40);
  REQUIRE(out.size() == 40);
  for (std::size_t row = 0; row < 5; ++row)
    for (std::size_t i = 0; i + 1 < 8; ++i) CHECK(in[row * 8 + i + 1] == out[row * 8 + i]);
}

TEST_CASE("a sample depends only on seed, iteration and its index in the global batch") {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i) + " ";
  const auto d =
      test::loaded(token_data::open(test::temporary("numbers.txt", text), {}, reader(32)));
  const auto of = [&](std::uint64_t seed, std::uint64_t iteration, std::uint64_t index) {
    return numbers(test::loaded(d.sample(seed, iteration, index, 1)).tokens);
  };
  CHECK(of(1, 1, 0) == of(1, 1, 0));
  const std::set<std::vector<std::uint32_t>> all{of(1, 1, 0), of(2, 1, 0), of(1, 2, 0),
                                                 of(1, 1, 1), of(1, 1, 2), of(1, 0, 1)};
  CHECK(all.size() == 6);
  // However the samples 0 to 7 are cut.
  std::vector<std::uint32_t> one_by_one, by_threes;
  for (std::uint64_t i = 0; i < 8; ++i)
    for (const auto t : of(1, 1, i)) one_by_one.push_back(t);
  for (const auto& [first, rows] : {std::pair{0U, 3U}, {3U, 3U}, {6U, 2U}})
    for (const auto t : numbers(test::loaded(d.sample(1, 1, first, rows)).tokens))
      by_threes.push_back(t);
  CHECK(one_by_one == by_threes);
}

TEST_CASE("a file of minimal length has one window: all of it") {
  const auto d =
      test::loaded(token_data::open(test::temporary("short.txt", "abcdefghi"), {}, reader(8)));
  CHECK(numbers(test::loaded(d.sample(7, 7, 7, 1)).tokens)[0] == 'a');
  CHECK(numbers(test::loaded(d.sample(7, 7, 7, 1)).targets)[7] == 'i');
}

TEST_CASE("files of 16-bit and 32-bit tokens, and llm.c's, are read as tokens") {
  const std::uint16_t half[] = {1, 50000, 3, 4};
  const std::uint32_t full[] = {1, 70000, 3, 4};
  const auto with_header = llm_c_header(20240520, 1, 4);
  const std::string halves{reinterpret_cast<const char*>(half), sizeof half};
  const auto open = [](const std::string& name, const std::string& bytes) {
    return test::loaded(token_data::open(test::temporary(name, bytes), {}, reader(3, 100000)));
  };
  CHECK(token(open("a.bin", halves), 1) == 50000);
  CHECK(open("b.bin", with_header + halves).size() == 4);
  CHECK(token(open("b.bin", with_header + halves), 1) == 50000);
  CHECK(token(open("c.u32", {reinterpret_cast<const char*>(full), sizeof full}), 1) == 70000);
}

TEST_CASE("llm.c's files are read as their header says, or refused with what was found") {
  std::vector<std::uint16_t> half;
  std::vector<std::uint32_t> full;
  for (std::uint32_t i = 0; i < 100; ++i) {
    half.push_back(static_cast<std::uint16_t>(i * 400));
    full.push_back(i * 1200);
  }
  struct row {
    std::uint32_t magic, version, count;
    std::string data, refusal;
  };
  const auto halves = bytes_of(half), fulls = bytes_of(full);
  const std::string behind = " bytes behind llm.c's header, expected ";
  const std::vector<row> all{
      {20240520, 1, 100, halves, ""},
      {20240520, 1, 99, halves, "200" + behind + "198: it counts 99 16-bit tokens"},
      {20240520, 1, 101, halves, "200" + behind + "202"},
      {20240520, 1, 0, halves, "200" + behind + "0"},
      {20240520, 1, 100, halves + "x", "201" + behind + "200"},
      {20240520, 1, 100, fulls, "400" + behind + "200"},
      {20240520, 7, 100, halves, "magic 20240520 with version 7, expected version 1"},
      {20240520, 0, 100, halves, "with version 0"},
      {20240801, 7, 100, fulls, ""},
      {20240801, 7, 99, fulls, "400" + behind + "396: it counts 99 32-bit tokens"},
      {20240801, 7, 101, fulls, "400" + behind + "404"},
      {20240801, 7, 0xffffffff, fulls, "400" + behind + "17179869180"},
      {20240801, 7, 100, halves, "200" + behind + "400"},
      {20240801, 1, 100, fulls, "magic 20240801 with version 1, expected version 7"},
      {20240522, 1, 100, halves, "magic 20240522, an evaluation, expected training data"},
      {20240326, 3, 100, halves, "magic 20240326, a model, expected training data"}};
  for (const auto* name : {"header.bin", "header.u32"})
    for (const auto& r : all) {
      const auto file = test::temporary(name, llm_c_header(r.magic, r.version, r.count) + r.data);
      const auto d = token_data::open(file, {}, reader(8, 128'256));
      INFO(name << ' ' << r.magic << ' ' << r.version << ' ' << r.count << ": "
                << (d ? "" : d.error().text));
      REQUIRE(d.has_value() == r.refusal.empty());
      if (d) {
        CHECK(d->size() == 100);
        for (const std::uint32_t i : {0u, 1u, 99u})
          CHECK(token(*d, i) == i * (r.magic == 20240520 ? 400 : 1200));
      } else {
        CHECK(d.error().text.starts_with(file.string() + ": found "));
        CHECK_THAT(d.error().text, Contains(r.refusal));
      }
    }
}

TEST_CASE("tokens of another width than their file's name says are refused") {
  const auto failure = [](const std::string& name, const std::string& data) {
    const auto d = token_data::open(test::temporary(name, data), {}, reader(8, 300'000));
    return d ? std::string{} : d.error().text;
  };
  std::vector<std::uint32_t> wide(100);
  for (std::uint32_t i = 0; i < 100; ++i) wide[i] = i * 2600;
  CHECK(failure("wide.u32", bytes_of(wide)) == "");
  CHECK_THAT(failure("wide.bin", bytes_of(wide)),
             Contains("found numbers of 32 bits, expected 16"));
  CHECK(failure("narrow.bin", std::string(200, '\0')) == "");
  CHECK_THAT(failure("odd.bin", std::string(201, '\1')),
             Contains("odd.bin: found 201 bytes, expected a multiple of 2: tokens of 16 bits"));
  CHECK_THAT(failure("odd.u32", std::string(202, '\1')), Contains("expected a multiple of 4"));
  CHECK_THAT(failure("cut.bin", llm_c_header(20240520, 1, 100).substr(0, 1022)),
             Contains("magic 20240520 and 1022 bytes, expected a header of 1024"));
}

TEST_CASE("data that becomes shorter is an error of the next sample") {
  const auto file = test::temporary("cut.bin", std::string(4000, '\1'));
  const auto d = test::loaded(token_data::open(file, {}, reader(8, 300)));
  CHECK(d.sample(1, 1, 0, 4));
  std::filesystem::resize_file(file, 0);
  const auto none = d.sample(1, 2, 0, 4);
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().text, Contains("cut.bin: has become shorter: found 0 bytes"));
}

TEST_CASE("data that cannot be used for training is refused with a sentence") {
  const auto failure = [](const std::filesystem::path& file, const model& m,
                          const std::filesystem::path& vocabulary = {}) {
    const auto d = token_data::open(file, vocabulary, m);
    return d ? "" : d.error().text;
  };
  const auto text = test::temporary("eight.txt", "12345678");
  CHECK_THAT(failure("/nowhere/data.txt", reader(8)), Contains("cannot be opened"));
  CHECK_THAT(failure("/", reader(8)), Contains("is a directory, expected a regular file"));
  CHECK_THAT(failure(text, reader(8)), Contains("has 8 tokens") && Contains("need 9"));
  CHECK_THAT(failure(test::temporary("empty.txt", ""), reader(8)), Contains("has 0 tokens"));
  CHECK_THAT(failure(text, reader(4, 100)), Contains("vocabulary only 100"));
  CHECK_THAT(failure(text, reader(4), "/nowhere"), Contains("vocab.json: cannot be opened"));
  CHECK_THAT(failure(text, reader(4), small_vocabulary()), Contains("262 different tokens"));
}

TEST_CASE("byte pairs merge in the order of their rank") {
  const auto b = test::loaded(open_vocabulary(small_vocabulary()));
  CHECK(b->size() == 262);
  using tokens = std::vector<std::uint32_t>;
  CHECK(b->encode("hello") == tokens{258, 'o'});  // he + ll comes before e + ll
  CHECK(b->encode("yell") == tokens{'y', 260});   // nothing but e + ll
  CHECK(b->encode("hello world") == tokens{258, 'o', 259, 'o', 'r', 'l', 'd'});
  CHECK(b->encode("we'll") == tokens{'w', 'e', '\'', 257});  // split before 'll
  CHECK(b->encode("") == tokens{});
  CHECK(b->encode("h<|endoftext|>e") == tokens{'h', 261, 'e'});
  CHECK(b->encode("  x") == tokens{' ', ' ', 'x'});
}

TEST_CASE("any encoded text decodes to the same bytes") {
  const auto b = test::loaded(open_vocabulary(small_vocabulary()));
  for (const auto& text :
       {std::string{"hello, w\xC3\xB6rld! 12 \xE2\x82\xAC\n\n  end "},
        std::string{"\xff\xfe he\xffll \x80"}, std::string{"\0\1\2", 3}, std::string{}}) {
    CHECK(b->decode(b->encode(text)) == text);
  }
  CHECK(b->decode(b->encode("he<|endoftext|>")) == "he");  // a special token has no text
}

TEST_CASE("a text with a vocabulary is read as its tokens") {
  const auto file = test::temporary("hello.txt", "hello hello hello");
  const auto d = test::loaded(token_data::open(file, small_vocabulary(), reader(4, 300)));
  CHECK(token(d, 0) == 258);
  CHECK(d.size() == 8);
}

TEST_CASE("a text with an added token beyond the model's vocabulary is refused for training") {
  const auto folder = small_vocabulary();
  const auto names = test::temporary("words/added_tokens.json", R"({"<|user|>": 299, "<x>": 300})");
  const auto open = [&](const std::string& text) {
    return token_data::open(test::temporary("added.txt", text), folder, reader(4, 300));
  };
  CHECK(test::loaded(open("<|user|>hello hello")).size() == 6);
  const auto beyond = open("<x>hello hello");
  REQUIRE_FALSE(beyond);
  CHECK_THAT(beyond.error().text, Contains("301 different tokens"));
  std::filesystem::remove(names);
}

TEST_CASE("an incomplete vocabulary is refused") {
  const auto failure = [](const std::string& json, const std::string& merges) {
    test::temporary("bad/vocab.json", json);
    const auto b = open_vocabulary(test::temporary("bad/merges.txt", merges).parent_path());
    return b ? "" : b.error().text;
  };
  CHECK_THAT(failure("[]", ""), Contains("is not a JSON object"));
  CHECK_THAT(failure("{\"a\":-1}", ""), Contains("no id for 'a'"));
  CHECK_THAT(failure("{\"a\":1}", ""), Contains("no token for the single byte 0"));
  std::ifstream in{small_vocabulary() / "vocab.json"};
  const std::string good{std::istreambuf_iterator<char>{in}, {}};
  CHECK_THAT(failure(good, "h e\nx y\n"), Contains("line 2 has tokens that vocab.json"));
  CHECK_THAT(failure(good, "hello\n"), Contains("line 1 is not two tokens"));
}
