#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/files.hpp"
#include "text/tokens/open_tokenizer.hpp"
#include "text/tokens/tokenizer.hpp"

namespace troupe::test {

using token_list = std::vector<std::uint32_t>;

/// The tokenizer of a folder with these files.
inline expected<std::unique_ptr<gpu::tokenizer>> tokenizer_in(
    const std::map<std::string, std::string>& files, std::uint32_t vocabulary = 1000) {
  const auto folder = temporary_folder() / "small-tokenizer";
  std::filesystem::remove_all(folder);
  for (const auto& [name, text] : files) temporary("small-tokenizer/" + name, text);
  return gpu::open_tokenizer(folder, vocabulary);
}

/// A byte's character in byte-level vocabularies, as JSON.
inline std::string byte_level_json(unsigned byte) {
  const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  if (printable) return fmt::format("\\u{:04x}", byte);
  unsigned n = 256;
  for (unsigned b = 0; b < byte; ++b)
    if (!((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174)) ++n;
  return fmt::format("\\u{:04x}", n);
}

/// A vocab.json of the bytes, whose numbers are their values, and of `more`.
inline std::string bytes_vocabulary(const std::string& more = "") {
  std::string all;
  for (unsigned b = 0; b < 256; ++b)
    all += fmt::format("{}\"{}\": {}", b == 0 ? "" : ", ", byte_level_json(b), b);
  return "{" + all + more + "}";
}

/// A tokenizer.json of bytes, with added tokens and other members (", "name": ...").
inline std::string bytes_tokenizer(const std::string& added, const std::string& members = "") {
  return R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},)"
         R"( "added_tokens": [)" +
         added + "]" + members + R"(, "model": {"type": "BPE", "vocab": )" + bytes_vocabulary() +
         R"(, "merges": []}})";
}

/// An added token from 300 on, with flags: s special, l lstrip, r rstrip, n normalized, w
/// single_word.
inline std::string added_json(std::uint32_t number, const std::string& content,
                              const std::string& flags) {
  const auto flag = [&](char c) { return flags.find(c) != flags.npos; };
  return fmt::format(R"({{"id": {}, "content": "{}", "special": {}, "lstrip": {}, "rstrip": {}, )"
                     R"("normalized": {}, "single_word": {}}})",
                     number, content, flag('s'), flag('l'), flag('r'), flag('n'), flag('w'));
}

/// Tokens as text: bytes as they are, others as {number}.
inline std::string shown_tokens(const token_list& tokens) {
  std::string out;
  for (const auto t : tokens)
    out += t < 256 ? std::string(1, static_cast<char>(t)) : fmt::format("{{{}}}", t);
  return out;
}

}  // namespace troupe::test
