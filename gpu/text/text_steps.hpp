#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/text/pattern.hpp"
#include "messages/reason.hpp"

// What a tokenizer.json does to text before its byte pair encoding. Reading throws
// nlohmann::json::exception for values of wrong types.

namespace troupe::gpu {

/// Replaces characters: Prepend, Replace, NFC and sequences of them.
class normalizer {
 public:
  /// Null: does nothing.
  static expected<normalizer> read(const nlohmann::json& all);

  std::string apply(std::string text) const;

 private:
  struct step {
    enum class kind { prepend, replace, replace_pattern, nfc };
    kind what = kind::nfc;
    std::string from, to;
    pattern where;
  };
  std::vector<step> steps_;
};

/// Splits text into words: ByteLevel, Split, Digits, Metaspace and sequences of them.
class pretokenizer {
 public:
  static expected<pretokenizer> read(const nlohmann::json& all);

  /// Is the vocabulary byte-level?
  bool byte_level() const { return byte_level_; }
  /// `begins`: the text begins the prompt, and is not what follows a special token.
  std::vector<std::string> apply(const std::string& text, bool begins) const;

 private:
  struct step {
    enum class kind { split, matches, prefix_space, metaspace };
    kind what = kind::split;
    pattern where;
    std::string replacement;                      // metaspace
    enum class prepend { never, first, always };  // metaspace
    prepend scheme = prepend::never;
  };
  expected<void> add(const nlohmann::json& one);
  expected<void> add_pattern(const std::string& expression, step::kind what);
  expected<void> add_metaspace(const nlohmann::json& one);

  std::vector<step> steps_;
  bool byte_level_ = false;
};

}  // namespace troupe::gpu
