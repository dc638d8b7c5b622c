#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/reason.hpp"
#include "text/base/text_range.hpp"

namespace troupe::gpu {

/// Text to a model's tokens and back. Text may be any bytes.
class tokenizer {
 public:
  virtual ~tokenizer() = default;

  /// The tokens of a text. Names of added tokens in it become those tokens, except for names of
  /// special ones that overlap `literal` (sorted, disjoint): these are text.
  virtual std::vector<std::uint32_t> encode(std::string_view text,
                                            std::span<const text_range> literal = {}) const = 0;
  /// encode() with the tokens that begin and end a text for this model, if there are any.
  virtual std::vector<std::uint32_t> encode_prompt(std::string_view text,
                                                   std::span<const text_range> literal = {}) const {
    return encode(text, literal);
  }
  /// The text that a token adds; nothing for a special token and for numbers that are none.
  /// `first`: it begins the text (some tokenizers drop a space there).
  virtual std::string text_of(std::uint32_t token, bool first) const = 0;
  /// How a token is written: as text_of(), and a special token as its name.
  virtual std::string written(std::uint32_t token) const { return text_of(token, false); }
  /// The special token of that name.
  virtual std::optional<std::uint32_t> special(std::string_view name) const = 0;
  /// One more than the largest number, without added tokens.
  virtual std::uint32_t size() const = 0;
  /// How many bytes of a text one token stands for at most, so that a text that is too long for a
  /// model can be refused before it is encoded; 0: any number.
  virtual std::size_t longest_token_bytes() const = 0;

  std::string decode(std::span<const std::uint32_t> tokens) const;
};

}  // namespace troupe::gpu
