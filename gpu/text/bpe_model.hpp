#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpu/text/merge_table.hpp"
#include "messages/reason.hpp"

namespace troupe::gpu {

/// The byte pair encoding of a tokenizer.json: words to tokens.
class bpe_model {
 public:
  /// `model`: the file's object of that name. byte_level: its tokens are written in the characters
  /// of byte-level vocabularies. Throws nlohmann::json::exception for values of wrong types.
  static expected<bpe_model> read(const nlohmann::json& model, bool byte_level);

  void encode(std::string_view word, std::vector<std::uint32_t>& out) const;
  /// A token as bytes: of a byte-level vocabulary what it stands for, else as it is written.
  const std::string* find(std::uint32_t token) const;
  std::uint32_t size() const { return size_; }  // one more than the largest number

 private:
  expected<void> read_merges(const nlohmann::json& merges, bool byte_level);
  std::vector<std::uint32_t> symbols_of(std::string_view word) const;
  void add_unknown(std::string_view character, std::vector<std::uint32_t>& out) const;

  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::unordered_map<std::uint32_t, std::string> tokens_;
  merge_table merges_;
  std::vector<std::optional<std::uint32_t>> bytes_;  // tokens <0x00> to <0xFF>
  std::optional<std::uint32_t> unknown_;
  bool byte_level_ = false, byte_fallback_ = false, fuse_unknown_ = false, whole_words_ = false;
  std::uint32_t size_ = 0;
};

/// Bytes of the character that begins a text; 1 where there is no UTF-8.
std::size_t character_bytes(std::string_view text);

}  // namespace troupe::gpu
