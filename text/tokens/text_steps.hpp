#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/reason.hpp"
#include "text/base/text_range.hpp"
#include "text/tokens/pattern.hpp"

// Steps of a tokenizer.json on text before its byte pair encoding, in a time that grows with the
// text's length. Reading throws nlohmann::json::exception for values of wrong types.

namespace troupe::gpu {

/// Replaces characters: Prepend, Replace, NFC and sequences of them.
class normalizer {
 public:
  /// Null: does nothing.
  static expected<normalizer> read(const nlohmann::json& all);

  bool empty() const { return steps_.empty(); }
  std::string apply(std::string_view text) const;
  /// The same, and what becomes of `ranges` (sorted, disjoint), which are of the text first and of
  /// the result afterwards.
  std::string apply(std::string_view text, std::vector<text_range>& ranges) const;
  /// Does it put this text before others?
  bool prepends() const;
  /// How many bytes of text one byte of the result may stand for; 0: any number.
  std::size_t max_bytes_for_one() const;

 private:
  struct step {
    enum class kind { prepend, replace, replace_pattern, nfc };
    kind what = kind::nfc;
    std::string from, to;
    pattern where;
  };
  class changed_text;
  static void apply(const step& s, std::string_view text, changed_text& out);
  std::vector<step> steps_;
};

/// Splits text into words: ByteLevel, Split, Digits, Metaspace and sequences of them.
class pretokenizer {
 public:
  static expected<pretokenizer> read(const nlohmann::json& all);

  /// Is the vocabulary byte-level?
  bool byte_level() const { return byte_level_; }
  /// Does it leave out parts of a text?
  bool removes() const;
  /// The words of a text in their order. `begins`: the text begins the prompt, and is not what
  /// follows an added token.
  void apply(std::string_view text, bool begins,
             const std::function<void(std::string_view)>& use) const;

 private:
  struct step {
    enum class kind { split, prefix_space, metaspace, split_at_mark };
    kind what = kind::split;
    pattern where{};
    // A match becomes a word of its own, nothing, one word with the matches beside it, or
    // a part of the word before or after it.
    enum class match { isolated, removed, contiguous, with_previous, with_next };
    match becomes = match::isolated;
    bool invert = false;                          // what does not match counts as a match
    std::string mark{};                           // metaspace
    enum class prepend { never, first, always };  // metaspace
    prepend scheme = prepend::never;
  };
  using word_user = std::function<void(std::string_view)>;
  expected<void> add(const nlohmann::json& one);
  expected<void> add_pattern(const std::string& expression, step s);
  expected<void> add_split(const nlohmann::json& one);
  expected<void> add_metaspace(const nlohmann::json& one);
  static void split(const step& s, std::string_view text, const word_user& use);
  void apply_from(std::size_t index, std::string_view text, bool begins,
                  const word_user& use) const;

  std::vector<step> steps_;
  bool byte_level_ = false;
};

}  // namespace troupe::gpu
