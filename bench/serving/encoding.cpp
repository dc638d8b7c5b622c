#include "serving/encoding.hpp"
#include "text/tokens/open_tokenizer.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/clock.hpp"
#include "harness/long_text.hpp"
#include "messages/base/random.hpp"
#include "text/tokens/tokenizer.hpp"

namespace troupe::bench {

namespace {

using nlohmann::json;

/// A character of byte-level vocabularies, of which these bytes are printable or are not.
std::string character_of(unsigned byte) {
  unsigned code = byte;
  const auto printable = [](unsigned b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  if (!printable(byte)) {
    code = 256;
    for (unsigned b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

/// Bytes, all pairs of letters and digits, random pairs of these, and the beginnings of CJK
/// characters: as a tokenizer.json, and as vocab.json and merges.txt.
void write_files(const std::filesystem::path& one, const std::filesystem::path& two) {
  random_source random{3};
  json vocabulary = json::object(), merges = json::array();
  for (unsigned b = 0; b < 256; ++b) vocabulary[character_of(b)] = b;
  const auto merge = [&](const std::string& a, const std::string& b) {
    if (vocabulary.contains(a + b)) return;
    const auto number = vocabulary.size();
    vocabulary[a + b] = number;
    merges.push_back(a + " " + b);
  };
  std::vector<std::string> pairs;
  const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  for (const char a : letters)
    for (const char b : letters) pairs.push_back({a, b});
  for (const auto& p : pairs) merge(p.substr(0, 1), p.substr(1));
  for (int i = 0; i < 20'000; ++i)
    merge(pairs[random.below(pairs.size())], pairs[random.below(pairs.size())]);
  for (unsigned b = 0xb8; b < 0xc0; ++b) merge(character_of(0xe4), character_of(b));
  std::filesystem::create_directories(one);
  std::filesystem::create_directories(two);
  std::ofstream{one / "tokenizer.json"}
      << json{{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
              {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
  std::ofstream{two / "vocab.json"} << vocabulary;
  std::ofstream lines{two / "merges.txt"};
  for (const auto& m : merges) lines << m.get<std::string>() << "\n";
}

double encoding_s(const gpu::tokenizer& t, const std::string& text, int rounds) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const double before = clock_s(CLOCK_THREAD_CPUTIME_ID);
    if (t.encode(text).empty()) std::abort();
    times.push_back(clock_s(CLOCK_THREAD_CPUTIME_ID) - before);
  }
  return median(times);
}

}  // namespace

void encoding_times(const scratch& in, int rounds) {
  const std::filesystem::path one = in.path("one-file"), two = in.path("two-files");
  write_files(one, two);
  for (const auto& folder : {one, two}) {
    const auto t = gpu::open_tokenizer(folder, 100'000);
    if (!t) {
      fmt::print(stderr, "{}\n", t.error().text);
      std::exit(2);
    }
    for (const auto kind : test::long_texts) {
      const double half = encoding_s(**t, test::long_text(kind, 1u << 19), rounds);
      const double whole = encoding_s(**t, test::long_text(kind, 1u << 20), rounds);
      fmt::print("| {}, {} | {:.0f} | {:.0f} | {:.2f} | 2.2 | {} |\n",
                 folder == one ? "`tokenizer.json`" : "`vocab.json`, `merges.txt`", kind,
                 1e3 * half, 1e3 * whole, whole / half, whole <= 2.2 * half ? "yes" : "**no**");
    }
  }
}

}  // namespace troupe::bench
