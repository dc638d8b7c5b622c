#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpu/text/merge_table.hpp"
#include "gpu/text/pattern.hpp"
#include "gpu/text/text_range.hpp"
#include "messages/reason.hpp"

namespace troupe::gpu {

/// GPT-2's byte-level byte pair encoding, from its vocab.json and merges.txt.
class bpe {
 public:
  static expected<bpe> open(const std::filesystem::path& directory);

  /// Encodes any bytes. "<|endoftext|>" is one token if the vocabulary has it, and text where it
  /// overlaps `literal` (sorted, disjoint).
  std::vector<std::uint32_t> encode(std::string_view text,
                                    std::span<const text_range> literal = {}) const;
  /// Decodes; numbers that are not in the vocabulary are skipped.
  std::string decode(std::span<const std::uint32_t> tokens) const;
  /// One more than the largest number in the vocabulary.
  std::uint32_t size() const { return size_; }

 private:
  using word_cache = std::unordered_map<std::string, std::vector<std::uint32_t>>;

  expected<void> read_vocabulary(const std::filesystem::path& file);
  expected<void> read_merges(const std::filesystem::path& file);
  void encode_plain(std::string_view text, word_cache& known,
                    std::vector<std::uint32_t>& out) const;
  std::vector<std::uint32_t> encode_word(std::string_view word) const;

  std::map<std::string, std::uint32_t> numbers_;           // of tokens as bytes
  std::unordered_map<std::uint32_t, std::string> tokens_;  // the inverse
  std::vector<std::uint32_t> bytes_;                       // numbers of single bytes
  merge_table merges_;
  pattern words_;  // splits text
  std::uint32_t size_ = 0;
};

}  // namespace troupe::gpu
