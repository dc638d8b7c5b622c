#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "messages/base/reason.hpp"
#include "text/tokens/merge_table.hpp"

namespace troupe::gpu {

/// A byte pair encoding: words to tokens.
class bpe_model {
 public:
  /// `model`: the file's object of that name. byte_level: its tokens are written in the characters
  /// of byte-level vocabularies. Throws nlohmann::json::exception for values of wrong types.
  static expected<bpe_model> read(const nlohmann::json& model, bool byte_level);

  void encode(std::string_view word, std::vector<std::uint32_t>& out) const;
  /// A token as bytes: of a byte-level vocabulary what it stands for, else as it is written.
  const std::string* find(std::uint32_t token) const;
  /// The token that is written so.
  std::optional<std::uint32_t> number_of(const std::string& token) const;
  std::uint32_t size() const { return size_; }  // one more than the largest number
  /// Does each part of a text become tokens? Else parts without a token may be left out, or become
  /// one unknown token together.
  bool keeps_all_text() const;
  std::size_t longest_token_bytes() const;

 private:
  expected<void> read_merges(const nlohmann::json& merges, bool byte_level);
  std::optional<std::uint32_t> number_as_written(const std::string& bytes) const;
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

}  // namespace troupe::gpu
